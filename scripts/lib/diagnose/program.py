"""PyTorch programs with a planted fault: a training loop, and a decode loop that replays a CUDA graph.

    program.py LOOP FAULT [STEPS]       runs one program; prints its time per step as JSON

LOOP is `training` or `decode`. FAULT is `healthy`, `item`, `loading`, `pageable`, `tiny`, `allocation` or `synchronize`.
`fixed-loading` and `fixed-pageable` are the fixed programs where the healthy one does less work; in `ready-loading` the batches
were loaded before. `float32` has weights of twice the bytes. Every step is an NVTX range `step`.
"""
import itertools
import json
import sys
import time
import zlib

import torch

WIDTH, BATCH, LAYERS = 2048, 16384, 8
BLOB = zlib.compress(bytes(range(256)) * 4096, 6)


def host_work(seconds):
    """Python code that needs no result of the GPU: logging, detokenizing."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


class Images(torch.utils.data.Dataset):
    """Every item is decoded: about 10 ms for a batch of 8, which takes longer than a step on the GPU."""

    def __len__(self):
        return 4096

    def __getitem__(self, at):
        for _ in range(2):
            zlib.decompress(BLOB)
        return torch.zeros(BATCH // 8, 64)


def batches(workers):
    """Batches of 8 items, endlessly."""
    more = {"num_workers": workers, "pin_memory": True}
    if workers:
        more |= {"persistent_workers": True, "prefetch_factor": 4}
    loader = torch.utils.data.DataLoader(Images(), batch_size=8, **more)
    while True:
        yield from loader


class Training:
    host = 0.0015

    def __init__(self, fault):
        self.fault = fault
        layers = [torch.nn.Linear(64, WIDTH)]
        for _ in range(LAYERS):
            layers += [torch.nn.Linear(WIDTH, WIDTH), torch.nn.GELU()]
        self.model = torch.nn.Sequential(*layers, torch.nn.Linear(WIDTH, 1)).cuda().bfloat16()
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-4, fused=True)
        self.input = torch.zeros(BATCH, 64, device="cuda", dtype=torch.bfloat16)
        self.small = torch.zeros(1024, device="cuda")
        loading = {"loading": 0, "fixed-loading": 8, "ready-loading": 8}
        self.loader = batches(loading[fault]) if fault in loading else None
        if fault == "ready-loading":
            self.loader = itertools.cycle(list(itertools.islice(self.loader, 16)))
        self.large = upload(fault, 96 << 20)

    def step(self):
        inputs = self.input
        if self.loader is not None:
            inputs = next(self.loader).reshape(BATCH, 64).cuda(non_blocking=True).bfloat16()
        if self.large is not None:
            self.large.copy()
        loss = self.model(inputs).float().square().mean()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        self.optimizer.step()
        plant(self.fault, loss, self.small, 800)
        host_work(self.host)


class Decode:
    host = 0.0003

    def __init__(self, fault):
        self.fault = fault
        dtype = torch.float32 if fault == "float32" else torch.bfloat16
        # The graph reads them, so they live as long as it does.
        self.weights = [torch.randn(8192, 8192, device="cuda", dtype=dtype) / 90 for _ in range(30)]
        self.state = torch.ones(1, 8192, device="cuda", dtype=dtype)
        self.small = torch.zeros(1024, device="cuda")
        self.large = upload(fault, 8 << 20)

        def forward():
            hidden = self.state
            for weight in self.weights:
                hidden = hidden @ weight
            if fault == "tiny":
                for _ in range(400):
                    self.small.add_(1e-3)
            self.token = hidden.argmax()

        side = torch.cuda.Stream()
        with torch.cuda.stream(side):
            forward()
        torch.cuda.current_stream().wait_stream(side)
        torch.cuda.synchronize()
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            forward()

    def step(self):
        if self.large is not None:
            self.large.copy()
        self.graph.replay()
        plant(self.fault if self.fault != "tiny" else "healthy", self.token, self.small, 0)
        host_work(self.host)


class Upload:
    """A copy per step: from pageable memory, or from pinned memory on a stream of its own."""

    def __init__(self, is_pinned, count):
        self.source = torch.zeros(count // 4, pin_memory=is_pinned)
        self.target = torch.zeros(count // 4, device="cuda")
        self.stream = torch.cuda.Stream() if is_pinned else torch.cuda.current_stream()

    def copy(self):
        with torch.cuda.stream(self.stream):
            self.target.copy_(self.source, non_blocking=True)


def upload(fault, count):
    return Upload(fault == "fixed-pageable", count) if "pageable" in fault else None


def plant(fault, value, small, tiny):
    """The fault at the end of a step."""
    if fault == "item":
        value.item()
    elif fault == "synchronize":
        torch.cuda.synchronize()
    elif fault == "tiny":
        for _ in range(tiny):
            small.add_(1e-3)
    elif fault == "allocation":
        buffers = [torch.empty(64 << 20, dtype=torch.uint8, device="cuda") for _ in range(4)]
        del buffers
        torch.cuda.empty_cache()


def build(loop, fault):
    program = {"training": Training, "decode": Decode}[loop](fault)
    for _ in range(10):
        program.step()
    torch.cuda.synchronize()
    return program


def run(program, steps):
    """Seconds per step."""
    start = time.perf_counter()
    for _ in range(steps):
        torch.cuda.nvtx.range_push("step")
        program.step()
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / steps


if __name__ == "__main__":
    loop, fault = sys.argv[1:3]
    steps = int(sys.argv[3]) if len(sys.argv) > 3 else 100
    print(json.dumps({"seconds": run(build(loop, fault), steps)}))
