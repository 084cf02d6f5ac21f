//! Sweeps through crashes, kills, hangs, full disks and Ctrl-C: finished cases are kept, and the sweep continues.
#![allow(clippy::unwrap_used, reason = "a test panics on a surprise")]

use std::{
    os::unix::process::ExitStatusExt,
    path::PathBuf,
    process::{Command, Output},
};

use laptime_trace::run::{CaseResult, Measured, Outcome, StopReason, read_results};

/// A fresh folder to run in.
struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn command(&self, arguments: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_laptime-hard-cases"));
        command.args(arguments.split(' ')).current_dir(self.0.path()).env("LAPTIME_HOME", self.0.path());
        command
    }

    fn run(&self, arguments: &str) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn file(&self) -> PathBuf {
        self.0.path().join("run/results.jsonl")
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(self.file()).unwrap_or_default()
    }

    fn results(&self) -> Vec<CaseResult> {
        read_results(&self.file()).unwrap().results
    }

    /// The file up to its last complete line.
    fn whole_lines(&self) -> Vec<u8> {
        let bytes = self.bytes();
        let end = bytes.iter().rposition(|&byte| byte == b'\n').map_or(0, |end| end + 1);
        bytes[..end].to_vec()
    }

    /// Resumes the run and checks that it has all 20 cases, and that finished ones are unchanged.
    fn resume(&self, point: &str) {
        let before = self.whole_lines();
        let resumed = self.run("bench --resume run --format jsonl");
        assert_eq!(resumed.status.code(), Some(0), "{point}: {}", err(&resumed));
        assert!(self.bytes().starts_with(&before), "{point}: finished results changed");
        let lines = self.bytes().iter().filter(|&&byte| byte == b'\n').count();
        let numbers: Vec<i64> = self.results().iter().map(|result| result.case.int("number").unwrap()).collect();
        assert_eq!((lines, numbers), (20, (0..20).collect()), "{point}: every case once");
    }
}

fn err(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn outcomes(place: &Place) -> Vec<(String, String)> {
    let outcome = |result: &CaseResult| {
        let why = match &result.outcome {
            Outcome::Failed { errors, .. } => errors[0].clone(),
            other => other.word().to_owned(),
        };
        (result.case.text("end").unwrap().to_owned(), why)
    };
    place.results().iter().map(outcome).collect()
}

const SWEEP: &str = "bench hard --number 0-19+1 --iterations 3 --warmup 0 --out run --format jsonl";

/// Reproducible random numbers.
fn seeded(count: usize, below: u64) -> Vec<u64> {
    let mut state = 20_261_115_u64;
    let draw = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    std::iter::repeat_with(draw).take(count).collect()
}

#[test]
fn a_kill_at_any_iteration_loses_no_finished_case_and_can_be_resumed() {
    for call in seeded(10, 60).into_iter().map(|call| call + 1) {
        let place = Place::new();
        let killed = place.command(SWEEP).env("HARD_CASES_KILL_AT", call.to_string()).output().unwrap();
        assert_eq!(killed.status.signal(), Some(9), "call {call}: {}", err(&killed));
        let finished = (call as usize - 1) / 3;
        let kept = if place.file().exists() { place.results().len() } else { 0 };
        assert_eq!(kept, finished, "call {call}");
        place.resume(&format!("call {call}"));
    }
}

/// Runs the sweep in a shell with a limit on the size of files, in blocks of 512 bytes.
fn limited(place: &Place, before: &str, blocks: u64) -> Output {
    let program = env!("CARGO_BIN_EXE_laptime-hard-cases");
    let script = format!("{before} ulimit -c 0; ulimit -f {blocks}; exec \"$0\" {SWEEP}");
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, program]).current_dir(place.0.path()).env("LAPTIME_HOME", place.0.path());
    shell.output().unwrap()
}

