//! What is true of a trace as a whole; every answer about a trace carries it.

use laptime_trace::{Nanos, Trace, TrackKind};

use crate::{
    check::check,
    devices::{Devices, devices},
    finding::Finding,
    waits::{Found, waiting, waits},
};

/// A trace in a few numbers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// From the first event to the last.
    pub wall: Nanos,
    /// Spans.
    pub spans: u64,
    /// Threads of the host that have spans.
    pub threads: u64,
    /// Streams and copy engines of devices that have spans.
    pub streams: u64,
    /// Spans that were still open when the recording ended.
    pub open: u64,
    /// Events that could not be kept while recording.
    pub lost: u64,
    /// How far device times may be off against host times.
    pub clock_uncertainty: Option<Nanos>,
    /// The waits of the host for a device; none if there were none.
    pub waits: Option<Waits>,
    /// What the reader could not make sense of.
    pub warnings: Vec<String>,
    /// What the trace does not keep to.
    pub findings: Vec<Finding>,
}

/// The host waiting for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// How often.
    pub count: u64,
    /// When any thread waited.
    pub time: Nanos,
}

/// Sums a trace up, and checks it.
pub fn overview(trace: &Trace) -> Overview {
    overview_with(trace, &devices(trace))
}

/// Sums a trace up of which the devices are known.
pub fn overview_with(trace: &Trace, devices: &Devices) -> Overview {
    overview_of(trace, devices, &waits(trace, devices))
}

/// Sums a trace up of which the devices and the waits are known.
pub fn overview_of(trace: &Trace, devices: &Devices, waits: &[Found]) -> Overview {
    let wall = trace.bounds().map_or(Nanos(0), |(first, last)| last.saturating_sub(first));
    let tracks = |wanted: fn(TrackKind) -> bool| {
        let has_spans = |id| trace.spans_on(id).len() > 0;
        trace.tracks().filter(|(id, track)| wanted(track.kind) && has_spans(*id)).count() as u64
    };
    Overview {
        wall,
        spans: trace.span_count() as u64,
        threads: tracks(|kind| kind == TrackKind::Thread),
        streams: tracks(TrackKind::is_device),
        open: trace.spans().filter(|span| span.is_open).count() as u64,
        lost: trace.lost,
        clock_uncertainty: trace.clock_uncertainty,
        waits: waited(waits),
        warnings: trace.warnings.clone(),
        findings: check(trace, devices),
    }
}

fn waited(found: &[Found]) -> Option<Waits> {
    let time = Nanos(waiting(found).length());
    (!found.is_empty()).then_some(Waits { count: found.len() as u64, time })
}
