"""A training step with workers that load data, as a PyTorch user writes it."""
import time

import torch
from torch.utils.data import DataLoader, Dataset


class Images(Dataset):
    def __len__(self):
        return 4096

    def __getitem__(self, at):
        return decode(at)


def decode(at):
    # Stands for decoding an image: about 4 ms of Python and NumPy-like work.
    end = time.perf_counter() + 0.004
    while time.perf_counter() < end:
        sum(range(500))
    return torch.full((3, 64, 64), float(at % 7)), at % 10


def main(workers, steps):
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(32 * 62 * 62, 10)
    ).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    loader = DataLoader(Images(), batch_size=32, num_workers=workers, pin_memory=True)
    batches = iter(loader)
    for _ in range(steps):
        torch.cuda.nvtx.range_push("step")
        images, labels = next(batches)
        loss = torch.nn.functional.cross_entropy(model(images.cuda(non_blocking=True)), labels.cuda())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        loss.item()
        torch.cuda.nvtx.range_pop()
    print("trained", steps, "steps")


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]), int(sys.argv[2]))
