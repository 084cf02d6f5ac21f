//! Reads a trace and prints the time and the peak memory as JSON. `scripts/compare-trace-readers` runs it.

#![allow(clippy::print_stdout, reason = "a measuring program talks to a script")]

use std::time::Instant;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).ok_or("give the path of a trace")?;
    let begin = Instant::now();
    let trace = laptime_trace::read(&path)?;
    let seconds = begin.elapsed().as_secs_f64();
    let kib = peak_kib().ok_or("this system does not tell the peak memory")?;
    println!("{{\"seconds\": {seconds}, \"kib\": {kib}, \"spans\": {}}}", trace.span_count());
    Ok(())
}

/// The peak memory of this process, including mapped files.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
