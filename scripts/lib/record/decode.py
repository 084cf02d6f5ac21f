"""Eager decode of a Qwen3-0.6B with random weights, as a Hugging Face user writes it."""
import argparse
import gc
import json
import os
import random
import statistics
import time

import torch
from transformers import DynamicCache, Qwen3Config, Qwen3ForCausalLM

from control import ask

parser = argparse.ArgumentParser()
parser.add_argument("--tokens", type=int, default=120)
parser.add_argument("--profile", help="profile tokens 40 to 60 with torch.profiler and write its trace here")
parser.add_argument("--seconds", type=float, help="decode for this long instead of --tokens")
parser.add_argument("--switch", help="time pairs of blocks with a profiler off and on: laptime, torch or both, with a comma")
parser.add_argument("--pairs", type=int, default=60)
parser.add_argument("--large", action="store_true", help="large products instead of a decoder")
parser.add_argument("--kill-at", type=int, help="end with SIGKILL after this token")
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


BLOCK_SECONDS = 0.25
WARM_UP = 2
# A phase ends after this time, with the pairs that it has.
PHASE_SECONDS = 35


def seconds_per_step(steps):
    start = time.perf_counter()
    for _ in range(steps):
        decoder.step()
    return (time.perf_counter() - start) / steps


class Laptime:
    def start(self):
        ask("start")

    def stop(self):
        ask("stop")


class TorchProfiler:
    """torch.profiler with CUDA activities alone."""

    def start(self):
        self.profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA])
        self.profiler.start()

    def stop(self):
        self.profiler.stop()


def switched(profiler):
    """Pairs of adjacent blocks of equal work, with the profiler off and on in alternating order."""
    global decoder
    profiler.start()
    seconds_per_step(3)
    profiler.stop()
    steps = max(3, round(BLOCK_SECONDS / seconds_per_step(5)))
    pairs, end = [], time.perf_counter() + PHASE_SECONDS
    while len(pairs) < args.pairs and time.perf_counter() < end:
        # A fresh cache now and then: attention takes longer with every token.
        if len(pairs) % 10 == 0:
            decoder = Decoder()
        pair = {}
        for is_on in (False, True) if len(pairs) % 2 else (True, False):
            if is_on:
                profiler.start()
            seconds_per_step(WARM_UP)
            pair[is_on] = seconds_per_step(steps)
            if is_on:
                profiler.stop()
        pairs.append(pair)
    ratios = [pair[True] / pair[False] - 1 for pair in pairs]
    generator = random.Random(2)
    draws = sorted(statistics.median(generator.choices(ratios, k=len(ratios))) for _ in range(2000))
    return {"overhead": statistics.median(ratios), "low": draws[50], "high": draws[-51], "pairs": len(pairs), "steps": steps,
            "off_ms": 1e3 * statistics.median(pair[False] for pair in pairs),
            "on_ms": 1e3 * statistics.median(pair[True] for pair in pairs)}


decoder = Decoder()
for _ in range(5):
    decoder.step()
result = {}
if args.switch:
    # Laptime comes first: it steps aside when torch.profiler starts.
    gc.disable()
    profilers = {"laptime": Laptime, "torch": TorchProfiler}
    result = {name: switched(profilers[name]()) for name in args.switch.split(",")}
elif args.seconds:
    start = time.perf_counter()
    while time.perf_counter() < start + args.seconds:
        decoder = Decoder()
        for _ in range(100):
            decoder.step()
            if time.perf_counter() >= start + args.seconds:
                break
    result = {"seconds": time.perf_counter() - start}
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
print(json.dumps(result))
