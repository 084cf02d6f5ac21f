//! The Nano kit's profile of attention: its file, and the lines that it prints.

use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use serde_json::{Map, Value, json};

use crate::kit_files::{axis, fact, median_ms, mib, text};

/// The workload that the kit profiles so.
const WORKLOAD: &str = "attention";

/// The profile; none if other workloads are among the cases.
pub fn profile(answer: &Cases) -> Option<Value> {
    let first = answer.cases.first()?;
    if answer.cases.iter().any(|case| case.id.workload != WORKLOAD) {
        return None;
    }
    let config =
        ["heads", "kv_heads", "head_dim", "dtype", "pattern", "window", "global", "random", "random_per", "causal"];
    let config: Map<String, Value> = config.into_iter().map(|name| (name.to_owned(), axis(first, name))).collect();
    let results: Vec<Value> = answer.cases.iter().map(record).collect();
    Some(json!({
        "metadata": { "device": first.id.device, "batch_size": axis(first, "batch_size"), "config": config },
        "results": results,
    }))
}

fn record(case: &CaseFigures) -> Value {
    let mut record = Map::new();
    let mut add = |key: &str, value: Value| drop(record.insert(key.to_owned(), value));
    match &case.measured {
        Some(measured) => figures(case, measured, &mut add),
        None => {
            add("error", json!(case.outcome()));
            add("attention_type", axis(case, "attention"));
            add("seq_len", axis(case, "seq_len"));
            add("batch_size", axis(case, "batch_size"));
        }
    }
    Value::Object(record)
}

/// The keys of the kit first, then ours.
fn figures(case: &CaseFigures, measured: &MeasuredFigures, add: &mut impl FnMut(&str, Value)) {
    let of = |name: &str| axis(case, name);
    let metric = |name: &str| json!(measured.metric(name).map(|figures| figures.median));
    add("latency_ms", median_ms(measured));
    add("peak_memory_mb", json!(measured.peak_bytes.map(|bytes| mib(bytes as f64))));
    add("output_shape", json!([of("batch_size"), of("heads"), of("seq_len"), of("head_dim")]));
    add("attention_type", of("attention"));
    add("flops", fact(measured, "flops"));
    for (key, name) in
        [("seq_len", "seq_len"), ("batch_size", "batch_size"), ("n_heads", "heads"), ("head_dim", "head_dim")]
    {
        add(key, of(name));
    }
    add("sparsity_ratio", metric("sparsity"));
    add("connections", fact(measured, "connections"));
    let interval = measured.wall.interval;
    add("latency_low_ms", json!(interval.map(|ends| ends.low / 1e6)));
    add("latency_high_ms", json!(interval.map(|ends| ends.high / 1e6)));
    for name in ["build_ms", "tflop_s", "mass_kept", "output_error"] {
        add(name, metric(name));
    }
    for name in ["density", "dense_flops", "allowed_pairs", "executed_pairs", "kernel"] {
        add(name, fact(measured, name));
    }
    add("x_limit", json!(measured.limits.and_then(|limits| limits.x_limit)));
    for name in ["kv_heads", "dtype", "pattern", "causal"] {
        add(name, of(name));
    }
}

/// What the kit prints: a line a kind, under the length that it was measured at.
pub fn lines(answer: &Cases) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = String::new();
    for case in answer.cases.iter().filter(|case| case.id.workload == WORKLOAD) {
        let heading = format!("  Sequence length {}, batch size {}:", text(case, "seq_len"), text(case, "batch_size"));
        if heading != last {
            lines.push(heading.clone());
            last = heading;
        }
        let kind = text(case, "attention");
        lines.push(match &case.measured {
            Some(measured) => {
                let memory = measured.peak_bytes.map(|bytes| format!(", {:.1} MB", mib(bytes as f64)));
                format!("    + {kind}: {:.2} ms{}", measured.wall.median / 1e6, memory.unwrap_or_default())
            }
            None => format!("    - {kind}: {}", case.outcome()),
        });
    }
    lines
}
