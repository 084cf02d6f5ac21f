"""The module `laptime` with PyTorch on a GPU: device time of modules, memory curves, benchmarks, the course. Asserts and prints."""

import sys

import laptime
import laptime.torch
import torch
from laptime.course import MODEL_CONFIGS, benchmark_forward, benchmark_forward_backward, create_model, generate_random_batch


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.small = torch.nn.Linear(width, width)
        self.large = torch.nn.Sequential(torch.nn.Linear(width, 8 * width), torch.nn.Linear(8 * width, width))

    def forward(self, x):
        return self.large(torch.relu(self.small(x)))


def device_times(compiled):
    """The device time of each stage, in milliseconds."""
    model = Block(2048).cuda()
    if compiled:
        model.large = torch.compile(model.large, backend="eager")
    # Without gradients of its input, the hooks of the first module would end before its kernels.
    inputs = torch.randn(4096, 2048, device="cuda", requires_grad=True)
    model(inputs).sum().backward()
    with laptime.record("watch.pftrace") as recording, laptime.torch.watch(model, depth=1) as watched:
        for _ in range(5):
            with laptime.stage("step"):
                model(inputs).sum().backward()
                laptime.torch.memory()
        torch.cuda.synchronize()
    print(recording, watched)
    assert watched.compiled == (["large"] if compiled else []), watched.compiled
    trace = recording.read()
    print(trace.stages())
    rows = trace.stages().rows()
    column = next(name for name in rows[0] if "device" in name)
    times = {}
    for row in rows:
        times[row["name"]] = times.get(row["name"], 0) + (row[column] or 0)
    return times, trace


def check_watch():
    for compiled in (False, True):
        times, trace = device_times(compiled)
        # The large part has sixteen times the work of the small one; backward has twice the work of forward.
        for kind in ("", " backward"):
            ratio = times["large" + kind] / times["small" + kind]
            print(f"compiled {compiled}: device time of large{kind} = {ratio:.1f} x small{kind}")
            assert 8 < ratio < 24, times
        ratio = times["large backward"] / times["large"]
        print(f"backward / forward = {ratio:.2f}")
        assert 1.4 < ratio < 3, times
        kernels = [row for row in trace.spans().rows() if row["device"] is not None]
        assert len(kernels) > 50, len(kernels)


def check_bench():
    a = torch.randn(4096, 4096, device="cuda")
    one = laptime.bench(lambda: a @ a, device="cuda")
    print(one)
    # 137 GFLOP in f32: with the device waited for, it cannot be faster than any GPU of today.
    assert one.median > 0.5, one.median
    print(laptime.ab(lambda: a @ a, lambda: (a @ a, a @ a), device="cuda"))


def check_course():
    module = torch.nn.Sequential(torch.nn.Embedding(512, 256), torch.nn.Linear(256, 512)).cuda()
    batch = generate_random_batch(4, 128, 512)
    print("module on cuda:", benchmark_forward(module, batch, 2, 5), benchmark_forward_backward(module, batch, 2, 5))
    model = create_model(MODEL_CONFIGS["small"], device="cuda")
    batch = generate_random_batch(4, 256)
    forward, both = benchmark_forward(model, batch, 2, 5), benchmark_forward_backward(model, batch, 2, 5)
    print("our model on cuda:", model, forward, both)
    assert 0 < forward[0] < both[0] < 0.2, (forward, both)


failed = 0
for check in (check_watch, check_bench, check_course):
    try:
        check()
        print("PASS", check.__name__, flush=True)
    except Exception as error:  # noqa: BLE001, the other checks still run
        failed += 1
        print("FAIL", check.__name__, type(error).__name__, error, flush=True)
sys.exit(min(failed, 1))
