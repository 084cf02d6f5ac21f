"""Marks for PyTorch: the modules of a model, and the memory of the allocator."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import torch

from laptime._errors import LaptimeError
from laptime._native import is_recording, stage, value

__all__ = ["Watch", "memory", "watch"]


class Watch:
    """The marks on the modules of a model, until `remove()` or the end of a `with` block."""

    def __init__(self, handles: list[Any], names: list[str], compiled: list[str]) -> None:
        self._handles = handles
        #: The names of the marked modules.
        self.names = names
        #: Modules compiled by `torch.compile`: marked as a whole, not inside.
        self.compiled = compiled

    def remove(self) -> None:
        """Removes the marks."""
        for handle in self._handles:
            handle.remove()
        self._handles.clear()

    def __enter__(self) -> Watch:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()

    def __repr__(self) -> str:
        inside = f", {len(self.compiled)} compiled and marked as a whole" if self.compiled else ""
        return f"<laptime.torch.Watch of {len(self.names)} modules{inside}>"


def watch(model: torch.nn.Module, depth: int = 2, backward: bool = True) -> Watch:
    """Marks the modules of a model by name, in forward and backward, down to this depth.

    Kernels launched inside a marked module belong to its stage: `trace.stages()` shows their device time. The backward
    pass of a module is a stage `NAME backward` of the thread that autograd runs it on. Modules compiled by
    `torch.compile` are marked outside of the compiled region, and not inside; `Watch.compiled` names them.
    """
    if depth < 0:
        raise LaptimeError("`depth` must be at least 0", "0 marks the model as a whole, 1 its parts")
    handles: list[Any] = []
    names: list[str] = []
    compiled: list[str] = []
    for name, module, is_compiled in _modules(model, depth):
        if is_compiled:
            compiled.append(name)
        names.append(name)
        handles.extend(_mark_forward(module, name))
        if backward:
            handles.extend(_mark_backward(module, f"{name} backward"))
    return Watch(handles, names, compiled)


def _is_compiled(module: torch.nn.Module) -> bool:
    return type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None


def _modules(model: torch.nn.Module, depth: int) -> list[tuple[str, torch.nn.Module, bool]]:
    """The modules down to a depth, parents first; nothing inside a compiled one."""
    found: list[tuple[str, torch.nn.Module, bool]] = []
    seen: set[int] = set()

    def visit(name: str, module: torch.nn.Module, level: int) -> None:
        if id(module) in seen:
            return
        seen.add(id(module))
        is_compiled = _is_compiled(module)
        found.append((name, module, is_compiled))
        if level < depth and not is_compiled:
            for child, inner in module.named_children():
                visit(child if level == 0 else f"{name}.{child}", inner, level + 1)

    visit(type(model).__name__, model, 0)
    return found


def _mark_forward(module: torch.nn.Module, name: str) -> list[Any]:
    around = stage(name)

    def before(*_: Any) -> None:
        around.__enter__()

    def after(*_: Any) -> None:
        around.__exit__(None, None, None)

    # `always_call`: the stage ends when forward raises.
    return [
        module.register_forward_pre_hook(before, prepend=True),
        module.register_forward_hook(after, always_call=True),
    ]


def _mark_backward(module: torch.nn.Module, name: str) -> list[Any]:
    around = stage(name)
    # Stages that began on a thread of autograd end there; a pass that raises leaves them open.
    open_stages: list[Any] = []

    def before(*_: Any) -> None:
        open_stages.append(around.__enter__())

    def after(*_: Any) -> None:
        if open_stages:
            open_stages.pop().__exit__(None, None, None)

    handles = [module.register_full_backward_pre_hook(before), module.register_full_backward_hook(after)]
    # A compiled module forwards attributes to the module inside it, and would not call its full hooks.
    module.__dict__["_is_full_backward_hook"] = True
    return handles


def memory(device: int | str | torch.device | None = None) -> None:
    """Records the memory of PyTorch's allocator: counters of allocated and reserved bytes per device.

    Call it once per step. Without a GPU in use it records nothing.
    """
    if not is_recording() or not torch.cuda.is_available() or not torch.cuda.is_initialized():
        return
    indices = range(torch.cuda.device_count()) if device is None else [torch.device(device).index or 0]
    for index in indices:
        value(f"cuda:{index} allocated", torch.cuda.memory_allocated(index), unit="bytes")
        value(f"cuda:{index} reserved", torch.cuda.memory_reserved(index), unit="bytes")