#[test]
fn a_kill_at_any_byte_of_the_results_loses_no_finished_case_and_can_be_resumed() {
    for blocks in seeded(10, 7).into_iter().map(|block| block + 5) {
        let place = Place::new();
        let killed = limited(&place, "", blocks);
        assert!(killed.status.signal().is_some(), "{blocks} blocks: {}", err(&killed));
        assert_eq!(place.bytes().len() as u64, 512 * blocks);
        place.resume(&format!("{blocks} blocks"));
    }
}

#[test]
fn a_full_disk_is_an_error_and_keeps_finished_cases() {
    let place = Place::new();
    let full = limited(&place, "trap '' XFSZ;", 9);
    let message = err(&full);
    assert_eq!(full.status.code(), Some(2), "{message}");
    assert_eq!(message.matches("error: ").count(), 1, "{message}");
    assert!(message.contains("cannot write `run/results.jsonl`") && message.contains("--resume"), "{message}");
    assert_eq!(place.bytes(), place.whole_lines(), "a partial last line is cut off");
    assert!(!place.results().is_empty());
    place.resume("a full disk");
}

#[test]
fn with_isolation_every_failure_is_a_row_and_the_sweep_continues() {
    let place = Place::new();
    let ends = "error,wrong,panic,abort,exit,kill,memory,noise,well";
    let swept = place.run(&format!("bench hard --end {ends} --iterations 2 --warmup 0 --isolate --out run"));
    assert_eq!(swept.status.code(), Some(1), "{}", err(&swept));
    let outcomes: Vec<(String, String)> = outcomes(&place);
    let outcomes: Vec<(&str, &str)> = outcomes.iter().map(|(end, why)| (end.as_str(), why.as_str())).collect();
    assert_eq!(
        outcomes,
        [
            ("error", "the case asked to fail"),
            ("wrong", "the result is wrong"),
            ("panic", "panic: the case asked to panic"),
            ("abort", "the process was aborted (signal 6, SIGABRT)"),
            ("exit", "the process exited with status 3 before the case was done"),
            (
                "kill",
                "the process was killed (signal 9, SIGKILL), by the kernel because memory ran out or by another process"
            ),
            ("memory", "out_of_memory"),
            ("noise", "measured"),
            ("well", "measured"),
        ]
    );
}

#[test]
fn out_of_memory_in_this_process_is_an_error_and_keeps_finished_cases() {
    let place = Place::new();
    let swept = place.run("bench hard --end well,memory --iterations 2 --warmup 0 --out run");
    assert_eq!(swept.status.code(), Some(2), "{}", err(&swept));
    assert!(
        err(&swept).contains("error: out of memory: the system refused an allocation\n\nhint: "),
        "{}",
        err(&swept)
    );
    assert_eq!(outcomes(&place), [("well".to_owned(), "measured".to_owned())]);
    // Other aborts still abort.
    let aborted = place.run("bench hard --end abort --iterations 2 --warmup 0 --out other");
    assert_eq!(aborted.status.signal(), Some(6), "{}", err(&aborted));
}

#[test]
fn a_hang_ends_at_its_timeout() {
    let place = Place::new();
    let swept = place.run("bench hard --end hang --iterations 2 --warmup 0 --timeout 100ms --out run");
    assert_eq!(swept.status.code(), Some(1), "{}", err(&swept));
    assert_eq!(outcomes(&place)[0].1, "no result within 0.1 s; the process was stopped");
}

#[test]
fn without_isolation_errors_and_panics_are_rows() {
    let place = Place::new();
    let swept = place.run("bench hard --end error,panic,well --iterations 2 --warmup 0 --out run");
    assert_eq!(swept.status.code(), Some(1));
    assert!(!err(&swept).contains("fault of laptime"), "{}", err(&swept));
    let words: Vec<String> = outcomes(&place).into_iter().map(|(_, why)| why).collect();
    assert_eq!(words, ["the case asked to fail", "panic: the case asked to panic", "measured"]);
}

#[test]
fn output_of_a_workload_does_not_mix_with_the_results() {
    let place = Place::new();
    let swept = place.run("bench hard --end noise --iterations 2 --warmup 0 --out run --format csv");
    let out = String::from_utf8(swept.stdout.clone()).unwrap();
    assert!(out.starts_with("workload,number,end,device,outcome"), "{out}");
    assert!(err(&swept).contains("a workload may print, even"), "{}", err(&swept));
}

