"""Cache to cache in plain formulas: what `crates/models/src/fuser` is held against.

Written from the formulas in `docs/c2c.md`, for tiny models, in 64 bits and without care for speed. A fuser is a list of
projectors, one a layer of the receiver; a projector is a dict of tensors under the names of its state dict.
"""

import math

import torch
import transformers

PATHS = ("key", "value")


def projector_shapes(sharer, receiver, hidden, inner, blocks):
    """Names and shapes of a projector's tensors; `sharer` and `receiver` are (heads, width of a head)."""
    heard, own, heads = math.prod(sharer), math.prod(receiver), receiver[0]

    def block(name, inner):
        return {f"{name}.norm.weight": (hidden,), f"{name}.w1.weight": (inner, hidden), f"{name}.w2.weight": (hidden, inner)}

    def linear(name, out, into):
        return {f"{name}.weight": (out, into), f"{name}.bias": (out,)}

    shapes = {}
    for path in PATHS:
        shapes |= linear(f"{path}_in", hidden, heard + own)
        shapes |= block(f"{path}_mlp1.blocks.0", inner)
        shapes |= block(f"{path}_scalar_mlp2.blocks.0", hidden)
        shapes |= linear(f"{path}_scalar_head", heads, hidden)
        for at in range(blocks - 2):
            shapes |= block(f"{path}_proj_mlp2.blocks.{at}", inner)
        shapes |= linear(f"{path}_proj_out", own, hidden)
        shapes[f"{path}_gate_logit"] = ()
    return shapes


def gelu(x):
    return 0.5 * x * (1 + torch.erf(x / math.sqrt(2)))


def norm(x, weight):
    return x / torch.sqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


def residual(weights, path, heard, own):
    """What is added to keys or values: `gate * w * P`. Both are (heads, tokens, width of a head)."""

    def get(name):
        return weights[f"{path}_{name}"].double()

    def linear(name, x):
        return x @ get(f"{name}.weight").T + get(f"{name}.bias")

    def block(name, x):
        inside = norm(x, get(f"{name}.norm.weight")) @ get(f"{name}.w1.weight").T
        return x + gelu(inside) @ get(f"{name}.w2.weight").T

    def flat(x):
        return x.transpose(0, 1).reshape(x.shape[1], -1)

    heads, tokens, width = own.shape
    stream = block("mlp1.blocks.0", linear("in", torch.cat([flat(heard), flat(own)], -1)))
    value = stream
    at = 0
    while f"{path}_proj_mlp2.blocks.{at}.norm.weight" in weights:
        value = block(f"proj_mlp2.blocks.{at}", value)
        at += 1
    value = linear("proj_out", value).view(tokens, heads, width).transpose(0, 1)
    weight = torch.sigmoid(linear("scalar_head", block("scalar_mlp2.blocks.0", stream)))
    gate = 1.0 if weights[f"{path}_gate_logit"].item() > 0 else 0.0
    return gate * weight.T.unsqueeze(-1) * value


def last_aligned(receiver_layers, sharer_layers):
    return [min(max(layer + sharer_layers - receiver_layers, 0), sharer_layers - 1) for layer in range(receiver_layers)]


def k_nearest(receiver_layers, sharer_layers):
    """The nearest on [0, 1]; the lower of two that are as near."""
    share = lambda at, count: at / (count - 1) if count > 1 else 0.0
    distance = lambda layer, other: abs(share(other, sharer_layers) - share(layer, receiver_layers))
    nearest = lambda layer: min(range(sharer_layers), key=lambda other: distance(layer, other))
    return [nearest(layer) for layer in range(receiver_layers)]


class Model:
    """A model of `transformers` with a cache that can be read and overwritten."""

    def __init__(self, model):
        self.model = model.double().eval()
        self.clear()

    def clear(self):
        self.cache = transformers.DynamicCache(config=self.model.config)

    def run(self, ids):
        """Runs tokens behind the cache; the logits of the last one."""
        with torch.no_grad():
            out = self.model(input_ids=torch.tensor([ids]), past_key_values=self.cache, use_cache=True)
        return out.logits[0, -1]

    def layers(self):
        return len(self.cache.layers)

    def length(self):
        return self.cache.get_seq_length()

    def read(self, layer, path, start, end):
        kept = self.cache.layers[layer]
        return (kept.keys if path == "key" else kept.values)[0, :, start:end].clone()

    def write(self, layer, path, start, numbers):
        kept = self.cache.layers[layer]
        (kept.keys if path == "key" else kept.values)[0, :, start : start + numbers.shape[1]] = numbers


def fuse(receiver, sharers, fusers, start, end, parallel):
    """Fuses positions. `fusers` has (projectors, the sharer's layer for each) for each sharer."""
    for layer in range(receiver.layers()):
        for path in PATHS:
            clean = receiver.read(layer, path, start, end)
            fused = clean
            for sharer, (projectors, heard_layers) in zip(sharers, fusers):
                heard = sharer.read(heard_layers[layer], path, start, end)
                own = clean if parallel else fused
                fused = fused + residual(projectors[layer], path, heard, own)
            receiver.write(layer, path, start, fused)


def generate(receiver, sharers, fusers, ids, new, parallel=False, include_response=False):
    """All but the last token fused, the last one plain, then the likeliest token each time.

    Gives the fused cache (before the last token), the logits of the last token, the tokens that follow, and the least
    margin between the best and the second.
    """
    for model in [receiver, *sharers]:
        model.clear()
    last = len(ids) - 1
    for sharer in sharers:
        sharer.run(ids if include_response else ids[:last])
    receiver.run(ids[:last])
    fuse(receiver, sharers, fusers, 0, last, parallel)
    cache = [[receiver.read(layer, path, 0, last) for path in PATHS] for layer in range(receiver.layers())]
    first = logits = receiver.run(ids[last:])
    tokens, margin = [], math.inf
    while True:
        if include_response:
            end = receiver.length()
            fuse(receiver, sharers, fusers, end - 1, end, parallel)
        best = logits.topk(2)
        margin = min(margin, (best.values[0] - best.values[1]).item())
        tokens.append(best.indices[0].item())
        if len(tokens) == new:
            return cache, first, tokens, margin
        logits = receiver.run(tokens[-1:])
        if include_response:
            for sharer in sharers:
                sharer.run(tokens[-1:])
