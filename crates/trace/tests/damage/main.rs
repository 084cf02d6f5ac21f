//! Damaged, truncated, hostile and absurd files: one clear error or the readable part, in bounded memory, without a
//! panic.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../formats/any_trace/mod.rs"]
mod any_trace;
#[path = "../formats/complete_trace/mod.rs"]
mod complete_trace;

mod bombs;
mod corrupted;
mod cut;
mod heap;
mod json;
mod noise;
mod packet;
mod packets;
mod places;

use complete_trace::complete_trace;
use laptime_trace::{Format, ReadError, Trace, format::pftrace, read_from, write_to};

/// Reads bytes and checks the invariants of the result.
fn read(bytes: &[u8]) -> Result<Trace, ReadError> {
    let read = read_from(bytes);
    if let Ok(trace) = &read {
        assert_eq!(trace.check(), Ok(()));
    }
    read
}

fn written(trace: &Trace, format: Format) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_to(trace, format, &mut bytes).unwrap();
    bytes
}

fn uncompressed(trace: &Trace) -> Vec<u8> {
    let mut bytes = Vec::new();
    pftrace::write_uncompressed(trace, &mut bytes).unwrap();
    bytes
}

/// A recording whose events were flushed a few at a time: many compressed blocks.
fn many_blocks() -> Vec<u8> {
    use laptime_trace::{
        Nanos, Origin, TrackKind,
        format::pftrace::{Begin, TrackText, Writer},
    };
    let mut bytes = Vec::new();
    let mut writer = Writer::new(&mut bytes);
    writer.origin(&Origin::named("start of the recording")).unwrap();
    let process = writer.process(1, "tts").unwrap();
    let text = TrackText { kind: TrackKind::Thread, pid: 1, name: "main", number: Some(1), device: None, unit: "" };
    let track = writer.track(process, text).unwrap();
    let sequence = writer.sequence(track).unwrap();
    for lap in 0..12 {
        let begin = Begin { name: "decode", category: "lap", flow_out: &[], flow_in: &[] };
        let fields = [("token", laptime_trace::Value::Int(lap))];
        writer.begin(sequence, Nanos(10 * lap as u64), begin, fields.into_iter()).unwrap();
        writer.end(sequence, Nanos(10 * lap as u64 + 5), std::iter::empty()).unwrap();
        writer.flush().unwrap();
    }
    drop(writer);
    bytes
}

/// The files that the tests of this folder damage, by name.
fn samples() -> Vec<(&'static str, Vec<u8>)> {
    let trace = complete_trace();
    vec![
        ("pftrace", written(&trace, Format::Pftrace)),
        ("uncompressed pftrace", uncompressed(&trace)),
        ("pftrace of many blocks", many_blocks()),
        ("Chrome JSON", written(&trace, Format::Chrome)),
        ("gzipped Chrome JSON", written(&trace, Format::ChromeGz)),
        ("torch.profiler JSON", include_bytes!("../../../../tests/data/kineto/two_streams.json").to_vec()),
        ("a CUDA graph", include_bytes!("../../../../tests/data/kineto/cuda_graph.json").to_vec()),
    ]
}
