"""Recordings across forks and at the end of the interpreter.

A forked process has no writer thread, so it leaves the recording of its parent. Under `laptime record` it starts its own,
like every process that imports this package.
"""

from __future__ import annotations

import atexit
import os
import pathlib
import sys

from laptime import _native

# Set by `laptime record`: the folder of the recorder.
RECORDER = "LAPTIME_RECORD"
# Name the libraries that CUDA and NVTX load.
INJECTION = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


# The folder of the recorder in this process, or in the process that it was forked from.
own_folder: str | None = None


def is_recorded_from_outside() -> bool:
    """Whether `laptime record` started this process."""
    folder = os.environ.get(RECORDER)
    return folder is not None and folder != own_folder and os.path.isdir(folder)


def _begin() -> None:
    if is_recorded_from_outside() and not _native.is_recording() and "LAPTIME_WORKER" not in os.environ:
        folder = pathlib.Path(os.environ[RECORDER])
        # Fails if the recording has ended and its folder is gone.
        try:
            _native.start_recording(folder / f"marks-{os.getpid()}.pftrace")
        except Exception:  # noqa: BLE001 - a program must run the same with and without a recorder
            pass


def _after_fork() -> None:
    global own_folder
    _native.forget_after_fork()
    # Set by the recorder of the parent.
    if own_folder is not None and os.environ.get(RECORDER) == own_folder:
        for name in (RECORDER, *INJECTION):
            os.environ.pop(name, None)
    own_folder = None
    _begin()


def _finish() -> None:
    try:
        _native.finish_recording()
        _native.remove_gpu()
    except Exception as error:  # noqa: BLE001 - the interpreter is shutting down
        print(f"warning: the recording is incomplete: {error}", file=sys.stderr)


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_finish)
_begin()
