"""The benchmark functions of CS336 assignment 2, for built-in models and PyTorch modules.

The snippet of the course runs with its import changed:

    from laptime.course import MODEL_CONFIGS, create_model, generate_random_batch, benchmark_forward_backward
"""

from __future__ import annotations

import random
from typing import Any

from laptime import _native
from laptime._bench import Timings, bench
from laptime._errors import BenchError

__all__ = [
    "MODEL_CONFIGS",
    "Batch",
    "Model",
    "benchmark_forward",
    "benchmark_forward_backward",
    "create_model",
    "generate_random_batch",
]

#: The models of the assignment: `small`, `medium`, `large`, `xl` and `2.7B`.
MODEL_CONFIGS: dict[str, dict[str, Any]] = {
    name: {"name": name, **sizes} for name, sizes in _native.presets(["small", "medium", "large", "xl", "2.7B"])
}


class Batch:
    """Token ids: `batch_size` sequences of `context_length` tokens."""

    def __init__(self, ids: list[int], batch_size: int) -> None:
        self.ids = ids
        self._tensors: dict[Any, Any] = {}
        self.shape = (batch_size, len(ids) // max(batch_size, 1))

    def __repr__(self) -> str:
        return f"<laptime.course.Batch {self.shape[0]} x {self.shape[1]}>"


class Model:
    """A built-in model with synthetic weights."""

    def __init__(self, native: _native.NativeModel, name: str) -> None:
        self._native = native
        self.name = name

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self._native.parameters

    def __call__(self, batch: Batch) -> float:
        """Runs a batch forward, and returns its loss."""
        return self._native.run(batch.ids, batch.shape[0], False)

    def forward_backward(self, batch: Batch) -> float:
        """Runs a batch forward and backward, and returns its loss."""
        return self._native.run(batch.ids, batch.shape[0], True)

    def __repr__(self) -> str:
        return f"<laptime.course.Model {self.name}: {self.parameters} parameters>"


def create_model(
    config: dict[str, Any], context_length: int = 512, device: str = "cpu", dtype: str = "float32", **sizes: int
) -> Model:
    """A model of a configuration. `sizes` replace those of the configuration."""
    known = {"vocab_size", "d_model", "num_layers", "num_heads", "d_ff"}
    wanted = {**{key: size for key, size in config.items() if key in known}, **sizes}
    unknown = set(sizes) - known
    if unknown:
        raise BenchError(f"unknown size `{sorted(unknown)[0]}`", f"the sizes are {', '.join(sorted(known))}")
    name = str(config.get("name", "small"))
    native = _native.NativeModel(name, {**wanted, "context_length": context_length}, device, dtype)
    return Model(native, name)


def generate_random_batch(
    batch_size: int, context_length: int, vocab_size: int = 10_000, device: str = "cpu", seed: int = 0
) -> Batch:
    """Random token ids."""
    chosen = random.Random(seed)
    count = batch_size * context_length
    return Batch([chosen.randrange(vocab_size) for _ in range(count)], batch_size)


def benchmark_forward(
    model: Any, input_ids: Any, warmup_steps: int = 5, measure_steps: int = 10, device: str | None = None
) -> Times:
    """Times forward passes; returns mean and standard deviation in seconds."""
    return Times(bench(_forward(model), input_ids, **_how(model, warmup_steps, measure_steps, device), name="forward"))


def benchmark_forward_backward(
    model: Any, input_ids: Any, warmup_steps: int = 5, measure_steps: int = 10, device: str | None = None
) -> Times:
    """Times forward and backward passes; returns mean and standard deviation in seconds."""
    step = model.forward_backward if isinstance(model, Model) else _torch_step(model)
    how = _how(model, warmup_steps, measure_steps, device)
    return Times(bench(step, input_ids, **how, name="forward, backward"))


class Times(tuple[float, float]):
    """Mean and standard deviation in seconds; `timings` has everything else."""

    timings: Timings

    def __new__(cls, timings: Timings) -> Times:
        times = super().__new__(cls, (timings.mean / 1e3, (timings.std or 0.0) / 1e3))
        times.timings = timings
        return times


def _forward(model: Any) -> Any:
    if isinstance(model, Model):
        return model

    import torch

    def forward(batch: Any) -> None:
        with torch.no_grad():
            model(_tensor(model, batch))

    return forward


def _torch_step(model: Any) -> Any:
    def step(batch: Any) -> None:
        model.zero_grad(set_to_none=True)
        logits = model(_tensor(model, batch))
        logits.float().mean().backward()

    return step


def _tensor(model: Any, batch: Any) -> Any:
    """Our batch as a tensor on the device of a module; anything else as it is."""
    if not isinstance(batch, Batch):
        return batch
    import torch

    device = next(model.parameters()).device
    if device not in batch._tensors:
        batch._tensors[device] = torch.tensor(batch.ids, dtype=torch.long, device=device).reshape(batch.shape)
    return batch._tensors[device]


def _how(model: Any, warmup: int, steps: int, device: str | None) -> dict[str, Any]:
    """The settings of `bench`. Built-in models wait for their device themselves."""
    if device is None and not isinstance(model, Model):
        own = next(model.parameters()).device
        device = str(own) if own.type == "cuda" else None
    return {"warmup": warmup, "iterations": steps, "device": None if isinstance(model, Model) else device}
