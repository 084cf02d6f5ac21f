//! A program that is killed, or exits silently, while it is recorded.

use std::{
    io::{BufRead, BufReader, Write},
    path::Path,
    process::{Command, Stdio},
};

use laptime_probe::{lap, stage};
use laptime_trace::{read, record_to};

const CHILD: &str = "LAPTIME_KILLED_CHILD";
const LAPS: usize = 500;

#[test]
fn a_killed_program_leaves_everything_it_flushed() {
    if let Some(path) = std::env::var_os(CHILD) {
        record_until_killed(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_killed_program_leaves_everything_it_flushed", "--nocapture"])
        .env(CHILD, &path)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.any(|line| line.unwrap().contains("flushed")), "the child died early");
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success());
    let trace = read(&path).unwrap();
    assert_eq!(trace.check(), Ok(()));
    assert!(trace.spans().filter(|span| span.name == "lap").count() >= LAPS);
    assert!(trace.spans().any(|span| span.name == "endless" && span.is_open));
    assert_eq!(trace.warnings.iter().filter(|warning| warning.contains("damaged")).count(), 0, "{:?}", trace.warnings);
}

/// Records laps until the file contains enough of them, prints a message, and continues forever.
fn record_until_killed(path: &Path) -> ! {
    let _recording = record_to(path).unwrap();
    let _endless = stage!("endless");
    let mut has_reported = false;
    for count in 0_u64.. {
        drop(lap!("lap", count = count));
        if count % 1_000 == 999 && !has_reported && read(path).is_ok_and(|trace| trace.span_count() > LAPS) {
            println!("flushed");
            std::io::stdout().flush().unwrap();
            has_reported = true;
        }
    }
    unreachable!("the laps do not end");
}

/// Runs a test of this file again as a separate program, with the file to record to.
fn run_again(test: &str, path: &Path) -> std::process::Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", &format!("killed::{test}"), "--nocapture"]).env(CHILD, path).output().unwrap()
}

#[cfg(unix)]
#[test]
fn a_program_that_exits_leaves_all_that_it_recorded() {
    if let Some(path) = std::env::var_os(CHILD) {
        let _recording = record_to(path).unwrap();
        let _open = stage!("open");
        (0..LAPS).for_each(|count| drop(lap!("lap", count = count as u64)));
        #[allow(clippy::exit, reason = "this is what is tried")]
        std::process::exit(7);
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let ended = run_again("a_program_that_exits_leaves_all_that_it_recorded", &path);
    assert_eq!(ended.status.code(), Some(7));
    let trace = read(&path).unwrap();
    assert_eq!(trace.spans().filter(|span| span.name == "lap").count(), LAPS);
    assert!(trace.spans().any(|span| span.name == "open" && span.is_open));
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_reported_when_the_recording_is_dropped() {
    if let Some(path) = std::env::var_os(CHILD) {
        let recording = record_to(path).unwrap();
        drop(stage!("stage"));
        drop(recording);
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    std::os::unix::fs::symlink("/dev/full", &path).unwrap();
    let ended = run_again("a_full_disk_is_reported_when_the_recording_is_dropped", &path);
    assert!(ended.status.success());
    let stderr = String::from_utf8(ended.stderr).unwrap();
    let expected = format!("warning: the recording is incomplete: cannot write `{}`: No space left", path.display());
    assert!(stderr.contains(&expected), "{stderr}");
}
