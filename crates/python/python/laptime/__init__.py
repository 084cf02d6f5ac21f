"""Where the time of a program goes: marks, recordings, traces and benchmarks.

Mark the parts of a program, and record them:

>>> import laptime
>>> with laptime.record("trace.pftrace"):
...     for batch in laptime.laps(range(3), "step"):
...         with laptime.stage("forward", tokens=512):
...             pass
>>> trace = laptime.read("trace.pftrace")
>>> trace.spans().to_dict()["name"].count("forward")
3

`laptime.read` also reads traces of torch.profiler, Nsight Systems and Perfetto. `laptime.bench` times a function,
`laptime.ab` compares two. `laptime.torch.watch(model)` marks the modules of a PyTorch model.
"""

import importlib as _importlib
from types import ModuleType as _ModuleType

from laptime import _forks as _forks
from laptime._bench import Timings, ab, bench
from laptime._errors import BenchError, DeviceError, LaptimeError, ReadError, RecordError
from laptime._marks import lap, laps, mark, stage, sync_point, value
from laptime._native import __version__, is_recording
from laptime._reading import Run, Trace, read
from laptime._record import Recording, record
from laptime._tables import Table

__all__ = [
    "BenchError",
    "DeviceError",
    "LaptimeError",
    "ReadError",
    "RecordError",
    "Recording",
    "Run",
    "Table",
    "Timings",
    "Trace",
    "__version__",
    "ab",
    "bench",
    "is_recording",
    "lap",
    "laps",
    "mark",
    "read",
    "record",
    "stage",
    "sync_point",
    "value",
]


def __getattr__(name: str) -> _ModuleType:
    """Imports `laptime.torch` and `laptime.course` when they are first used."""
    if name in ("course", "torch"):
        return _importlib.import_module(f"laptime.{name}")
    raise AttributeError(f"module 'laptime' has no attribute {name!r}")
