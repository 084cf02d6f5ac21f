//! Reads profiles of Nano XYZ as results: one iteration per case, because Nano XYZ measured one.

use laptime_trace::run::{
    AxisValue, Better, Case, CaseResult, Fact, Measured, Metric, Outcome, Run, Steady, StopReason,
};
use serde_json::Value;

use super::{COMPAT, COMPAT_FILES, Context, FlagSpec};

pub const ATTENTION_FILE: &str = "attention_profile.json";
pub const MODEL_FILE: &str = "model_profile.json";

/// The key under which profiles written by Laptime contain the run itself; the other keys have one figure per case.
pub const OWN_KEY: &str = "laptime";

/// A flag of Nano XYZ that has no effect here.
pub const NO_SYNC: FlagSpec = FlagSpec { name: "no-sync", alias: None, value: None, help: None };

const NO_SYNC_NOTE: &str = "note: `--no-sync` has no effect: iterations are synchronised at both ends, or their \
                                       times would be wrong; `laptime profile … --timing host,sync` shows the difference";

/// The flags of workloads that write a profile of Nano XYZ.
pub const FLAGS: [FlagSpec; 5] = [
    COMPAT,
    COMPAT_FILES,
    FlagSpec::path(
        "output",
        "FILE",
        "Also write the table (`.csv`) or the profile in the format of Nano XYZ (`.json`) to this file",
    ),
    FlagSpec::path("output-dir", "DIR", "Also write the profile in the format of Nano XYZ into this folder"),
    NO_SYNC,
];

pub fn note_no_sync(context: &Context<'_>) {
    if context.flags.has(NO_SYNC.name) {
        context.screen.say(NO_SYNC_NOTE);
    }
}

/// The run of a profile, if Laptime wrote it.
pub fn own_run(profile: &Value) -> Option<(Run, Vec<CaseResult>)> {
    let own = profile.get(OWN_KEY)?;
    let run = serde_json::from_value(own["run"].clone()).ok()?;
    Some((run, serde_json::from_value(own["results"].clone()).ok()?))
}

/// Metrics that profiles written by Laptime have in addition.
const METRICS: [(&str, Better); 4] = [
    ("build_ms", Better::Lower),
    ("tflop_s", Better::Higher),
    ("mass_kept", Better::Higher),
    ("output_error", Better::Lower),
];

pub fn attention(profile: &Value) -> Vec<CaseResult> {
    let result = |record: &Value| {
        let axes = [
            ("attention", "attention_type"),
            ("seq_len", "seq_len"),
            ("batch_size", "batch_size"),
            ("heads", "n_heads"),
            ("head_dim", "head_dim"),
            ("dtype", "dtype"),
            ("pattern", "pattern"),
        ];
        let outcome = outcome(record, attention_metrics(record), Vec::new());
        CaseResult::new("attention", device(profile), case(profile, record, &axes), 0, "", outcome)
    };
    records(profile).map(result).collect()
}

pub fn models(profile: &Value) -> Vec<CaseResult> {
    let result = |record: &Value| {
        let axes = [("model", "preset"), ("pass_type", "mode"), ("seq_len", "seq_len"), ("batch_size", "batch_size")];
        let loss = metric("loss", Better::Lower, record["loss"].as_f64());
        let facts = facts(&profile["model_sizes"][record["preset"].as_str().unwrap_or_default()]);
        let outcome = outcome(record, loss.into_iter().collect(), facts);
        CaseResult::new("model", device(profile), case(profile, record, &axes), 0, "", outcome)
    };
    records(profile).map(result).collect()
}

fn records(profile: &Value) -> impl Iterator<Item = &Value> {
    profile["results"].as_array().into_iter().flatten().filter(|record| record.is_object())
}

fn device(profile: &Value) -> &str {
    profile["metadata"]["device"].as_str().unwrap_or_default()
}

/// The axes and the keys that contain their values; the batch size may be in the metadata only.
fn case(profile: &Value, record: &Value, axes: &[(&str, &str)]) -> Case {
    let value = |(axis, key): &(&str, &str)| {
        let of_run = Some(&profile["metadata"][key]).filter(|_| *axis == "batch_size");
        let found = axis_value(&record[key]).or_else(|| axis_value(of_run?))?;
        Some(((*axis).to_owned(), found))
    };
    Case::new(axes.iter().filter_map(value).collect())
}

fn axis_value(value: &Value) -> Option<AxisValue> {
    serde_json::from_value(value.clone()).ok()
}

/// The outcome of a record: it has a latency or an error.
fn outcome(record: &Value, metrics: Vec<Metric>, facts: Vec<Fact>) -> Outcome {
    // A training step that was measured alone has its time under its own key.
    let latency = record["latency_ms"].as_f64().or_else(|| record["step_ms"].as_f64());
    match latency.filter(|latency| *latency > 0.0) {
        Some(latency) => Outcome::Measured(Measured {
            wall_ns: vec![(latency * 1e6) as u64],
            steady: Steady::NotChecked,
            stopped: StopReason::Iterations(1),
            peak_bytes: record["peak_memory_mb"].as_f64().map(|megabytes| (megabytes * f64::from(1 << 20)) as u64),
            metrics,
            facts,
            ..Measured::default()
        }),
        None => unmeasured(record["error"].as_str().unwrap_or("the record has no latency")),
    }
}

