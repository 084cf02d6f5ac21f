"""PyTorch's side of scripts/compare-pytorch: makes a model ready and, for each line that it reads, measures it once and
prints a line of JSON with the median and all takes.

    pytorch_peer.py course SIZE forward|forward_backward|step DTYPE DEVICE BATCH LENGTH
    pytorch_peer.py qwen3 MODEL decode|prefill eager|compiled
"""

import json
import statistics
import sys
import time

import torch

SECONDS = 1.0
WARM_UP = 3
QWEN3 = {  # hidden, layers, heads, FFN
    "Qwen3-0.6B": (1024, 28, 16, 3072),
    "Qwen3-4B": (2560, 36, 32, 9728),
}
COURSE = {  # vocabulary, hidden, layers, heads, KV heads, head size, FFN
    "tiny": (512, 64, 2, 4, 2, 16, 192),
    "small": (10000, 768, 12, 12, 12, 64, 3072),
    "medium": (10000, 1024, 24, 16, 16, 64, 4096),
    "large": (10000, 1280, 36, 20, 20, 64, 5120),
    "xl": (10000, 1600, 48, 25, 25, 64, 6400),
    "2.7B": (10000, 2560, 32, 32, 32, 80, 10240),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def takes(run, device):
    """Times calls of `run`, each synchronised at both ends, for some seconds and at least five of them."""
    for _ in range(WARM_UP):
        run()
    wait(device)
    times, began = [], time.perf_counter()
    while len(times) < 5 or (time.perf_counter() - began < SECONDS and len(times) < 200):
        start = time.perf_counter()
        run()
        wait(device)
        times.append(1e3 * (time.perf_counter() - start))
    return times


def without_tf32():
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.set_float32_matmul_precision("highest")
    assert not torch.backends.cuda.matmul.allow_tf32 and torch.get_float32_matmul_precision() == "highest"


def course(size, what, dtype, device, batch, length):
    """A pass of the course's decoder: `forward`, `forward_backward` or `step` (with AdamW)."""
    from course_model import Course

    vocab, *rest = COURSE[size]
    with torch.device(device):
        model = Course(vocab, *rest, context=int(length)).to(DTYPES[dtype])
        ids = torch.randint(0, vocab, (int(batch), int(length)))
        targets = torch.randint(0, vocab, (int(batch), int(length)))
    if what == "forward":
        model.eval()

        @torch.no_grad()
        def forward():
            model(ids)

        return lambda: takes(forward, device)
    optimizer = torch.optim.AdamW(model.parameters())

    def train():
        model.zero_grad(set_to_none=True)
        logits = model(ids)
        loss = torch.nn.functional.cross_entropy(logits.view(-1, vocab), targets.view(-1))
        loss.backward()
        if what == "step":
            optimizer.step()

    return lambda: takes(train, device)


def qwen3_model(name):
    from transformers import Qwen3Config, Qwen3ForCausalLM

    hidden, layers, heads, ffn = QWEN3[name]
    config = Qwen3Config(
        vocab_size=151936, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=8, head_dim=128, intermediate_size=ffn, max_position_embeddings=40960,
        rope_theta=1e6, tie_word_embeddings=True,
    )  # fmt: skip
    with torch.device("cuda"):
        torch.set_default_dtype(torch.bfloat16)
        return Qwen3ForCausalLM(config).eval()


def qwen3(name, test, how):
    model = qwen3_model(name)
    ids = torch.randint(0, 151936, (1, 512), device="cuda")

    @torch.no_grad()
    def prefill():
        model(ids, use_cache=True, logits_to_keep=1)

    if test == "prefill":
        return lambda: takes(prefill, "cuda")
    step = model if how == "eager" else torch.compile(model, mode="reduce-overhead", fullgraph=True)
    return lambda: decode(model, step, ids, how)


@torch.no_grad()
def decode(model, step, ids, how):
    """Times of single tokens after the prompt; the cache grows by one each, as in use."""
    from transformers import DynamicCache, StaticCache

    tokens = 64
    cache = DynamicCache() if how == "eager" else StaticCache(config=model.config, max_cache_len=1024)
    position = torch.arange(512, device="cuda")
    model(ids, past_key_values=cache, cache_position=position, logits_to_keep=1)
    token = torch.zeros((1, 1), dtype=torch.long, device="cuda")
    times = []
    for at in range(512, 512 + WARM_UP + tokens):
        position = torch.tensor([at], device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        out = step(token, past_key_values=cache, cache_position=position)
        token = out.logits[:, -1:].argmax(-1).clone()
        torch.cuda.synchronize()
        times.append(1e3 * (time.perf_counter() - start))
    return times[WARM_UP:]


def main():
    without_tf32()
    kind, *words = sys.argv[1:]
    measure = {"course": course, "qwen3": qwen3}[kind](*words)
    for _ in sys.stdin:
        times = measure()
        peak = torch.cuda.max_memory_allocated() / 2**20 if torch.cuda.is_available() else None
        print(json.dumps({"median_ms": statistics.median(times), "peak_mib": peak, "takes_ms": times}), flush=True)


if __name__ == "__main__":
    main()
