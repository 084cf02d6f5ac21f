//! Writes the spans of a trace as Parquet: time, bytes per span and memory beyond the trace.
//!
//! `cargo run --release -p laptime-trace --features parquet --example parquet -- TRACE [SPANS]`. A shorter trace is repeated
//! until it has that many spans.

#![allow(clippy::print_stdout, reason = "it is there to print")]

use std::{error::Error, fs, time::Instant};

use laptime_trace::{Nanos, Trace, TraceBuilder, format::parquet};

/// The number of rounds, of which the median is printed.
const ROUNDS: usize = 9;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let path = arguments.first().ok_or("usage: parquet TRACE [SPANS]")?;
    let trace = laptime_trace::read(path)?;
    let spans = arguments.get(1).map_or(Ok(trace.span_count()), |text| text.parse())?;
    let trace = repeated(&trace, spans)?;
    let folder = std::env::temp_dir().join(format!("laptime-parquet-{}", std::process::id()));
    let part = parquet::Part { dataset: folder.clone(), run: "run".into(), rank: 0, metadata: vec![] };
    let before = status_kib("VmRSS");
    let (mut seconds, cpu): (Vec<f64>, _) = (Vec::new(), cpu_seconds());
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        parquet::spans(&trace, &part)?;
        seconds.push(begin.elapsed().as_secs_f64());
    }
    let cpu = cpu_seconds().zip(cpu).map(|(now, before)| now - before);
    seconds.sort_by(f64::total_cmp);
    let bytes = fs::metadata(part.folder("spans").join("part-0.parquet"))?.len();
    let (count, median) = (trace.span_count() as f64, seconds[ROUNDS / 2]);
    println!("{count} spans, {:.2} bytes per span", bytes as f64 / count);
    println!(
        "{:.2} million spans per second (median of {ROUNDS}; worst {:.2})",
        count / median / 1e6,
        count / seconds[ROUNDS - 1] / 1e6
    );
    if let Some(cpu) = cpu {
        println!("{:.2} million spans per second of CPU time", ROUNDS as f64 * count / cpu / 1e6);
    }
    if let (Some(before), Some(peak)) = (before, status_kib("VmHWM")) {
        println!("{:.1} MiB beyond the trace", peak.saturating_sub(before) as f64 / 1024.0);
    }
    fs::remove_dir_all(folder)?;
    Ok(())
}

/// The trace one time after another, until it has this many spans.
fn repeated(trace: &Trace, spans: usize) -> Result<Trace, Box<dyn Error>> {
    let (first, last) = trace.bounds().ok_or("the trace is empty")?;
    let length = last.saturating_sub(first).0 + 1_000;
    let mut builder = TraceBuilder::default();
    let tracks: Vec<_> = trace
        .tracks()
        .map(|(_, track)| {
            let process = builder.process(trace.process(track.process).number);
            let (name, unit) = (builder.name(trace.name(track.name)), builder.name(trace.name(track.unit)));
            builder.track(laptime_trace::Track { process, name, unit, ..*track })
        })
        .collect();
    let number = |id| trace.tracks().position(|(known, _)| known == id).unwrap_or(0);
    let places: Vec<usize> = trace.spans().map(|span| number(span.track)).collect();
    let all: Vec<_> = trace.spans().collect();
    for at in 0..spans {
        let (round, index) = (at / trace.span_count(), at % trace.span_count());
        let span = all[index];
        let start = Nanos(span.start.0 + round as u64 * length);
        builder.span(tracks[places[index]], start, span.duration, span.name, span.category);
    }
    Ok(builder.build()?)
}

/// The CPU time of this process, in ticks of 10 ms: on a busy machine the clock on the wall says little.
fn cpu_seconds() -> Option<f64> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let fields: Vec<&str> = stat.rsplit(')').next()?.split_whitespace().collect();
    let ticks = |at: usize| fields.get(at)?.parse::<f64>().ok();
    Some((ticks(11)? + ticks(12)?) / 100.0)
}

fn status_kib(key: &str) -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with(key))?;
    line.split_whitespace().nth(1)?.parse().ok()
}
