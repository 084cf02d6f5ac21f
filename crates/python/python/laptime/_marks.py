"""Marks: stages, laps, syncs, moments and values."""

from __future__ import annotations

import functools
import inspect
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable, Iterator
from typing import Any, TypeVar, overload

from laptime._native import lap, mark, stage, sync_point, value

__all__ = ["lap", "laps", "mark", "stage", "sync_point", "value"]

T = TypeVar("T")


def decorated(around: Any, function: Callable[..., Any]) -> Callable[..., Any]:
    """A function whose every call, or whose whole run as a generator or coroutine, is a stage."""
    if inspect.isasyncgenfunction(function):

        @functools.wraps(function)
        async def async_generator(*args: Any, **kwargs: Any) -> Any:
            with around:
                async for item in function(*args, **kwargs):
                    yield item

        return async_generator
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def coroutine(*args: Any, **kwargs: Any) -> Any:
            with around:
                return await function(*args, **kwargs)

        return coroutine
    if inspect.isgeneratorfunction(function):

        @functools.wraps(function)
        def generator(*args: Any, **kwargs: Any) -> Any:
            with around:
                return (yield from function(*args, **kwargs))

        return generator

    @functools.wraps(function)
    def plain(*args: Any, **kwargs: Any) -> Any:
        with around:
            return function(*args, **kwargs)

    return plain


@overload
def laps(iterable: AsyncIterable[T], name: str = "lap") -> AsyncIterator[T]: ...
@overload
def laps(iterable: Iterable[T], name: str = "lap") -> Iterator[T]: ...
def laps(iterable: Any, name: str = "lap") -> Any:
    """Iterates, and marks every turn of the loop as a lap.

    A lap ends when the next item has arrived, so waiting for a data loader is part of it, as the stage `next`. The
    laps are numbered from 0. Works in `async for` too.

    >>> [x * 2 for x in laptime.laps([1, 2, 3], "step")]
    [2, 4, 6]
    """
    if hasattr(iterable, "__aiter__"):
        return _async_laps(iterable, name)
    return _laps(iterable, name)


def _laps(iterable: Iterable[T], name: str) -> Iterator[T]:
    items = iter(iterable)
    number = 0
    try:
        with stage("next"):
            item = next(items)
        while True:
            with lap(name, lap=number):
                yield item
                with stage("next"):
                    item = next(items)
            number += 1
    except StopIteration:
        return


async def _async_laps(iterable: AsyncIterable[T], name: str) -> AsyncIterator[T]:
    items = iterable.__aiter__()
    number = 0
    try:
        with stage("next"):
            item = await items.__anext__()
        while True:
            with lap(name, lap=number):
                yield item
                with stage("next"):
                    item = await items.__anext__()
            number += 1
    except StopAsyncIteration:
        return
