//! Runs the example on a model whose steps take milliseconds.
#![allow(clippy::unwrap_used, reason = "a test panics on a surprise")]

use std::process::Command;

#[test]
fn it_measures_forward_and_forward_with_backward() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_laptime-example-course-benchmark"));
    let output = command.args(["tiny", "2", "16"]).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success(), "{printed}");
    assert!(printed.starts_with("tiny: ") && printed.contains("batch 2, context 16"), "{printed}");
    assert!(
        printed.contains("\nforward  ") && printed.contains("\nforward, backward ") && printed.contains("loss "),
        "{printed}"
    );
}
