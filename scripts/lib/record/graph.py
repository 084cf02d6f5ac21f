"""A captured CUDA graph of 50 products, replayed 400 times."""
import torch

a = torch.randn(512, 512, device="cuda")
b = a
torch.cuda.synchronize()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    for _ in range(3):
        torch.mm(a, a)
torch.cuda.synchronize()
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    for _ in range(50):
        b = torch.mm(a, b)
torch.cuda.nvtx.range_push("replays")
for _ in range(400):
    graph.replay()
torch.cuda.synchronize()
torch.cuda.nvtx.range_pop()
print("replayed")
