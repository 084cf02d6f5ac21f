//! The extras of `attention`: the profile of Nano XYZ and its output.

use std::io::Write;

use laptime_analyze::{CaseFigures, Cases, MeasuredFigures};
use laptime_bench::{Case, CaseResult};
use laptime_report::tables;
use serde_json::{Map, Value, json};

use crate::extras::files::{axis, fact, median_ms, mib, text, write_csv, write_nano_profile};
use crate::extras::{Command, Context, Extras, FlagSpec, Written, nano};

pub struct AttentionExtras;

impl Extras for AttentionExtras {
    fn workload(&self) -> &'static str {
        "attention"
    }

    fn flags(&self, command: Command) -> Vec<FlagSpec> {
        if command == Command::Bench { nano::FLAGS.to_vec() } else { Vec::new() }
    }

    fn begin(&self, context: &Context<'_>, _: &[Case], _: &mut dyn Write) -> anyhow::Result<()> {
        nano::note_no_sync(context);
        Ok(())
    }

    fn finish_bench(&self, context: &Context<'_>, results: &[CaseResult], out: &mut dyn Write) -> Written {
        let answer = laptime_analyze::cases(results, context.run.peaks.as_ref());
        if context.is_for_people && context.flags.is_compat() {
            writeln!(out)?;
            lines(&answer).iter().try_for_each(|line| writeln!(out, "{line}"))?;
        }
        let Some(profile) = profile(&answer) else { return Ok(Vec::new()) };
        let run = (context.run, results);
        let mut outside = write_nano_profile(profile, nano::ATTENTION_FILE, run, context.folder, context.flags)?;
        outside.extend(write_csv(&tables::cases(&answer, &[]), context.flags)?);
        Ok(outside)
    }

    fn profile_file(&self) -> Option<&'static str> {
        Some(nano::ATTENTION_FILE)
    }

    fn read_profile(&self, profile: &Value) -> Vec<CaseResult> {
        nano::attention(profile)
    }
}

/// The profile; none without cases.
fn profile(answer: &Cases) -> Option<Value> {
    let first = answer.cases.first()?;
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

/// The keys of Nano XYZ first, then ours.
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

/// The output of Nano XYZ: one line per kind of attention, grouped by sequence length.
fn lines(answer: &Cases) -> Vec<String> {
    let mut lines = Vec::new();
    let mut last = String::new();
    for case in &answer.cases {
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
