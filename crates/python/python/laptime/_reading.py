"""Traces and runs, read from files."""

from __future__ import annotations

import html
import os
import pathlib
import tempfile
import warnings
from typing import Any

from laptime import _native
from laptime._errors import LaptimeError
from laptime._tables import Table

__all__ = ["Page", "Run", "Spans", "Trace", "read"]

Path = str | os.PathLike[str]


def read(path: Path) -> Trace | Run:
    """Reads a trace, or the folder of a run.

    A trace is a Perfetto `.pftrace`, Chrome or torch.profiler JSON (`.json`, `.json.gz`) or an Nsight Systems export
    (`.sqlite`). The format is detected from the content. A folder with `results.jsonl` is a `Run`; its trace, if it has
    one, is `run.trace`.
    """
    place = pathlib.Path(path)
    if place.name == "results.jsonl" or (place / "results.jsonl").is_file():
        return Run(place)
    return Trace(place)


def _ask(words: list[str], traces: list[Trace]) -> tuple[list[_native.NativeTable], str]:
    known = [(trace.path, trace._native) for trace in traces]
    tables, messages, text = _native.ask(words, known)
    for message in messages:
        if message.startswith("warning: "):
            warnings.warn(message.removeprefix("warning: "), stacklevel=4)
    return tables, text


def _table(command: str, paths: list[str], options: dict[str, Any], traces: list[Trace]) -> Table:
    words = [command, *paths, *_flags(options)]
    tables, _ = _ask([*words, "--format", "json"], traces)
    if not tables:
        raise LaptimeError(f"`{command}` has no answer for `{', '.join(paths)}`")
    return Table(tables[0], lambda: _ask(words, traces)[0][0])


def _flags(options: dict[str, Any]) -> list[str]:
    """The options of a method as the flags of its command."""
    flags: list[str] = []
    for name, option in options.items():
        flag = "--" + name.replace("_", "-")
        if option is True:
            flags.append(flag)
        elif isinstance(option, (list, tuple)):
            flags.extend(f"{flag}={item}" for item in option)
        elif option is not None and option is not False:
            flags.append(f"{flag}={option}")
    return flags


class Trace:
    """A trace in memory. Each method is the command of its name."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._native = _native.read_trace(self.path)
        for warning in self._native.warnings:
            warnings.warn(f"`{self.path}`: {warning}", stacklevel=3)

    def _table(self, command: str, **options: Any) -> Table:
        return _table(command, [self.path], options, [self])

    @property
    def span_count(self) -> int:
        """The number of spans."""
        return self._native.span_count

    @property
    def dropped(self) -> int:
        """Events that were dropped while recording."""
        return self._native.lost

    @property
    def duration_ns(self) -> int:
        """From the first event to the last."""
        first, last = self._native.bounds or (0, 0)
        return last - first

    def stages(self, *, depth: int | None = None, most: int | None = None, all: bool = False) -> Table:
        """The stage tree, with host and device time."""
        return self._table("stages", depth=depth, most=most, all=all)

    def top(
        self,
        *,
        by: str = "name",
        side: str = "both",
        sort: str = "self",
        match: str | None = None,
        most: int | None = None,
    ) -> Table:
        """Names with the most self time; `by="group"` gives kinds of work."""
        return self._table("top", by=by, side=side, sort=sort, match=match, most=most)

    def laps(self, *, lap: str | None = None, each: bool = False) -> Table:
        """The laps of each loop, and outliers."""
        return self._table("laps", lap=lap, each=each)

    def gaps(self, *, lap: str | None = None, each: int | None = None) -> Table:
        """When a device was idle, and why."""
        return self._table("gaps", lap=lap, each=each)

    def syncs(self, *, lap: str | None = None, each: bool = False) -> Table:
        """Where the host waits for a device, with file and line."""
        return self._table("syncs", lap=lap, each=each)

    def overlap(self) -> Table:
        """How much of copies and communication is hidden behind compute."""
        return self._table("overlap")

    def critical_path(self, *, without: list[str] | None = None, faster: list[str] | None = None) -> Table:
        """What determines the length of the trace, and predictions without it."""
        return self._table("critical-path", without=without, faster=faster)

    def diagnose(self) -> Table:
        """The main bottleneck, the evidence, and what fixing it would save."""
        return self._table("diagnose")

    def compare(
        self,
        other: Trace,
        *,
        by: str | None = None,
        lap: str | None = None,
        device: int | None = None,
        most: int | None = None,
    ) -> Table:
        """What makes the other trace longer or shorter than this one, in steps that add up."""
        options = {"by": by, "lap": lap, "device": device, "most": most}
        return _table("compare", [self.path, other.path], options, [self, other])

    def spans(self, fields: list[str] | tuple[str, ...] = ()) -> Spans:
        """All spans as columns, with a column for each of these fields. `parent` is the row of the enclosing span."""
        return Spans(self._native.spans(list(fields)))

    def page(self) -> Page:
        """The report page, with a zoomable timeline. A notebook shows it inline."""
        with tempfile.TemporaryDirectory() as folder:
            target = pathlib.Path(folder) / "report.html"
            _ask(["report", self.path, f"--out={target}"], [self])
            return Page(target.read_text(encoding="utf-8"))

    def __repr__(self) -> str:
        return f"<laptime.Trace {self.path!r}: {self.span_count} spans, {self.duration_ns / 1e6:.1f} ms>"

    def _repr_html_(self) -> str:
        return f"<p><code>{html.escape(repr(self)[1:-1])}</code></p>{self.diagnose()._repr_html_()}"


class Run:
    """The results of a benchmark, in a run folder."""

    def __init__(self, path: Path) -> None:
        self.path = os.fspath(path)
        self._cases = _native.read_cases(self.path)

    def cases(self) -> Table:
        """One row per case: median with its interval, mean, and the metrics of the workload."""
        return Table(self._cases)

    def compare(self, other: Run, *, threshold: str | None = None, metric: str | None = None, anyway: bool = False) -> Table:
        """Case by case, with verdicts. This run is the baseline."""
        options = {"threshold": threshold, "metric": metric, "anyway": anyway}
        return _table("compare", [self.path, other.path], options, [])

    def diagnose(self) -> Table:
        """The main bottleneck of the run."""
        return _table("diagnose", [self.path], {}, [])

    @property
    def trace(self) -> Trace:
        """The trace of the run."""
        return Trace(self.path)

    def __repr__(self) -> str:
        return f"<laptime.Run {self.path!r}: {len(self._cases)} cases>"

    def _repr_html_(self) -> str:
        return self.cases()._repr_html_()


class Spans(Table):
    """Spans as columns."""

    def text(self, width: int | None = None, verbose: bool = False) -> str:
        """The first spans."""
        shown = self.rows(limit=10)
        keys = ["name", "start_ns", "duration_ns", "track"]
        cells = [keys] + [[str(row[key]) for key in keys] for row in shown]
        widths = [max(len(row[at]) for row in cells) for at in range(len(keys))]
        lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths)).rstrip() for row in cells]
        return "\n".join([*lines, f"{len(self)} spans; columns: {', '.join(self.columns)}"])

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"


class Page:
    """A report page: one HTML file that needs no network."""

    def __init__(self, text: str) -> None:
        self.html = text

    def save(self, path: Path) -> None:
        """Writes the page to a file."""
        pathlib.Path(path).write_text(self.html, encoding="utf-8")

    def _repr_html_(self) -> str:
        page = html.escape(self.html, quote=True)
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 720px; border: 0"></iframe>'
