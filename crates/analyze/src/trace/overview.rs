//! Totals of a trace, which every answer about a trace includes.

use laptime_trace::{Nanos, Trace, TrackKind};

use crate::devices::pauses;
use crate::waits::{Found, waiting};
use crate::{finding::Finding, timeline::Prepared};

/// The totals of a trace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Overview {
    /// From the first event to the last.
    pub wall: Nanos,
    /// Spans.
    pub spans: u64,
    /// Host threads that have spans.
    pub threads: u64,
    /// Device streams and copy engines that have spans.
    pub streams: u64,
    /// Spans that were still open when the recording ended.
    pub open: u64,
    /// Events that were dropped while recording.
    pub dropped: u64,
    /// Time between the first event and the last in which recording was paused.
    pub not_recorded: Nanos,
    /// The uncertainty of device times relative to host times.
    pub clock_uncertainty: Option<Nanos>,
    /// Syncs of the host; none if there were none.
    pub waits: Option<Waits>,
    /// What the reader of the file could not interpret.
    pub warnings: Vec<String>,
    /// Checks that the trace fails.
    pub findings: Vec<Finding>,
}

/// Syncs: the host waits for a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Waits {
    /// How many.
    pub count: u64,
    /// The time in which at least one thread waited.
    pub time: Nanos,
}

/// Computes the totals of a trace, and checks it.
pub fn overview(trace: &Trace) -> Overview {
    Prepared::of(trace).overview
}

/// The same if the syncs and the findings of the checks are known.
pub fn overview_of(trace: &Trace, waits: &[Found], findings: Vec<Finding>) -> Overview {
    let wall = trace.bounds().map_or(Nanos(0), |(first, last)| last.saturating_sub(first));
    let tracks = |is_kind: fn(TrackKind) -> bool| {
        let has_spans = |id| trace.spans_on(id).len() > 0;
        trace.tracks().filter(|(id, track)| is_kind(track.kind) && has_spans(*id)).count() as u64
    };
    Overview {
        wall,
        spans: trace.span_count() as u64,
        threads: tracks(|kind| kind == TrackKind::Thread),
        streams: tracks(TrackKind::is_device),
        open: trace.open_count() as u64,
        dropped: trace.lost,
        not_recorded: not_recorded(trace),
        clock_uncertainty: trace.clock_uncertainty,
        waits: waited(waits),
        warnings: trace.warnings.clone(),
        findings,
    }
}

/// The time between the first event and the last in which a process did not record everything.
pub fn not_recorded(trace: &Trace) -> Nanos {
    let Some((first, last)) = trace.bounds() else { return Nanos(0) };
    Nanos(pauses(trace).length_within(first.0, last.0))
}

fn waited(found: &[Found]) -> Option<Waits> {
    let time = Nanos(waiting(found).length());
    (!found.is_empty()).then_some(Waits { count: found.len() as u64, time })
}
