//! The JSON schemas of run records: the committed schemas match the records, files of the current version match the
//! schemas, and files of older versions are still read.
//!
//! `LAPTIME_BLESS=1 cargo test -p laptime-trace --features schema --test schema` regenerates the schemas. The folders
//! `tests/data/run-folder/schema-*` are never regenerated: every reader must understand them.

mod validate;

use std::path::PathBuf;

use laptime_trace::run::{
    CaseResult, Outcome, Peaks, RESULTS_FILE, RUN_FILE, Run, SCHEMA, StopReason, Traffic, read_results,
};
use schemars::{Schema, schema_for};
use serde_json::Value;

use validate::faults;

fn root(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)
}

fn text(path: &str) -> String {
    std::fs::read_to_string(root(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn is_blessing() -> bool {
    std::env::var_os("LAPTIME_BLESS").is_some()
}

fn schema_of(name: &str) -> Schema {
    match name {
        "run" => schema_for!(Run),
        "case-result" => schema_for!(CaseResult),
        _ => schema_for!(Peaks),
    }
}

/// The committed schema, or the new one when schemas are being regenerated.
fn committed(name: &str) -> Value {
    if is_blessing() {
        return schema_of(name).to_value();
    }
    serde_json::from_str(&text(&format!("docs/schemas/{name}.schema.json"))).expect("a schema is JSON")
}

fn compare(name: &str) {
    let path = format!("docs/schemas/{name}.schema.json");
    let schema = schema_of(name);
    let text_now = serde_json::to_string_pretty(&schema).expect("a schema is JSON") + "\n";
    if is_blessing() {
        std::fs::write(root(&path), &text_now).expect("the schema can be written");
    }
    assert!(text(&path) == text_now, "`{path}` does not match the record; expected:\n{text_now}");
    for key in ["title", "description"] {
        assert!(schema.get(key).is_some_and(Value::is_string), "`{path}` has no {key}");
    }
    assert!(schema.get("$id").is_none());
}

#[test]
fn the_committed_schemas_are_those_of_the_records() {
    ["run", "case-result", "peaks"].into_iter().for_each(compare);
}

const OLD: &str = "tests/data/run-folder/schema-1";
const CURRENT: &str = "tests/data/run-folder/schema-2";

#[test]
fn a_run_of_schema_1_is_still_read() {
    let run = Run::read(&root(OLD)).unwrap();
    assert_eq!((run.schema, run.workload.as_str(), run.settings.runs), (1, "matmul", 2));
    let axes: Vec<&str> = run.axes.iter().map(|axis| axis.axis.as_str()).collect();
    assert_eq!(axes, ["size", "dtype"]);
    let peaks = run.peaks.unwrap();
    assert_eq!((peaks.flops_s("f32"), peaks.bytes_s(Traffic::Copy)), (Some(1.25e11), Some(2.4e10)));
}

#[test]
fn results_of_schema_1_are_still_read() {
    let read = read_results(&root(OLD).join(RESULTS_FILE)).unwrap();
    let run = Run::read(&root(OLD)).unwrap();
    let outcomes: Vec<(u32, &str)> = read.results.iter().map(|result| (result.run, result.outcome.word())).collect();
    let expected = [
        (0, "measured"),
        (1, "measured"),
        (0, "measured"),
        (1, "measured"),
        (0, "skipped"),
        (0, "out_of_memory"),
        (0, "failed"),
    ];
    assert_eq!(outcomes, expected);
    assert!(!read.was_cut);
    assert!(read.results.iter().all(|result| result.environment == run.environment_fingerprint));
    let interrupted = read.results.iter().filter(|result| !result.is_finished()).count();
    assert_eq!(interrupted, 1, "an interrupted case is measured again");
    let first = read.results[0].measured().unwrap();
    assert_eq!(first.metric("gflop_s").unwrap().values, [Some(61.5), None, Some(60.75)]);
    assert_eq!(first.stopped, StopReason::Iterations(3), "the last line of a case wins");
    assert!(matches!(&read.results[6].outcome, Outcome::Failed { errors, .. } if errors.len() == 2));
}

#[test]
fn files_of_schema_2_match_the_committed_schemas() {
    let run: Value = serde_json::from_str(&text(&format!("{CURRENT}/{RUN_FILE}"))).unwrap();
    assert_eq!(faults(&committed("run"), &run), [""; 0]);
    assert_eq!(faults(&committed("peaks"), &run["peaks"]), [""; 0]);
    for line in text(&format!("{CURRENT}/{RESULTS_FILE}")).lines() {
        let result = serde_json::from_str(line).unwrap();
        assert_eq!(faults(&committed("case-result"), &result), [""; 0], "{line}");
    }
}

#[test]
fn a_run_reads_the_same_from_schema_1_and_schema_2() {
    let run = |folder| Run { schema: SCHEMA, peaks: None, ..Run::read(&root(folder)).unwrap() };
    assert_eq!(run(OLD), run(CURRENT));
    let results = |folder| {
        let read = read_results(&root(folder).join(RESULTS_FILE)).unwrap();
        let current = |result: CaseResult| CaseResult { schema: SCHEMA, ..result };
        read.results.into_iter().map(current).collect::<Vec<_>>()
    };
    assert_eq!(results(OLD), results(CURRENT));
}

#[test]
fn records_of_this_version_match_the_committed_schemas() {
    let fits = |name, record| assert_eq!(faults(&committed(name), &record), [""; 0], "{record}");
    let run = Run::read(&root(OLD)).unwrap();
    fits("run", serde_json::to_value(&run).unwrap());
    fits("peaks", serde_json::to_value(run.peaks).unwrap());
    for result in read_results(&root(OLD).join(RESULTS_FILE)).unwrap().results {
        fits("case-result", serde_json::to_value(result).unwrap());
    }
}

#[test]
fn a_record_that_lacks_something_or_has_it_wrong_does_not_fit() {
    let run: Value = serde_json::from_str(&text(&format!("{CURRENT}/{RUN_FILE}"))).unwrap();
    let schema = committed("run");
    let broken = |change: fn(&mut Value)| {
        let mut broken = run.clone();
        change(&mut broken);
        faults(&schema, &broken)
    };
    assert_eq!(broken(|run| drop(run.as_object_mut().unwrap().remove("workload"))), ["`workload` is missing in ``"]);
    assert_eq!(broken(|run| run["schema"] = Value::from("1")), ["`/schema` is no integer"]);
    assert_eq!(broken(|run| run["environment"]["machine"]["cpus"] = Value::from(-1)).len(), 1);
    assert_eq!(broken(|run| run["settings"]["stop"] = Value::from("soon")).len(), 1);
}

#[test]
fn an_old_folder_is_kept_for_every_version_that_is_read() {
    for schema in laptime_trace::run::OLDEST_SCHEMA..=SCHEMA {
        let folder = root(&format!("tests/data/run-folder/schema-{schema}"));
        assert_eq!(Run::read(&folder).unwrap().schema, schema);
    }
}
