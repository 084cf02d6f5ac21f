"""The course's decoder in PyTorch, from its formulas: RMSNorm, RoPE of neighbours, attention in three steps, SwiGLU.

Any model of our presets' shape: `Course(vocab, hidden, layers, heads, kv_heads, head_dim, ffn)`. Weights are random; only time
is compared with them.
"""

import math

import torch
from torch import nn


class RMSNorm(nn.Module):
    def __init__(self, width, eps=1e-5):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))
        self.eps = eps

    def forward(self, x):
        kind = x.dtype
        x = x.to(torch.float32)
        root = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return (x * root * self.weight).to(kind)


class Rope(nn.Module):
    def __init__(self, width, context, theta=10000.0):
        super().__init__()
        frequencies = theta ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.outer(torch.arange(context, dtype=torch.float64), frequencies)
        self.register_buffer("cosines", angles.cos().float(), persistent=False)
        self.register_buffer("sines", angles.sin().float(), persistent=False)

    def forward(self, x):
        length = x.shape[-2]
        cosines, sines = self.cosines[:length].to(x.dtype), self.sines[:length].to(x.dtype)
        first, second = x[..., 0::2], x[..., 1::2]
        turned = torch.stack((first * cosines - second * sines, first * sines + second * cosines), dim=-1)
        return turned.flatten(-2)


def attention(q, k, v, mask):
    """Scores of all pairs, softmax, weighted sum."""
    scores = torch.einsum("bhnd,bhmd->bhnm", q, k) / math.sqrt(q.shape[-1])
    scores = torch.where(mask, scores, float("-inf"))
    weights = torch.softmax(scores, dim=-1)
    return torch.einsum("bhnm,bhmd->bhnd", weights, v)


class Attention(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head_dim, rope, context):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, head_dim
        self.q = nn.Linear(hidden, heads * head_dim, bias=False)
        self.k = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.v = nn.Linear(hidden, kv_heads * head_dim, bias=False)
        self.output = nn.Linear(heads * head_dim, hidden, bias=False)
        self.rope = rope
        mask = torch.tril(torch.ones(context, context, dtype=torch.bool))
        self.register_buffer("mask", mask, persistent=False)

    def forward(self, x):
        batch, length, _ = x.shape
        split = lambda x, heads: x.view(batch, length, heads, self.head_dim).transpose(1, 2)
        q = self.rope(split(self.q(x), self.heads))
        k = self.rope(split(self.k(x), self.kv_heads))
        v = split(self.v(x), self.kv_heads)
        if self.kv_heads != self.heads:
            group = self.heads // self.kv_heads
            k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        mixed = attention(q, k, v, self.mask[:length, :length])
        return self.output(mixed.transpose(1, 2).reshape(batch, length, -1))


class SwiGLU(nn.Module):
    def __init__(self, hidden, ffn):
        super().__init__()
        self.gate = nn.Linear(hidden, ffn, bias=False)
        self.up = nn.Linear(hidden, ffn, bias=False)
        self.down = nn.Linear(ffn, hidden, bias=False)

    def forward(self, x):
        return self.down(nn.functional.silu(self.gate(x)) * self.up(x))


class Layer(nn.Module):
    def __init__(self, hidden, heads, kv_heads, head_dim, ffn, rope, context):
        super().__init__()
        self.attention_norm, self.ffn_norm = RMSNorm(hidden), RMSNorm(hidden)
        self.attention = Attention(hidden, heads, kv_heads, head_dim, rope, context)
        self.ffn = SwiGLU(hidden, ffn)

    def forward(self, x):
        x = x + self.attention(self.attention_norm(x))
        return x + self.ffn(self.ffn_norm(x))


class Course(nn.Module):
    def __init__(self, vocab, hidden, layers, heads, kv_heads, head_dim, ffn, context=512):
        super().__init__()
        self.embedding = nn.Embedding(vocab, hidden)
        rope = Rope(head_dim, context)
        shape = (hidden, heads, kv_heads, head_dim, ffn, rope, context)
        self.layers = nn.ModuleList(Layer(*shape) for _ in range(layers))
        self.norm = RMSNorm(hidden)
        self.head = nn.Linear(hidden, vocab, bias=False)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.norm(x))
