"""PyTorch's side of scripts/compare-attention: attention alone, by CUDA events, with a cold second-level cache.

    attention_peer.py measure [LENGTH...]     one line of JSON a measurement
    attention_peer.py table PEER OURS         both sides' lines as one table of Markdown, with ratios

Batch 1, 16 heads of 64, bf16, causal. SDPA as PyTorch chooses, then each of its backends alone; naive attention, which
stores the scores; FlexAttention, compiled, with a block mask of a window and 64 global columns: the predicate of our
sparse pattern without its random columns.
"""

import json
import statistics
import sys

HEADS, DIM, GLOBAL = 16, 64, 64
WINDOWS = (256, 512)
WARM_UP, ITERATIONS = 3, 21
# Written before each take, and not timed: more than the cache holds, and long enough for the host to be ahead.
FLUSHED_BYTES = 1 << 30
LENGTHS = (1024, 2048, 4096, 8192, 16384)


def cold_ms(run, flush):
    """Milliseconds of each take, by events around it alone."""
    import torch

    for _ in range(WARM_UP):
        run()
    times = []
    for _ in range(ITERATIONS):
        torch.cuda.synchronize()
        flush.zero_()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end))
    return times


def kernels_of(run):
    """The names of the kernels of one call, the longest first."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    run()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        run()
        torch.cuda.synchronize()
    events = sorted(profiler.key_averages(), key=lambda event: -event.device_time_total)
    return [event.key for event in events if event.device_time_total > 0]


def tell(kind, length, times, **more):
    row = {"kind": kind, "seq_len": length, "median_ms": statistics.median(times), "min_ms": min(times), **more}
    print(json.dumps(row), flush=True)


def attempt(kind, length, run, flush, **more):
    """Measures, or returns why that failed."""
    import torch

    try:
        names = kernels_of(run)
        tell(kind, length, cold_ms(run, flush), kernels=names[:3], **more)
    except (RuntimeError, torch.cuda.OutOfMemoryError) as error:
        print(json.dumps({"kind": kind, "seq_len": length, "median_ms": None, "reason": str(error).splitlines()[0]}))


def naive(q, k, v, mask):
    scores = (q @ k.transpose(-1, -2) / DIM**0.5).masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ v


def flex(length, window, q, k, v):
    import torch
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    def keeps(batch, head, row, key):
        return (row >= key) & ((row - key <= window) | (key < GLOBAL))

    mask = create_block_mask(keeps, None, None, length, length, device="cuda")
    # Compiled code is kept for a few shapes only, and what comes after them would run uncompiled.
    torch._dynamo.reset()
    compiled = torch.compile(flex_attention, dynamic=False, fullgraph=True)
    return lambda: compiled(q, k, v, block_mask=mask)


def measure(lengths):
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel

    sdpa = torch.nn.functional.scaled_dot_product_attention
    flush = torch.empty(FLUSHED_BYTES // 4, dtype=torch.int32, device="cuda")
    backends = ("FLASH_ATTENTION", "CUDNN_ATTENTION", "EFFICIENT_ATTENTION")
    print(json.dumps({"kind": "machine", "torch": torch.__version__, "gpu": torch.cuda.get_device_name()}), flush=True)
    for length in lengths:
        q, k, v = (torch.randn(1, HEADS, length, DIM, dtype=torch.bfloat16, device="cuda") for _ in range(3))
        attempt("sdpa", length, lambda: sdpa(q, k, v, is_causal=True), flush)
        for backend in backends:
            with sdpa_kernel([getattr(SDPBackend, backend)]):
                attempt(f"sdpa {backend}", length, lambda: sdpa(q, k, v, is_causal=True), flush)
        for window in WINDOWS:
            attempt(f"flex {window}", length, flex(length, window, q, k, v), flush)
        mask = torch.ones(length, length, dtype=torch.bool, device="cuda").triu(1)
        attempt("naive", length, lambda: naive(q, k, v, mask), flush)
        del mask


def rows_of(path):
    with open(path) as file:
        return [json.loads(line) for line in file if line.startswith("{")]


def table(peer_path, our_path):
    """Our results by `attention` and `seq_len`: dense for SDPA, sparse for FlexAttention."""
    peers = {(row["kind"], row["seq_len"]): row for row in rows_of(peer_path) if "seq_len" in row}
    print("| N | kind | laptime, ms | by | peer | peer, ms | ratio |\n| ---: | --- | ---: | --- | --- | ---: | ---: |")
    for row in rows_of(our_path):
        # Without device time a row has the host's, which counts the launch too.
        by = "device" if row.get("device_ms") is not None else "host"
        time = row["device_ms"] if by == "device" else row.get("median_ms")
        kinds = {"dense": ["sdpa"], "sparse": ["flex 256", "flex 512"], "naive": ["naive"]}
        for kind in kinds.get(row.get("attention"), []):
            peer = peers.get((kind, row["seq_len"]), {})
            theirs = peer.get("median_ms")
            if time is None or theirs is None:
                continue
            name = f"{kind} ({peer['kernels'][0][:40]})" if peer.get("kernels") else kind
            ours = f"| {row['seq_len']} | {row['attention']} | {time:.3f} | {by}"
            print(f"{ours} | {name} | {theirs:.3f} | {time / theirs:.2f} |")


def main():
    what, *words = sys.argv[1:]
    if what == "table":
        table(*words)
    else:
        measure([int(word) for word in words] or LENGTHS)


if __name__ == "__main__":
    main()
