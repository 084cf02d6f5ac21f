#!/usr/bin/env python3
"""Writes the made-up runs in this folder: `python3 make.py`. The same bytes at every call."""

import json
import math
import pathlib

HERE = pathlib.Path(__file__).parent
ENVIRONMENT = "8d3f0c"


def takes(around, count, seed):
    """Takes around a time that differ by up to 2 %."""
    return [round(around * (1 + 0.02 * ((take * 7 + seed * 3) % 11 - 5) / 10)) for take in range(count)]


def settings(cold=False, warmup="found"):
    return {"warmup": warmup, "stop": {"takes": 12}, "runs": 1, "isolate": cold, "timeout_ns": None, "cold": cold,
            "timing": "host", "depth": "pipeline"}


def run(workload, started, command, **more):
    machine = {"cpu": "Made-up CPU", "cpus": 2, "cores": 1, "cpu_quota": None, "cache_bytes": 33554432,
               "memory_bytes": 8589934592, "governor": "performance", "boost": True, "virtual_machine": None,
               "os": "Linux", "kernel": "6.1", "clock_source": "tsc", "gpus": []}
    build = {"version": "0.1.0", "commit": "77c53e8", "profile": "release", "opt_level": "3",
             "debug_assertions": False, "target": "x86_64-unknown-linux-gnu", "binary": None}
    peaks = {"schema": 1, "machine": "", "device": "cpu", "measured": "2026-11-15T09:00:00Z",
             "flops": [{"dtype": "f32", "flops_s": 1.2e11, "low": 1.18e11, "high": 1.22e11, "size": 1024, "threads": 2}],
             "bandwidth": [{"traffic": "read", "bytes_s": 2e10, "low": 1.9e10, "high": 2.1e10, "bytes": 1 << 28, "threads": 2}]}
    return {"schema": 1, "command": command.split(), "started": started, "workload": workload, "device": "cpu", "axes": [],
            "settings": settings(), "environment_fingerprint": ENVIRONMENT,
            "environment": {"machine": machine, "build": build, "load": 0.1, "available_bytes": 6442450944},
            "peaks": peaks, **more}


def result(workload, case, outcome):
    return {"schema": 1, "workload": workload, "device": "cpu", "case": case, "run": 0, "environment": ENVIRONMENT, **outcome}


def measured(wall_ns, peak_bytes, metrics=(), facts=(), work=None, warmup_ns=()):
    found = {"outcome": "measured", "prepare_ns": 7_000_000, "check_ns": 2 * wall_ns[0], "warmup_ns": list(warmup_ns),
             "steady": "found", "wall_ns": wall_ns, "metrics": list(metrics), "stopped": {"takes": len(wall_ns)},
             "peak_bytes": peak_bytes, "peak_rss_bytes": None, "facts": list(facts)}
    return {**found, **({"work": work} if work else {})}


def metric(name, better, values):
    return {"name": name, "better": better, "values": values}


def attention():
    """Dense grows as N², sparse as N with more for each; naive does not fit at the greatest length; one sparse case failed."""
    results = []
    for length in [512, 1024, 2048, 4096]:
        pairs = length * (length + 1) // 2
        kept = sum(min(row + 1, 352) for row in range(length))
        for kind in ["dense", "sparse", "naive"]:
            case = {"attention": kind, "seq_len": length, "batch_size": 1, "heads": 16, "head_dim": 64, "dtype": "f32",
                    "pattern": "small"}
            entries = kept if kind == "sparse" else pairs
            nanos = {"dense": 80 * pairs, "sparse": 130 * kept, "naive": 110 * pairs}[kind]
            bytes_ = 16384 * length + {"dense": 0, "sparse": 900 * length, "naive": 128 * length * length}[kind]
            outcome = measured(
                takes(nanos, 12, length // 512), bytes_,
                [metric("sparsity", "higher", [1 - entries / pairs] * 12)]
                + ([metric("mass_kept", "higher", [entries / pairs] * 12), metric("output_error", "lower", [0.3] * 12),
                    metric("build_ms", "lower", [0.01 * length / 512] * 12)] if kind == "sparse" else []),
                [{"name": "connections", "value": entries}],
                {"flops": 4096 * entries, "dtype": "f32", "bytes": 16384 * length, "traffic": "read"})
            if (kind, length) == ("naive", 4096):
                outcome = {"outcome": "out_of_memory", "needed_bytes": 12884901888, "available_bytes": 6442450944}
            if (kind, length) == ("naive", 512):
                outcome = {"outcome": "failed", "errors": ["the check failed", "row 3 is 0.31, expected 0.29"], "wall_ns": []}
            results.append(result("attention", case, outcome))
    command = "laptime bench attention --seq-lens 512-4096*2 --attention-types dense,sparse,naive --takes 12"
    return run("attention", "2026-11-15T09:30:00Z", command), results


def model():
    """A model over three lengths, forward and as a step that learns; one length is too long."""
    results = []
    for length in [256, 512, 1024, 2048]:
        for name, times in [("forward", 1), ("step", 3.2)]:
            case = {"model": "decoder_tiny", "test": f"{name}{length}", "pass_type": name, "seq_len": length,
                    "cache_tokens": 0, "batch_size": 1, "dtype": "f32", "attention": "dense"}
            flops = int((1.02e8 * length + 6144 * length * length) * (1 if name == "forward" else 3))
            nanos = times * (9e5 * length + 80 * length * length)
            metrics = [metric("tok_s", "higher", [length / (nano / 1e9) for nano in takes(nanos, 12, length // 256)])]
            if name == "step":
                metrics.append(metric("loss", "lower", [round(10.8 * math.exp(-0.05 * step), 4) for step in range(12)]))
            outcome = measured(
                takes(nanos, 12, length // 256), int((204e6 + 300e3 * length) * times), metrics,
                [{"name": "parameters", "value": 50931712}, {"name": "weight_bytes", "value": 203726848}],
                {"flops": flops, "dtype": "f32", "bytes": 203726848, "traffic": "read"})
            if length == 2048:
                outcome = {"outcome": "skipped", "reason": "2048 tokens are longer than the 1024 that `decoder_tiny` knows"}
            results.append(result("model", case, outcome))
    command = "laptime bench model --presets decoder_tiny --seq-lens 256-2048*2 --pass-type forward,step --takes 12"
    return run("model", "2026-11-15T09:40:00Z", command), results


def warmup():
    """Three fresh processes whose first takes are slow."""
    case = {"model": "decoder_tiny", "test": "forward256", "pass_type": "forward", "seq_len": 256, "dtype": "f32"}
    results = []
    for process in range(3):
        wall_ns = takes(2.4e8, 30, process)
        wall_ns[0], wall_ns[1] = 900_000_000 + 10_000_000 * process, 310_000_000
        results.append({**result("model", case, measured(wall_ns, 204_000_000)), "run": process})
    more = {"settings": {**settings(cold=True, warmup={"takes": 0}), "runs": 3}}
    return run("model", "2026-11-15T09:50:00Z", "laptime warmup model --presets decoder_tiny --seq-len 256", **more), results


for name, (of_run, results) in {"attention": attention(), "model": model(), "warmup": warmup()}.items():
    folder = HERE / name
    folder.mkdir(exist_ok=True)
    (folder / "run.json").write_text(json.dumps(of_run, indent=2) + "\n")
    lines = [json.dumps(line, separators=(",", ":")) for line in results]
    (folder / "results.jsonl").write_text("\n".join(lines) + "\n")