#[test]
fn a_dry_run_of_a_stopped_run_shows_the_remaining_cases() {
    let place = Place::new();
    let killed = place.command(SWEEP).env("HARD_CASES_KILL_AT", "55").output().unwrap();
    assert_eq!(killed.status.signal(), Some(9));
    let before = place.bytes();
    let dry = place.run("bench --resume run --dry-run --format csv");
    assert_eq!(String::from_utf8_lossy(&dry.stdout), "number,end\n18,well\n19,well\n");
    assert_eq!(place.bytes(), before);
}

#[test]
fn a_program_of_another_name_reports_unknown_axes_with_its_name() {
    let message = err(&Place::new().run("bench hard --nubmer 1"));
    assert!(
        message.contains("error: workload `hard` has no axis `nubmer`") && message.contains("did you mean `number`?"),
        "{message}"
    );
    let message = err(&Place::new().run("bench hrad"));
    assert!(
        message.contains("error: unknown workload `hrad`") && message.contains("did you mean `hard`?"),
        "{message}"
    );
}

#[test]
fn runs_are_fresh_processes_and_a_dead_one_is_replaced() {
    let place = Place::new();
    let swept = place.run("bench hard --end well,kill --number 1,2 --iterations 2 --warmup 0 --runs 2 --out run");
    assert_eq!(swept.status.code(), Some(1), "{}", err(&swept));
    let results: Vec<(u32, &str)> = place.results().iter().map(|result| (result.run, result.outcome.word())).collect();
    let one = |run| [(run, "measured"), (run, "failed"), (run, "measured"), (run, "failed")];
    assert_eq!(results, [one(0), one(1)].concat());
}

/// The second case would never end.
const ENDLESS: &str = "bench hard --end error,well --iterations 1000000000 --warmup 0 --out run";

#[test]
fn ctrl_c_stops_after_the_current_iteration_and_keeps_everything() {
    for how in ["", " --isolate"] {
        let place = Place::new();
        let mut command = place.command(&format!("{ENDLESS}{how}"));
        let call = if how.is_empty() { "9" } else { "8" };
        let stopped = command.env("HARD_CASES_INTERRUPT_AT", call).output().unwrap();
        assert_eq!(stopped.status.code(), Some(2), "{}", err(&stopped));
        assert!(err(&stopped).contains("error: interrupted after 1 of 2 cases"), "{}", err(&stopped));
        let results = place.results();
        let Outcome::Measured(Measured { wall_ns, stopped, .. }) = &results[1].outcome else { panic!("{results:?}") };
        assert_eq!((wall_ns.len() >= 8, *stopped), (true, StopReason::Interrupted));
    }
}

#[test]
fn another_plan_or_program_is_not_resumed() {
    let place = Place::new();
    assert_eq!(place.run(SWEEP).status.code(), Some(0));
    for (flag, expected) in [
        ("--device cuda", "its device is `cpu`"),
        ("--out other", "stays in its folder"),
        ("--iterations 9", "its settings differ"),
    ] {
        let other = place.run(&format!("bench --resume run {flag}"));
        assert_eq!(other.status.code(), Some(2));
        assert!(err(&other).contains(expected), "{flag}: {}", err(&other));
    }
    let other = place.run("bench hard --resume run --number 1,2");
    assert_eq!(other.status.code(), Some(2));
    assert!(err(&other).contains("has a different plan: its axes have different values"), "{}", err(&other));
    let path = place.0.path().join("run/run.json");
    let mut run: serde_json::Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    run["environment"]["build"]["binary"] = "0123456789abcdef".into();
    std::fs::write(&path, run.to_string()).unwrap();
    let other = place.run("bench --resume run");
    assert_eq!(other.status.code(), Some(2));
    assert!(err(&other).contains("the run was started by a different program"), "{}", err(&other));
}
