//! Writes and reads a million spans in every lossless format, and ten million through a recording: time, bytes and
//! memory.
//!
//! `cargo run --release -p laptime-trace --example million`. Each step runs in a separate process, so that its peak
//! memory is measured alone.

#![allow(clippy::print_stdout, reason = "it is there to print")]

use std::{
    error::Error,
    fs::File,
    io::{BufWriter, Write},
    path::{Path, PathBuf},
    process::Command,
    time::Instant,
};

use laptime_probe::{lap, stage};
use laptime_trace::{Format, LAP, Nanos, Trace, TraceBuilder, format::pftrace, read, record_to, write_to};

type Outcome = Result<(), Box<dyn Error>>;

const SPANS: u64 = 1_000_000;
const RECORDED: u64 = 10_000_000;

/// The written and read formats, by extension; the first is not compressed.
const FILES: [&str; 4] = ["raw.pftrace", "pftrace", "json", "json.gz"];

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [] => all(),
        ["write", fields, file, path] => write_step(fields == "two", file, Path::new(path)),
        ["read", _, _, path] => read_step(Path::new(path)),
        ["record", fields, path] => record_step(fields == "two", Path::new(path)),
        _ => Err("usage: million".into()),
    }
}

fn all() -> Outcome {
    let folder = tempfile::tempdir()?;
    println!("{:<28} {:>8} {:>9} {:>12} {:>10}", "step", "seconds", "bytes", "bytes per span", "peak MiB");
    for fields in ["no", "two"] {
        for file in FILES {
            let path: PathBuf = folder.path().join(format!("{fields}.{file}"));
            for step in ["write", "read"] {
                run(&[step, fields, file, path.to_str().ok_or("the path is no text")?])?;
            }
        }
        let path = folder.path().join(format!("recorded.{fields}.pftrace"));
        run(&["record", fields, path.to_str().ok_or("the path is no text")?])?;
    }
    Ok(())
}

fn run(arguments: &[&str]) -> Outcome {
    let status = Command::new(std::env::current_exe()?).args(arguments).status()?;
    if status.success() { Ok(()) } else { Err(format!("`{}` failed", arguments.join(" ")).into()) }
}

fn row(step: &str, seconds: f64, bytes: u64, spans: u64) {
    let a_span = bytes as f64 / spans as f64;
    println!("{step:<28} {seconds:>8.2} {bytes:>9} {a_span:>12.2} {:>10.0}", peak_mib());
}

/// The peak memory of this process, as counted by Linux.
fn peak_mib() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kib = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
    kib.map_or(f64::NAN, |kib| kib / 1024.0)
}

/// Laps of four spans: a token, and in it attention, its softmax, and the MLP, with slightly varying times.
fn plain_trace(spans: u64) -> Result<Trace, Box<dyn Error>> {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let (mut time, mut random) = (0, 42_u64);
    let mut step = || {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        1_000 + (random >> 53)
    };
    for _ in 0..spans / 4 {
        let lap = builder.span(main, Nanos(time), Nanos(0), "decode", LAP);
        let mut inner = Vec::new();
        for (name, ends) in [("attention", 0), ("softmax", 2), ("mlp", 1)] {
            time += step();
            inner.push(builder.span(main, Nanos(time), Nanos(0), name, ""));
            for _ in 0..ends {
                time += step();
                inner.pop().into_iter().for_each(|span| builder.end_span(span, Nanos(time)));
            }
        }
        time += step();
        builder.end_span(lap, Nanos(time));
    }
    Ok(builder.build()?)
}

/// The same spans, each with two integers.
fn trace_with_fields(spans: u64) -> Result<Trace, Box<dyn Error>> {
    let mut builder = TraceBuilder::default();
    let main = builder.thread(1, 1, "main");
    let plain = plain_trace(spans)?;
    for (at, span) in plain.spans().enumerate() {
        let entry = builder.span(main, span.start, span.duration, span.name, span.category);
        builder.span_field(entry, "token", at as u64 / 4);
        builder.span_field(entry, "layer", at as u64 % 4);
    }
    Ok(builder.build()?)
}

fn write_step(has_fields: bool, file: &str, path: &Path) -> Outcome {
    let trace = if has_fields { trace_with_fields(SPANS)? } else { plain_trace(SPANS)? };
    let started = Instant::now();
    let mut out = BufWriter::with_capacity(1 << 18, File::create(path)?);
    match file {
        "raw.pftrace" => pftrace::write_uncompressed(&trace, &mut out)?,
        _ => write_to(&trace, Format::from_path(path).ok_or("a known extension")?, &mut out)?,
    }
    out.flush()?;
    let seconds = started.elapsed().as_secs_f64();
    let fields = if has_fields { ", two fields" } else { "" };
    row(&format!("write {file}{fields}"), seconds, std::fs::metadata(path)?.len(), trace.span_count() as u64);
    Ok(())
}

fn read_step(path: &Path) -> Outcome {
    let started = Instant::now();
    let trace = read(path)?;
    let seconds = started.elapsed().as_secs_f64();
    row("  read", seconds, std::fs::metadata(path)?.len(), trace.span_count() as u64);
    Ok(())
}

/// A thread that only records: the worst case.
fn record_step(has_fields: bool, path: &Path) -> Outcome {
    let recording = record_to(path)?;
    let started = Instant::now();
    for token in 0..RECORDED / 2 {
        if has_fields {
            let _lap = lap!("decode", token = token, layer = 1);
            let _stage = stage!("attention", token = token, layer = 2);
        } else {
            let _outer = stage!("decode");
            let _inner = stage!("attention");
        }
    }
    let recorded_in = started.elapsed().as_secs_f64();
    let recorded = recording.finish()?;
    let fields = if has_fields { ", two fields" } else { "" };
    row(&format!("record pftrace{fields}"), started.elapsed().as_secs_f64(), recorded.bytes, recorded.spans);
    println!("  the thread itself took {recorded_in:.2} s; {} of {RECORDED} spans were lost", recorded.lost);
    Ok(())
}
