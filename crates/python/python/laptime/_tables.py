"""Tables: they print like the command, and convert to data frames."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from laptime import _native
from laptime._errors import LaptimeError

if TYPE_CHECKING:
    import pandas
    import polars
    import pyarrow

_STYLE = """<style>
.laptime table { border-collapse: collapse; } .laptime th, .laptime td { padding: 2px 8px; text-align: left; }
.laptime th.n, .laptime td.n { text-align: right; font-variant-numeric: tabular-nums; }
</style>"""


class Table:
    """An answer: columns of all values, and a text for people.

    Times are in milliseconds and their columns end in `_ms`. Unknown values are `None`.
    """

    def __init__(self, data: _native.NativeTable, people: Callable[[], _native.NativeTable] | None = None) -> None:
        self._data = data
        self._make_people = people
        self._people = data if people is None else None

    def __len__(self) -> int:
        return len(self._data)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return iter(self.rows())

    def __getitem__(self, column: str) -> list[Any]:
        """The values of a column."""
        for found in self._data.all_columns():
            if found.name == column:
                return found.to_list(0, len(self))
        raise LaptimeError(f"there is no column `{column}`", f"the columns are {', '.join(self.columns)}")

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        return [column.name for column in self._data.all_columns()]

    def rows(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The rows as dictionaries."""
        count = len(self) if limit is None else min(limit, len(self))
        lists = {column.name: column.to_list(0, count) for column in self._data.all_columns()}
        return [dict(zip(lists, values)) for values in zip(*lists.values())] if lists else []

    def to_dict(self) -> dict[str, list[Any]]:
        """The columns as lists."""
        return {column.name: column.to_list(0, len(self)) for column in self._data.all_columns()}

    @property
    def facts(self) -> dict[str, Any]:
        """Figures of the whole table, such as the number of dropped events."""
        return {key: fact for key, fact in self._json().items() if key not in (self._data.name, "notes", "warnings")}

    @property
    def notes(self) -> list[str]:
        """Sentences below the table."""
        return list(self._json().get("notes", []))

    @property
    def warnings(self) -> list[str]:
        """Notes on problems with the measurement."""
        return [warning["text"] for warning in self._json().get("warnings", [])]

    def _json(self) -> dict[str, Any]:
        found = json.loads(self._data.json() or "{}")
        return found if isinstance(found, dict) else {}

    def _for_people(self) -> _native.NativeTable:
        if self._people is None:
            assert self._make_people is not None
            self._people = self._make_people()
        return self._people

    def text(self, width: int | None = None, verbose: bool = False) -> str:
        """The table as the command prints it."""
        if width is None:
            width = shutil.get_terminal_size((120, 40)).columns
        return self._for_people().text(width, verbose)

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return f'{_STYLE}<div class="laptime">{self._for_people().html()}</div>'

    def __arrow_c_schema__(self) -> object:
        return self._data.arrow_schema()

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """An Arrow stream whose buffers are the memory of this table; nothing is copied."""
        return self._data.arrow_stream()

    def to_arrow(self) -> pyarrow.Table:
        """A `pyarrow.Table` over the same memory."""
        return _needs("pyarrow", "to_arrow").table(self)

    def to_polars(self) -> polars.DataFrame:
        """A Polars data frame over the same memory."""
        frame: polars.DataFrame = _needs("polars", "to_polars").DataFrame(self)
        return frame

    def to_pandas(self) -> pandas.DataFrame:
        """A pandas data frame. Numbers are not copied; repeated names become categories."""
        frames = _needs("pandas", "to_pandas")
        columns = self._data.all_columns()
        return frames.DataFrame({column.name: _series(frames, column) for column in columns}, copy=False)


def _series(pandas: Any, column: _native.NativeColumn) -> Any:
    import numpy  # pandas brings it

    if column.categories is not None:
        return pandas.Categorical.from_codes(numpy.asarray(column), categories=column.categories)
    if column.__array_interface__ is None:
        values = column.to_list(0, len(column))
        return pandas.Series(values, dtype="bool" if values and isinstance(values[0], bool) and column.is_whole else None)
    if column.is_whole:
        return numpy.asarray(column)
    values = column.to_list(0, len(column))
    is_int = any(isinstance(value, int) for value in values)
    return pandas.Series(values, dtype="Int64" if is_int else "float64")


def _needs(module: str, method: str) -> Any:
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise LaptimeError(f"`{method}` needs {module}", f"pip install {module}") from error
