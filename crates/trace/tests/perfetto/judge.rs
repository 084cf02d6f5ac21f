//! Queries a file with Perfetto's own trace_processor.

use std::{path::Path, process::Command};

use serde_json::{Map, Value as Json};

pub type Row = Map<String, Json>;

/// The answer of each statement. Fails with instructions if trace_processor is not set up.
pub fn ask(file: &Path, statements: &[&str]) -> Vec<Vec<Row>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let judge = root.join(".cache/perfetto");
    assert!(
        judge.join("trace_processor.wasm").exists(),
        "Perfetto's judge is not set up: run `scripts/perfetto/setup`"
    );
    let output = Command::new("node")
        .arg(root.join("scripts/perfetto/query.mjs"))
        .arg("--judge")
        .arg(&judge)
        .arg(file)
        .args(statements)
        .output()
        .unwrap_or_else(|error| panic!("cannot run `node` ({error}): run `scripts/perfetto/setup`"));
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "the judge refuses {}: {complaint}", file.display());
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The complaints of trace_processor: every counter in its statistics, except timings.
pub const COMPLAINTS: &str = "select name, severity, value from stats where value > 0 \
     and name not glob '*_duration_ns' and name != 'clock_sync_cache_miss'";

/// A cell as a whole number; numbers beyond JavaScript's range come as text.
pub fn int(cell: &Json) -> Option<i64> {
    cell.as_i64().or_else(|| cell.as_str()?.parse().ok())
}

/// A cell as a float; values beyond JSON come as text.
pub fn float(cell: &Json) -> Option<f64> {
    cell.as_f64().or_else(|| cell.as_str()?.replace("Infinity", "inf").parse().ok())
}

pub fn text(cell: &Json) -> String {
    cell.as_str().unwrap_or_default().to_owned()
}
