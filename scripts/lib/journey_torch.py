"""A small training loop in PyTorch on a GPU. Loading a batch keeps the GPU waiting."""

import time

import torch

model = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
data = torch.randn(256, 1024, device="cuda")


def load_batch():
    time.sleep(0.02)  # the planted fault
    return data


def step(batch):
    optimizer.zero_grad(set_to_none=True)
    torch.nn.functional.mse_loss(model(batch), batch).backward()
    optimizer.step()


for _ in range(150):
    step(load_batch())
torch.cuda.synchronize()
