"""Recordings of this process."""

from __future__ import annotations

import ctypes
import os
import warnings
from types import TracebackType

from laptime import _forks, _native
from laptime._errors import RecordError
from laptime._reading import Trace, read

__all__ = ["Recording", "record"]


class Recording:
    """A recording, for a `with` block. Exceptions and Ctrl-C keep the trace."""

    def __init__(self, path: str | os.PathLike[str], gpu: bool = True) -> None:
        self.path = os.path.abspath(os.fspath(path))
        #: Recorded spans, dropped events and file size; known at the end.
        self.spans: int | None = None
        self.dropped: int | None = None
        self.bytes: int | None = None
        #: Kernels, if CUDA was used.
        self.kernels: int | None = None
        self._is_outer = False
        self._gpu = gpu
        self._environment: dict[str, str | None] = {}

    def __enter__(self) -> Recording:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def start(self) -> None:
        """Begins the recording."""
        if _forks.is_recorded_from_outside():
            self._is_outer = True
            warnings.warn("`laptime record` records this program; the marks go into its trace", stacklevel=3)
            return
        is_injected = self._gpu and self._inject()
        try:
            _native.start_recording(self.path)
        except BaseException:
            self._restore()
            raise
        if is_injected:
            _native.begin_gpu()

    def finish(self) -> None:
        """Ends the recording and writes the rest of the file."""
        finished = None if self._is_outer else _native.finish_recording()
        is_injected = bool(self._environment)
        self._restore()
        if finished is None:
            return
        self.spans, self.dropped, self.bytes = finished
        if is_injected:
            self.kernels = _native.finish_gpu(self.path)
            self.bytes = os.stat(self.path).st_size

    def _inject(self) -> bool:
        """Makes CUDA load the library that records it, now or when it is initialised."""
        if any(os.environ.get(name) for name in _forks.INJECTION):
            warnings.warn("another profiler records CUDA in this process; the trace has no kernels", stacklevel=4)
            return False
        library, folder = _native.prepare_gpu()
        _forks.own_folder = os.fspath(folder)
        wanted = dict.fromkeys(_forks.INJECTION, os.fspath(library)) | {_forks.RECORDER: os.fspath(folder)}
        self._environment = {name: os.environ.get(name) for name in wanted}
        os.environ.update(wanted)
        if _has_loaded("/libcuda.so") and not _has_loaded("/liblaptime_inject"):
            ctypes.CDLL(os.fspath(library)).InitializeInjection()
        return True

    def _restore(self) -> None:
        for name, before in self._environment.items():
            if before is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = before
        self._environment = {}

    def read(self) -> Trace:
        """Reads the trace."""
        if self._is_outer:
            raise RecordError("the trace belongs to `laptime record`", "read the folder that it names when it ends")
        trace = read(self.path)
        assert isinstance(trace, Trace)
        return trace

    def __repr__(self) -> str:
        return f"laptime.record({self.path!r})"


def _has_loaded(library: str) -> bool:
    """Whether a library is loaded in this process."""
    try:
        with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
            return any(library in line for line in maps)
    except OSError:
        return False


def record(path: str | os.PathLike[str] = "trace.pftrace", *, gpu: bool = True) -> Recording:
    """Records the marks of all threads to a file: `.pftrace`, `.json` or `.json.gz`.

    If the program uses CUDA, the trace also contains kernels, copies, syncs and Python samples, like that of `laptime
    record`. `gpu=False` leaves them out.

    >>> with laptime.record("trace.pftrace") as recording:
    ...     with laptime.stage("work"):
    ...         pass
    >>> recording.spans, recording.dropped
    (1, 0)

    Inside `laptime record` the marks go into that recording, and no file is written here.
    """
    return Recording(path, gpu)
