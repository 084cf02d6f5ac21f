//! A custom workload in the commands and formats of laptime.
#![allow(clippy::unwrap_used, reason = "a test panics on a surprise")]

use std::process::Command;

/// Runs the program in a folder; returns its output and exit status.
fn run(folder: &tempfile::TempDir, line: &str) -> (String, Option<i32>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laptime-example-custom-workload"));
    command.args(line.split(' ')).current_dir(folder.path()).env("LAPTIME_HOME", folder.path()).env("COLUMNS", "140");
    let output = command.output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code())
}

#[test]
fn it_is_listed_with_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    assert!(run(&folder, "list").0.contains("tokenize"));
    assert!(run(&folder, "list tokenize").0.contains("tok_s"));
}

#[test]
fn its_metrics_are_in_every_format() {
    let folder = tempfile::tempdir().unwrap();
    for format in ["text", "md", "csv", "tsv", "json", "jsonl"] {
        let (printed, status) = run(&folder, &format!("bench tokenize --kib 16 --iterations 5 --format {format}"));
        assert_eq!(status, Some(0), "{format}: {printed}");
        assert!(printed.contains("tok_s") && printed.contains("bytes_a_token"), "{format}: {printed}");
    }
}

#[test]
fn its_runs_are_compared_by_a_metric_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    for side in ["a", "b"] {
        assert_eq!(run(&folder, &format!("bench tokenize --kib 16 --iterations 5 --runs 3 --out {side}")).1, Some(0));
    }
    let (printed, status) = run(&folder, "compare a b --metric tok_s");
    assert!(matches!(status, Some(0 | 1)) && printed.contains("b compared with a, 1 case:"), "{printed}");
}

#[test]
fn its_stages_are_profiled_and_its_variants_judged() {
    let folder = tempfile::tempdir().unwrap();
    let (printed, status) = run(&folder, "profile tokenize --kib 16 --iterations 10");
    assert!(status == Some(0) && printed.contains("split") && printed.contains("Recording overhead:"), "{printed}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_laptime-example-custom-workload"));
    let variants = ["--a", "tokenize --kib 16 --iterations 3", "--b", "tokenize --kib 64 --iterations 3"];
    let judged = command.arg("ab").args(variants).args(["--runs", "4"]).current_dir(folder.path()).output().unwrap();
    assert_eq!(judged.status.code(), Some(1), "four times the text is slower");
}
