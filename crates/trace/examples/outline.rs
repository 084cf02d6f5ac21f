//! Reads traces and prints their contents: counts per kind, time and memory.
//!
//! `cargo run --release -p laptime-trace --all-features --example outline -- traces/*`

#![allow(clippy::print_stdout, reason = "an example talks to its user")]

use std::{collections::BTreeMap, time::Instant};

use laptime_trace::{Nanos, Trace, TrackKind, read};

fn main() {
    for path in std::env::args().skip(1) {
        let begin = Instant::now();
        match read(&path) {
            Ok(trace) => print_outline(&path, &trace, begin.elapsed().as_secs_f64()),
            Err(error) => println!("{path}: {error}"),
        }
    }
}

fn print_outline(path: &str, trace: &Trace, seconds: f64) {
    println!("{path}: {seconds:.3} s, peak memory so far {} KiB", peak_kib().unwrap_or(0));
    let mut kinds: BTreeMap<(bool, &str), (u64, u64)> = BTreeMap::new();
    for span in trace.spans() {
        let entry = kinds.entry((trace.track(span.track).kind.is_device(), span.category)).or_default();
        *entry = (entry.0 + 1, entry.1 + span.duration.0);
    }
    for ((is_device, category), (count, nanos)) in kinds {
        let place = if is_device { "device" } else { "host" };
        println!("  {place} {category:?}: {count} spans, {}", Nanos(nanos));
    }
    let streams = trace.tracks().filter(|(_, track)| track.kind == TrackKind::Stream).count();
    let launches = trace.flows().iter().filter(|flow| {
        let kind = |span| trace.track(trace.span(span).track).kind;
        kind(flow.to).is_device() && !kind(flow.from).is_device()
    });
    let (launches, waits) = (launches.count(), trace.spans().filter(|span| span.is_wait()).count());
    println!(
        "  {} tracks, {streams} streams, {} marks, {} values",
        trace.tracks().len(),
        trace.mark_count(),
        trace.values().len()
    );
    println!("  {} flows, {launches} from host to device; {waits} waits", trace.flows().len());
    println!(
        "  rank {:?} of {:?}, devices {:?}",
        trace.metadata.rank(),
        trace.metadata.world_size(),
        trace.metadata.devices().len()
    );
    trace.warnings.iter().for_each(|warning| println!("  warning: {warning}"));
}

/// The peak memory of this process, including mapped files, if the system reports it.
fn peak_kib() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}
