//! The waits of a trace, each once.

use std::collections::HashMap;

use laptime_trace::{Activity, CopyPath, MemoryKind, NameId, SYNC, SpanId, Trace, TrackId};

use super::WaitKind;
use crate::devices::{Devices, uncertainty};

/// A wait as it stands in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: WaitKind,
    pub(super) track: TrackId,
    pub(super) start: u64,
    /// When it ended; none of a mark, which only says that there was a wait.
    pub(super) end: Option<u64>,
    pub(super) place: Place,
}

/// What tells of a wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Span(SpanId),
    /// A mark, by its name.
    Mark(NameId),
}

/// Finds the waits of every thread, in order of start. One inside another is part of it.
pub(super) fn waits(trace: &Trace, devices: &Devices) -> Vec<Found> {
    let implicit = implicit(trace, devices);
    let mut found: HashMap<TrackId, Vec<Found>> = HashMap::new();
    for span in trace.spans().filter(|span| !trace.track(span.track).kind.is_device()) {
        let kind = match devices.activities[span.id.index()] {
            Activity::Wait if span.category == SYNC => WaitKind::Marked,
            Activity::Wait => WaitKind::Call,
            _ if implicit.contains_key(&span.id) => WaitKind::Implicit,
            _ => continue,
        };
        let wait = Found {
            kind,
            track: span.track,
            start: span.start.0,
            end: Some(span.end().0),
            place: Place::Span(span.id),
        };
        found.entry(span.track).or_default().push(wait);
    }
    for mark in trace.marks().filter(|mark| mark.category == SYNC) {
        let Some(name) = trace.known_name(mark.name) else { continue };
        let (kind, start) = (WaitKind::Marked, mark.time.0);
        let wait = Found { kind, track: mark.track, start, end: None, place: Place::Mark(name) };
        found.entry(mark.track).or_default().push(wait);
    }
    let mut waits: Vec<Found> = found.into_values().flat_map(outermost).collect();
    waits.sort_by_key(|wait| (wait.start, wait.track));
    waits
}

/// Leaves out what lies within another wait of the same thread.
fn outermost(mut waits: Vec<Found>) -> Vec<Found> {
    // Stable: of two that take the same time the outer one came first.
    waits.sort_by_key(|wait| (wait.start, std::cmp::Reverse(wait.end)));
    let mut reached: Option<u64> = None;
    waits.retain(|wait| {
        let end = wait.end.unwrap_or(wait.start);
        let is_outermost = reached.is_none_or(|reached| end > reached || wait.start >= reached && wait.end.is_some());
        if is_outermost {
            reached = reached.max(wait.end);
        }
        is_outermost
    });
    waits
}

/// The calls of copies that lasted until their own copies were done, beyond what the clocks may be apart.
///
/// Between a device and pinned memory, or within a device, a copy never holds the host up: there a call that lasted so
/// long was slow for another reason.
fn implicit(trace: &Trace, devices: &Devices) -> HashMap<SpanId, u64> {
    let mut done: HashMap<SpanId, u64> = HashMap::new();
    for work in devices.devices.iter().flat_map(|device| &device.work) {
        let Some(launch) = work.launch.filter(|id| devices.activities[id.index()] == Activity::Launch) else {
            continue;
        };
        if trace.span(work.id).copy_path().is_some_and(|path| may_hold_up(&path)) {
            let end = done.entry(launch).or_insert(0);
            *end = (*end).max(work.end);
        }
    }
    let apart = uncertainty(trace);
    done.retain(|launch, done| {
        let call = trace.span(*launch);
        call.end().0 >= done.saturating_add(apart) && *done > call.start.0 && call.name.contains("Memcpy")
    });
    done
}

fn may_hold_up(path: &CopyPath) -> bool {
    let is_free = |kind: MemoryKind| matches!(kind, MemoryKind::Pinned | MemoryKind::Device | MemoryKind::Array);
    !(is_free(path.from) && is_free(path.to))
}