fn unmeasured(error: &str) -> Outcome {
    let lower = error.to_lowercase().replace('_', " ");
    if lower.contains("out of memory") || lower == "oom" {
        return Outcome::OutOfMemory { needed_bytes: None, available_bytes: None };
    }
    if lower == "skipped" {
        return Outcome::Skipped { reason: "the profile gives no reason".to_owned() };
    }
    Outcome::Failed { errors: vec![error.to_owned()], wall_ns: Vec::new() }
}

fn metric(name: &str, better: Better, value: Option<f64>) -> Option<Metric> {
    value.map(|value| Metric { name: name.to_owned(), better, values: vec![Some(value)] })
}

fn attention_metrics(record: &Value) -> Vec<Metric> {
    let sparsity = metric("sparsity", Better::Higher, sparsity(record));
    let ours = METRICS.iter().filter_map(|(name, better)| metric(name, *better, record[name].as_f64()));
    sparsity.into_iter().chain(ours).collect()
}

/// The share of entries that are skipped. In `sparsity_ratio`, Nano XYZ wrote the share of all N² entries that are
/// computed; profiles written by Laptime have that in `density`.
fn sparsity(record: &Value) -> Option<f64> {
    let ratio = record["sparsity_ratio"].as_f64();
    if record.get("density").is_some() {
        return ratio;
    }
    let length = record["seq_len"].as_f64().filter(|length| *length > 0.0);
    let kept = record["connections"].as_f64().zip(length).map(|(connections, length)| connections / (length * length));
    kept.or(ratio).map(|kept| 1.0 - kept)
}

fn facts(size: &Value) -> Vec<Fact> {
    let parameters = size["total_parameters"].as_i64().map(|count| Fact::new("parameters", count));
    let bytes = size["parameter_memory_mb"].as_f64().map(|megabytes| (megabytes * f64::from(1 << 20)) as i64);
    parameters.into_iter().chain(bytes.map(|bytes| Fact::new("weight_bytes", bytes))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_record_of_nano_xyz_is_a_case_with_one_iteration() {
        let record = json!({
            "latency_ms": 1.5, "peak_memory_mb": 2.0, "attention_type": "sparse", "seq_len": 512, "batch_size": 1,
            "n_heads": 16, "head_dim": 64, "sparsity_ratio": 0.25, "connections": 65536,
        });
        let results = attention(&json!({ "metadata": { "device": "cuda" }, "results": [record] }));
        assert_eq!(results[0].case.to_string(), "attention=sparse seq_len=512 batch_size=1 heads=16 head_dim=64");
        let measured = results[0].measured().unwrap();
        assert_eq!((measured.wall_ns.as_slice(), measured.peak_bytes), (&[1_500_000][..], Some(2 << 20)));
        assert_eq!(measured.metric("sparsity").unwrap().values, [Some(0.75)], "Nano XYZ wrote the computed share");
    }

    #[test]
    fn a_profile_of_laptime_has_the_skipped_share() {
        let ours = json!({ "sparsity_ratio": 0.9, "density": 0.05, "seq_len": 512, "connections": 13_000 });
        assert_eq!(sparsity(&ours), Some(0.9));
        assert_eq!(sparsity(&json!({ "sparsity_ratio": 0.3 })), Some(0.7));
        assert_eq!(sparsity(&json!({})), None);
    }

    #[test]
    fn an_error_of_nano_xyz_is_the_outcome_of_the_case() {
        let failed = json!([
            { "seq_len": 512, "attention_type": "dense", "error": "CUDA out of memory. Tried to allocate" },
            { "seq_len": 512, "attention_type": "dense", "error": "boom" },
            { "seq_len": 512, "attention_type": "dense" },
            7,
        ]);
        let results = attention(&json!({ "results": failed }));
        let words: Vec<&str> = results.iter().map(|result| result.outcome.word()).collect();
        assert_eq!(words, ["out_of_memory", "failed", "failed"]);
        assert!(attention(&json!([])).is_empty() && models(&json!(3)).is_empty());
    }

    #[test]
    fn a_model_has_its_size_its_mode_and_its_loss() {
        let profile = json!({
            "metadata": { "device": "cpu", "batch_size": 2 },
            "model_sizes": { "tiny": { "total_parameters": 100, "parameter_memory_mb": 1.0 } },
            "results": [{ "latency_ms": 3.0, "mode": "training", "preset": "tiny", "seq_len": 16, "loss": 6.2 }],
        });
        let results = models(&profile);
        assert_eq!(results[0].case.to_string(), "model=tiny pass_type=training seq_len=16 batch_size=2");
        let measured = results[0].measured().unwrap();
        assert_eq!(measured.fact("parameters"), Some(&AxisValue::Int(100)));
        assert_eq!(measured.metric("loss").unwrap().values, [Some(6.2)]);
    }
}
