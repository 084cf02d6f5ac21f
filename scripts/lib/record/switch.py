"""A training loop that launches kernels from two threads (its own and autograd's): `switch.py SWITCHES [SECONDS]`.

The ranges `before` and `after` have 100 steps each. Between them recording is switched off and on while steps run, or
steps run for some seconds.
"""
import random
import sys
import threading
import time

import torch

from control import ask

layers = []
for _ in range(20):
    layers += [torch.nn.Linear(256, 256), torch.nn.GELU()]
model = torch.nn.Sequential(*layers).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, fused=True)
inputs = torch.randn(64, 256, device="cuda")


def steps(count):
    for _ in range(count):
        with torch.cuda.nvtx.range("step"):
            loss = model(inputs).square().mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
    torch.cuda.synchronize()


def fixed(name):
    torch.cuda.nvtx.range_push(name)
    steps(100)
    torch.cuda.nvtx.range_pop()


def switch(count):
    generator = random.Random(1)
    for _ in range(count):
        ask("stop")
        time.sleep(generator.uniform(0.001, 0.02))
        ask("start")
        time.sleep(generator.uniform(0.001, 0.02))


steps(20)
fixed("before")
switching = threading.Thread(target=switch, args=[int(sys.argv[1])])
switching.start()
end = time.monotonic() + float(sys.argv[2] if len(sys.argv) > 2 else 0)
while switching.is_alive() or time.monotonic() < end:
    steps(5)
fixed("after")
