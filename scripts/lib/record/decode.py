"""Eager decode of a Qwen3-0.6B with random weights, as a Hugging Face user writes it."""
import argparse
import json
import os
import random
import statistics
import subprocess
import time

import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

parser = argparse.ArgumentParser()
parser.add_argument("--tokens", type=int, default=120)
parser.add_argument("--profile", help="profile tokens 40 to 60 with torch.profiler and write its trace here")
parser.add_argument("--switch", choices=["laptime", "torch"], help="time windows with recording on and off")
parser.add_argument("--laptime", default="laptime")
parser.add_argument("--windows", type=int, default=30)
parser.add_argument("--large", action="store_true", help="large products instead of a decoder")
parser.add_argument("--kill-at", type=int, help="end with SIGKILL after this token")
parser.add_argument("--result", help="write figures here")
args = parser.parse_args()

torch.manual_seed(0)
torch.set_grad_enabled(False)
if args.large:
    a = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
else:
    config = Qwen3Config(
        vocab_size=151936, hidden_size=1024, intermediate_size=3072, num_hidden_layers=28, num_attention_heads=16,
        num_key_value_heads=8, head_dim=128, max_position_embeddings=4096, tie_word_embeddings=True,
    )
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("cuda"):
        model = Qwen3ForCausalLM(config).eval()


class Decoder:
    def __init__(self):
        if args.large:
            return
        self.cache = DynamicCache()
        prompt = torch.randint(0, 1000, (1, 64), device="cuda")
        self.token = model(prompt, past_key_values=self.cache, use_cache=True).logits[:, -1:].argmax(-1)

    def step(self):
        if args.large:
            for _ in range(10):
                torch.mm(a, a)
            torch.cuda.synchronize()
            return
        out = model(self.token, past_key_values=self.cache, use_cache=True)
        self.token = out.logits[:, -1:].argmax(-1)
        self.token.item()


def fixed_range(decoder):
    """Twenty tokens in one NVTX range with syncs on both sides: what both recorders count."""
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_push("fixed")
    for _ in range(20):
        torch.cuda.nvtx.range_push("token")
        decoder.step()
        torch.cuda.nvtx.range_pop()
    torch.cuda.synchronize()
    torch.cuda.nvtx.range_pop()


def timed(decoder, count):
    times = []
    for _ in range(count):
        start = time.perf_counter()
        decoder.step()
        times.append(1e3 * (time.perf_counter() - start))
    return statistics.median(times)


def switched():
    """Medians of windows with recording on and off, in random order, inside one process."""
    windows = ["on", "off"] * (args.windows // 2)
    random.Random(1).shuffle(windows)
    found = {"on": [], "off": []}
    decoder = Decoder()
    for number, state in enumerate(windows):
        if not args.large and number % 10 == 9:
            decoder = Decoder()
        profiler = None
        if args.switch == "laptime":
            subprocess.run([args.laptime, "record", "start" if state == "on" else "stop", str(os.getpid())], check=True,
                           stderr=subprocess.DEVNULL)
            time.sleep(0.15)
        elif state == "on":
            profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
            profiler.start()
        timed(decoder, 3)
        found[state].append(timed(decoder, 20))
        if profiler:
            profiler.stop()
    ratios = []
    generator = random.Random(2)
    for _ in range(2000):
        draw = {state: statistics.median(generator.choices(found[state], k=len(found[state]))) for state in found}
        ratios.append(draw["on"] / draw["off"] - 1)
    ratios.sort()
    median = {state: statistics.median(found[state]) for state in found}
    return {"on_ms": median["on"], "off_ms": median["off"], "overhead": median["on"] / median["off"] - 1,
            "low": ratios[50], "high": ratios[-51]}


decoder = Decoder()
for _ in range(5):
    decoder.step()
result = {}
if args.switch:
    result = switched()
else:
    start = time.perf_counter()
    for token in range(args.tokens):
        if token == 40:
            if args.profile:
                with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
                    fixed_range(decoder)
                profile.export_chrome_trace(args.profile)
            else:
                fixed_range(decoder)
        decoder.step()
        if args.kill_at == token:
            print(time.clock_gettime_ns(time.CLOCK_MONOTONIC), flush=True)
            os.kill(os.getpid(), 9)
    result = {"seconds": time.perf_counter() - start}
result["end"] = time.time()
if args.result:
    with open(args.result, "w") as file:
        json.dump(result, file)
print(json.dumps(result))
