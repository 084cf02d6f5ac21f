"""One measurement of PyTorch, for scripts/compare-pytorch: prints a line of JSON with the median and all takes.

    pytorch_peer.py course SIZE forward DTYPE DEVICE BATCH LENGTH
    pytorch_peer.py qwen3 MODEL decode|prefill eager|compiled
"""

import json
import statistics
import sys
import time

import torch

SECONDS = 4.0
WARM_UP = 3
QWEN3 = {  # hidden, layers, heads, FFN
    "Qwen3-0.6B": (1024, 28, 16, 3072),
    "Qwen3-4B": (2560, 36, 32, 9728),
}
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def takes(run, device, warm_up=WARM_UP):
    """Times calls of `run`, each synchronised at both ends, for some seconds and at least five of them."""
    for _ in range(warm_up):
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


def course(size, _pass, dtype, device, batch, length):
    from course_model import CourseModel

    with torch.device(device):
        model = CourseModel(size, int(length)).to(DTYPES[dtype]).eval()
        ids = torch.randint(0, model.vocab, (int(batch), int(length)))
    with torch.no_grad():
        return takes(lambda: model(ids), device), 1


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
    with torch.no_grad():
        if test == "prefill":
            return takes(lambda: model(ids, use_cache=True, logits_to_keep=1), "cuda"), 1
        return decode(model, ids, how), 1


def decode(model, ids, how):
    """Times of single tokens behind the prompt; the cache grows by one each, as in use."""
    from transformers import DynamicCache, StaticCache

    tokens = 64
    cache = DynamicCache() if how == "eager" else StaticCache(config=model.config, max_cache_len=1024)
    step = model if how == "eager" else torch.compile(model, mode="reduce-overhead", fullgraph=True)
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
    times, per = {"course": course, "qwen3": qwen3}[kind](*words)
    print(json.dumps({"median_ms": statistics.median(times) / per, "takes_ms": times}))


if __name__ == "__main__":
    main()
