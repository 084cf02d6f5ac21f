"""Recordings across forks and at the end of the interpreter.

A forked process has no writer thread, so the recording of its parent ends there. Under `laptime record` it begins one of
its own, like every process in which this package is imported.
"""

from __future__ import annotations

import atexit
import os
import pathlib

from laptime import _native

# Set by `laptime record` for the processes that it starts: a folder.
RECORDER = "LAPTIME_RECORD"
# By which CUDA and NVTX find a library to load.
INJECTION = ("CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH")


# The folder of the recorder inside this process or inside the process that it was forked from.
own_folder: str | None = None


def is_recorded_from_outside() -> bool:
    """Whether `laptime record` started this process."""
    folder = os.environ.get(RECORDER)
    return folder is not None and folder != own_folder and os.path.isdir(folder)


def _begin() -> None:
    if is_recorded_from_outside() and not _native.is_recording() and "LAPTIME_WORKER" not in os.environ:
        folder = pathlib.Path(os.environ[RECORDER])
        # The folder is gone when the recording has ended; then there is nothing to write to.
        try:
            _native.start_recording(folder / f"marks-{os.getpid()}.pftrace")
        except Exception:  # noqa: BLE001 - a program must run the same with and without a recorder
            pass


def _after_fork() -> None:
    global own_folder
    _native.forget_after_fork()
    # What the parent's recorder put into the environment.
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
        print(f"warning: the recording is incomplete: {error}")


os.register_at_fork(after_in_child=_after_fork)
atexit.register(_finish)
_begin()
