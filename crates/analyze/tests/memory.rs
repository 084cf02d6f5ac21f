//! The memory of traces with tens of millions of tiny spans: a trace and its analysis need about 30 bytes per span.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../../trace/tests/damage/heap.rs"]
mod heap;

use heap::peak_of_all;
use laptime_analyze::{diagnose, gaps, laps, stages, top};
use laptime_trace::{Nanos, Trace, TraceBuilder, TrackId};

/// Just below a power of two, where columns have the least spare capacity.
const SPANS: u64 = (1 << 17) - 16;

/// Thirty million spans fit into a gigabyte.
const BYTES: usize = 32;

/// What tables of names, threads and stages may need.
const FIXED: usize = 1 << 20;

/// A trace of tiny spans with some names, whose start follows from their index.
fn trace(threads: i64, place: impl Fn(u64) -> (u64, u64)) -> Trace {
    let mut builder = TraceBuilder::default();
    let tracks: Vec<TrackId> = (0..threads).map(|number| builder.thread(1, number, "worker")).collect();
    let names = ["load", "forward", "backward", "step"].map(|name| builder.name(name));
    let category = builder.name("");
    for span in 0..SPANS {
        let (start, length) = place(span);
        let track = tracks[span as usize % tracks.len()];
        builder.span_named(track, Nanos(start), Nanos(length), names[(span / 8) as usize % 4], category);
    }
    builder.build().unwrap()
}

#[test]
fn a_span_needs_few_bytes_in_every_analysis() {
    type Place = fn(u64) -> (u64, u64);
    // In a row, each inside the one before it, and in the reverse order of time.
    let places: [Place; 3] = [
        |at| (1_000_000 * at, 70_000 + at % 1000),
        |at| (7 * at, 7 * (2 * SPANS - 2 * at)),
        |at| (1_000_000 * (SPANS - at), 70_000 + at % 1000),
    ];
    for (number, place) in places.into_iter().enumerate() {
        let trace = trace(1 + 4 * number as i64 % 8, place);
        let (_, held) = peak_of_all(|| trace.clone());
        let analyses: [(&str, &dyn Fn()); 5] = [
            ("top", &|| drop(top(&trace))),
            ("stages", &|| drop(stages(&trace))),
            ("gaps", &|| drop(gaps(&trace, None, 0))),
            ("laps", &|| drop(laps(&trace, Some("no such name")))),
            ("diagnose", &|| drop(diagnose(Some(&trace), &[], None))),
        ];
        let most = BYTES * SPANS as usize + FIXED;
        for (name, analysis) in analyses {
            let (_, peak) = peak_of_all(analysis);
            let all = held + peak;
            assert!(all < most, "place {number}: `{name}` takes {} bytes a span", all / SPANS as usize);
        }
    }
}
