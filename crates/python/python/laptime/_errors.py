"""The exceptions of this package. All of them are `LaptimeError`."""

from __future__ import annotations


class LaptimeError(Exception):
    """The base class. `hint` says what to do, if known."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message, hint)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class ReadError(LaptimeError):
    """A trace or run could not be read."""


class RecordError(LaptimeError):
    """A recording could not be started or written."""


class BenchError(LaptimeError):
    """A benchmark could not be measured."""


class DeviceError(LaptimeError):
    """A device does not exist or cannot be used."""
