//! A program that is killed while it is recorded.

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
fn a_killed_program_leaves_what_it_had_flushed() {
    if let Some(path) = std::env::var_os(CHILD) {
        record_until_killed(Path::new(&path));
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace.pftrace");
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "killed::a_killed_program_leaves_what_it_had_flushed", "--nocapture"])
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

/// Records laps until the file holds enough of them, says so, and goes on for ever.
fn record_until_killed(path: &Path) -> ! {
    let _recording = record_to(path).unwrap();
    let _endless = stage!("endless");
    let mut has_told = false;
    for count in 0_u64.. {
        drop(lap!("lap", count = count));
        if count % 1_000 == 999 && !has_told && read(path).is_ok_and(|trace| trace.span_count() > LAPS) {
            println!("flushed");
            std::io::stdout().flush().unwrap();
            has_told = true;
        }
    }
    unreachable!("the laps do not end");
}
