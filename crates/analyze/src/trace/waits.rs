//! The syncs of a trace, each once: the common source of all answers about syncs.

use hashbrown::HashMap;
use laptime_trace::{
    Activity, CopyPath, MarkId, MemoryKind, NameId, ProcessId, SYNC, Span, SpanId, Trace, TrackId, activity::category,
};

use crate::devices::{Devices, Work, WorkKind, uncertainty};
use crate::intervals::Stretches;

laptime_trace::words! {
    /// The kind of a sync.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum WaitKind: word {
        /// A call that waits by design: `cudaStreamSynchronize`, a synchronous copy.
        Call = "call",
        /// The program marked it with `sync_point!`.
        Marked = "marked",
        /// A call that should not wait but did: the trace shows that it lasted until work of a device was done.
        Implicit = "implicit",
    }
}

/// A sync in the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Found {
    /// Its kind.
    pub kind: WaitKind,
    /// The thread that waited.
    pub track: TrackId,
    /// When it began.
    pub start: u64,
    /// When it ended; none for a mark, which has no length.
    pub end: Option<u64>,
    /// Its source.
    pub place: Place,
}

impl Found {
    /// The call, or the name that the program gave the sync.
    pub fn name_id(&self, trace: &Trace) -> NameId {
        match self.place {
            Place::Span(id) => trace.span_name(id),
            Place::Mark(_, name) => name,
        }
    }

    /// The same as a text.
    pub fn name<'t>(&self, trace: &'t Trace) -> &'t str {
        trace.name(self.name_id(trace))
    }

    /// Its span; none for a mark.
    pub fn span(&self) -> Option<SpanId> {
        match self.place {
            Place::Span(id) => Some(id),
            Place::Mark(..) => None,
        }
    }
}

/// The source of a sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// A span.
    Span(SpanId),
    /// A mark, and its name.
    Mark(MarkId, NameId),
}

/// Finds the syncs of every thread, in order of start. Nested syncs count once.
pub fn waits(trace: &Trace, devices: &Devices) -> Vec<Found> {
    let evidence = Evidence::of(trace, devices);
    let mut stopping: HashMap<NameId, bool> = HashMap::new();
    let mut may_stop =
        |id| *stopping.entry(trace.span_name(id)).or_insert_with(|| may_stop(trace.name(trace.span_name(id))));
    let mut found: HashMap<TrackId, Vec<Found>> = HashMap::new();
    let is_call = |id: &SpanId| {
        let activity = devices.activities[id.index()];
        activity == Activity::Wait || activity.is_call()
    };
    for id in trace.span_ids().filter(is_call) {
        let is_on_device = trace.track(trace.span_track(id)).kind.is_device();
        if is_on_device || devices.activities[id.index()] == Activity::Call && !may_stop(id) {
            continue;
        }
        let span = trace.span(id);
        let Some(kind) = evidence.kind(&span, devices.activities[span.id.index()]) else { continue };
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
        let wait = Found { kind, track: mark.track, start, end: None, place: Place::Mark(mark.id, name) };
        found.entry(mark.track).or_default().push(wait);
    }
    let mut waits: Vec<Found> = found.into_values().flat_map(outermost).collect();
    waits.sort_by_key(|wait| (wait.start, wait.track));
    waits
}

/// When any thread waited; parallel waits count once.
pub fn waiting(waits: &[Found]) -> Stretches {
    Stretches::union(waits.iter().filter_map(|wait| Some((wait.start, wait.end?))).collect())
}

/// Leaves out syncs within another sync of the same thread.
fn outermost(mut waits: Vec<Found>) -> Vec<Found> {
    // Stable: among equal times the outer one comes first.
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

/// The assumed clock difference between host and device if the trace has none.
const SKEW: u64 = 5_000;

/// A shorter call may have returned early by this much.
const LEAST_SKEWED: u64 = 4 * SKEW;

/// A device index, and the process that gave it work; none if unknown.
type Given = (usize, Option<ProcessId>);

/// Whether calls lasted until device work was done.
struct Evidence<'a> {
    trace: &'a Trace,
    /// When the copies and memsets of a call were done.
    done: HashMap<SpanId, Done>,
    /// How many devices there are.
    devices: usize,
    /// Pending work of devices.
    pending: HashMap<Given, Pending>,
    /// The clock uncertainty.
    apart: u64,
}

#[derive(Debug, Clone, Copy, Default)]
struct Done {
    /// All of them.
    all: u64,
    /// Those that may block the host; none if none does.
    holding: Option<u64>,
    /// Those into pageable memory of the host.
    read: Option<u64>,
}

impl<'a> Evidence<'a> {
    fn of(trace: &'a Trace, devices: &Devices) -> Self {
        let mut done: HashMap<SpanId, Done> = HashMap::new();
        let work = || devices.work();
        for (work, launch) in work().filter_map(|work| Some((work, work.launch?))) {
            if work.kind == WorkKind::Copy {
                let known = done.entry(launch).or_default();
                known.all = known.all.max(work.end);
                let path = trace.span(work.id).copy_path();
                if path.is_some_and(|path| may_hold_up(&path)) {
                    known.holding = known.holding.max(Some(work.end));
                }
                if path.is_some_and(|path| path.is_download() && path.to == MemoryKind::Pageable) {
                    known.read = known.read.max(Some(work.end));
                }
            }
        }
        let mut given: HashMap<Given, Vec<(u64, u64)>> = HashMap::new();
        for (at, device) in devices.devices.iter().enumerate() {
            for work in &device.work {
                let (process, moment) = giver(trace, work);
                given.entry((at, process)).or_default().push((moment, work.end));
            }
        }
        let pending = given.into_iter().map(|(key, given)| (key, Pending::of(given))).collect();
        Self { trace, done, devices: devices.devices.len(), pending, apart: uncertainty(trace) }
    }

