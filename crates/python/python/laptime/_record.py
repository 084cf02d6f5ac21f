"""Recordings of this process."""

from __future__ import annotations

import os
import warnings
from types import TracebackType

from laptime import _native
from laptime._errors import RecordError
from laptime._forks import is_recorded_from_outside
from laptime._reading import Trace, read

__all__ = ["Recording", "record"]


class Recording:
    """A recording, from `with` to its end. Exceptions and Ctrl-C keep the trace."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = os.path.abspath(os.fspath(path))
        #: Recorded spans, dropped events and bytes of the file; known at the end.
        self.spans: int | None = None
        self.dropped: int | None = None
        self.bytes: int | None = None
        self._is_outer = False

    def __enter__(self) -> Recording:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.finish()

    def start(self) -> None:
        """Begins the recording."""
        if is_recorded_from_outside():
            self._is_outer = True
            warnings.warn("`laptime record` records this program; the marks go into its trace", stacklevel=3)
            return
        _native.start_recording(self.path)

    def finish(self) -> None:
        """Ends the recording and writes the rest of the file."""
        finished = None if self._is_outer else _native.finish_recording()
        if finished is not None:
            self.spans, self.dropped, self.bytes = finished

    def read(self) -> Trace:
        """Reads the trace."""
        if self._is_outer:
            raise RecordError("the trace belongs to `laptime record`", "read the folder that it names when it ends")
        trace = read(self.path)
        assert isinstance(trace, Trace)
        return trace

    def __repr__(self) -> str:
        return f"laptime.record({self.path!r})"


def record(path: str | os.PathLike[str] = "trace.pftrace") -> Recording:
    """Records the marks of all threads to a file: `.pftrace`, `.json` or `.json.gz`.

    >>> with laptime.record("trace.pftrace") as recording:
    ...     with laptime.stage("work"):
    ...         pass
    >>> recording.spans, recording.dropped
    (1, 0)

    Inside `laptime record` the marks go into that recording, and no file is written here.
    """
    return Recording(path)
