"""Benchmarks of functions, with the loop, the statistics and the verdicts of `laptime bench` and `laptime ab`."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from laptime import _native
from laptime._errors import DeviceError
from laptime._tables import Table

__all__ = ["Timings", "ab", "bench"]


class Timings(Table):
    """How long a function takes. Times are in milliseconds."""

    def __init__(self, data: _native.NativeTable, iterations: list[float], warmup: list[float]) -> None:
        super().__init__(data)
        #: The measured iterations, in order.
        self.iterations = iterations
        #: The warm-up iterations, in order.
        self.warmup = warmup

    def _figure(self, column: str) -> Any:
        return self[column][0]

    @property
    def median(self) -> float:
        """The median."""
        return float(self._figure("median_ms"))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the median; `None` with fewer than six iterations."""
        low, high = self._figure("median_lo_ms"), self._figure("median_hi_ms")
        return None if low is None else (low, high)

    @property
    def mean(self) -> float:
        """The mean."""
        return float(self._figure("mean_ms"))

    @property
    def std(self) -> float | None:
        """The sample standard deviation; `None` for one iteration."""
        std = self._figure("std_ms")
        return None if std is None else float(std)


def bench(
    function: Callable[..., Any],
    *args: Any,
    device: str | None = None,
    warmup: int | None = None,
    iterations: int | None = None,
    within: float | None = None,
    max_time: float | None = None,
    name: str | None = None,
) -> Timings:
    """Times a function: warms up until it is steady, and measures until the median is known.

    >>> timings = laptime.bench(sorted, list(range(1000)), warmup=2, iterations=10)
    >>> len(timings.iterations)
    10

    With `device="cuda"` an iteration includes waiting for PyTorch's device. Measuring ends after `iterations` iterations;
    without it, when the 95 % interval is within `within` (2 %) of the median, or after `max_time` (10) seconds.
    """
    data, measured, before = _native.bench(
        name or _name(function), function, args, _wait(device), warmup, iterations, within, max_time
    )
    return Timings(data, measured, before)


def ab(
    a: Callable[[], Any],
    b: Callable[[], Any],
    *,
    device: str | None = None,
    blocks: int = 10,
    warmup: int | None = None,
    threshold: float | None = None,
    seed: int | None = None,
) -> Table:
    """Compares two functions, with a verdict: `faster`, `slower`, `same` or `unclear`.

    Blocks of iterations of both run in random order in this process. The difference has the interval of the rank sum
    test over blocks. Effects of a process (memory layout, hash seeds) are the same in all blocks; `laptime ab` compares
    commands in fresh processes.

    >>> table = laptime.ab(lambda: sum(range(100)), lambda: sum(range(5000)), warmup=1)
    >>> table.facts["verdict"]
    'slower'
    """
    order = random.randrange(2**63) if seed is None else seed
    names = [_name(a), _name(b)]
    return Table(_native.ab(names, [a, b], _wait(device), blocks, warmup, threshold, order))


def _name(function: Callable[..., Any]) -> str:
    return getattr(function, "__qualname__", None) or type(function).__name__


def _wait(device: str | None) -> Callable[[], Any] | None:
    """A function that waits for a device; none for the CPU."""
    if device is None or device == "cpu":
        return None
    if not device.startswith("cuda"):
        raise DeviceError(f"unknown device `{device}`", "use `cpu` or `cuda:0`")
    try:
        import torch
    except ImportError as error:
        raise DeviceError(f"device `{device}` needs PyTorch", "pip install torch") from error
    if not torch.cuda.is_available():
        raise DeviceError(f"PyTorch has no device `{device}`", "use device=\"cpu\"; `laptime doctor` shows the GPUs")
    return lambda: torch.cuda.synchronize(device)