    /// The kind of sync of a host span; none if it is not a sync. A call with this activity may block.
    fn kind(&self, span: &Span<'_>, activity: Activity) -> Option<WaitKind> {
        let is_implicit = match activity {
            Activity::Wait if span.category == SYNC => return Some(WaitKind::Marked),
            Activity::Wait if span.category == category::OVERHEAD => true,
            Activity::Wait => return (!self.is_back_early(span)).then_some(WaitKind::Call),
            Activity::Launch => self.is_held_by_copy(span) || self.is_held_by_all(span),
            Activity::Call => self.is_held_by_earlier(span),
            _ => false,
        };
        is_implicit.then_some(WaitKind::Implicit)
    }

    /// Whether a copy call certainly returned before its copies were done.
    fn is_back_early(&self, call: &Span<'_>) -> bool {
        let apart = self.apart.max(skew(call));
        self.done.get(&call.id).is_some_and(|done| call.end().0.saturating_add(apart) < done.all)
    }

    /// Whether a call certainly lasted until something was done that was pending when it started.
    fn lasted_until(&self, call: &Span<'_>, done: u64) -> bool {
        done > call.start.0 && call.end().0 >= done.saturating_add(self.apart)
    }

    /// Whether a copy call lasted until its own copies were done.
    ///
    /// Between a device and pinned memory, or within a device, a copy never blocks the host: a call that lasted so long was
    /// slow for another reason.
    fn is_held_by_copy(&self, call: &Span<'_>) -> bool {
        let Some(done) = self.done.get(&call.id).filter(|_| call.name.contains("Memcpy")) else { return false };
        // Data read into pageable memory is there when the call returns: a copy that seems to end later is a clock
        // difference, unless the trace has a clock uncertainty.
        let is_silent = self.trace.clock_uncertainty.is_none();
        let is_read = |done: u64| is_silent && done > call.start.0 && call.end().0.saturating_add(skew(call)) >= done;
        done.holding.is_some_and(|done| self.lasted_until(call, done)) || done.read.is_some_and(is_read)
    }

    /// Whether a memset, or a copy within a device, without an asynchronous name lasted until it and all earlier work was
    /// done. On an idle device it finishes before its call returns without blocking it.
    fn is_held_by_all(&self, call: &Span<'_>) -> bool {
        let Some(done) = self.done.get(&call.id) else { return false };
        let is_named = call.name.contains("Memset") || call.name.contains("Memcpy");
        is_named && !call.name.contains("Async") && self.lasted_until(call, done.all) && self.is_held_by_earlier(call)
    }

    /// Whether a call lasted until a device had finished all earlier work that was pending.
    fn is_held_by_earlier(&self, call: &Span<'_>) -> bool {
        let process = self.trace.track(call.track).process;
        let done = |device: usize, process: Option<ProcessId>| {
            self.pending.get(&(device, process)).and_then(|pending| pending.done(call.start.0))
        };
        (0..self.devices)
            .filter_map(|device| done(device, Some(process)).max(done(device, None)))
            .any(|done| self.lasted_until(call, done))
    }
}

/// The process that launched work and when; if unknown, when the work started.
fn giver(trace: &Trace, work: &Work) -> (Option<ProcessId>, u64) {
    match work.launch {
        Some(launch) => (Some(trace.track(trace.span_track(launch)).process), trace.span_start(launch).0),
        None => (None, work.start),
    }
}

/// Work in launch order: when it was launched, and when all work up to it was done.
struct Pending {
    given: Vec<(u64, u64)>,
}

impl Pending {
    fn of(mut given: Vec<(u64, u64)>) -> Self {
        given.sort_unstable();
        let mut reached = 0;
        for (_, done) in &mut given {
            reached = reached.max(*done);
            *done = reached;
        }
        Self { given }
    }

    /// When all work launched before a moment was done; none if there was none.
    fn done(&self, moment: u64) -> Option<u64> {
        let before = self.given.partition_point(|(given, _)| *given < moment);
        Some(self.given[before.checked_sub(1)?].1)
    }
}

/// The clock uncertainty for a call of this length and its copy.
fn skew(call: &Span<'_>) -> u64 {
    if call.duration.0 >= LEAST_SKEWED { SKEW } else { 0 }
}

fn may_hold_up(path: &CopyPath) -> bool {
    let is_free = |kind: MemoryKind| matches!(kind, MemoryKind::Pinned | MemoryKind::Device | MemoryKind::Array);
    !(is_free(path.from) && is_free(path.to))
}

/// Calls that may wait for a device although their names do not suggest it: they free something that work may still
/// use, or pin memory.
const MAY_STOP: [&str; 8] = [
    "Free",
    "HostRegister",
    "HostUnregister",
    "ModuleUnload",
    "LibraryUnload",
    "MemUnmap",
    "DeviceReset",
    "CtxDestroy",
];

fn may_stop(call: &str) -> bool {
    !call.contains("Async") && MAY_STOP.iter().any(|name| call.contains(name))
}
