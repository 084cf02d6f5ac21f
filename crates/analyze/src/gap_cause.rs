//! When a device did nothing, and why.

use std::collections::{HashMap, HashSet};

use laptime_trace::{Activity, SpanId, Trace, TrackId};

use crate::{
    devices::{DeviceWork, Devices, Work, WorkKind, uncertainty},
    host::Host,
};

/// A device needs up to this long from one piece of queued work to the next.
pub const TURNAROUND: u64 = 20_000;

/// A device begins what it has nothing else to do than within this long of the end of the call that launched it.
pub const LAUNCH: u64 = 20_000;

/// Calls before a launch that are looked at for one that makes a stream wait.
const MOST_EARLIER: usize = 64;

/// Spans around one that are looked at for a wait: a file may nest without end.
const MOST_OUTWARDS: usize = 256;

/// A stretch in which a device did nothing at all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// When the last work ended.
    pub from: u64,
    /// When the next work began.
    pub to: u64,
    /// Why.
    pub cause: Cause,
    /// The work that ended last; none if nothing was before.
    pub before: Option<Work>,
    /// The work that ended the gap.
    pub next: Work,
}

impl Gap {
    /// How long it was.
    pub fn length(&self) -> u64 {
        self.to - self.from
    }
}

/// Why a device did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Cause {
    /// The host launched the next work too late.
    Host,
    /// The host waited for the device and let it run dry.
    Sync,
    /// The host was held by a copy, or the next work waited for one.
    Copy,
    /// The next work waited for another stream.
    Stream,
    /// The device's own time between two pieces of queued work.
    Turnaround,
    /// The next work was queued and did not begin, and the trace does not say why.
    HeldBack,
    /// The trace does not say when the next work was launched.
    NoLaunch,
}

impl Cause {
    /// All causes, in the order they are shown.
    pub const ALL: [Self; 7] =
        [Self::Host, Self::Sync, Self::Copy, Self::Stream, Self::Turnaround, Self::HeldBack, Self::NoLaunch];

    /// The cause in a word, for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Sync => "sync",
            Self::Copy => "copy",
            Self::Stream => "stream",
            Self::Turnaround => "turnaround",
            Self::HeldBack => "unexplained_queued",
            Self::NoLaunch => "unexplained_launch",
        }
    }

    /// The cause in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Host => "the host was late",
            Self::Sync => "the host waited (sync)",
            Self::Copy => "held by a copy",
            Self::Stream => "waited for a stream",
            Self::Turnaround => "turnaround",
            Self::HeldBack => "unexplained: queued",
            Self::NoLaunch => "unexplained: no launch",
        }
    }
}

/// The gaps of a device in order: exactly what its work leaves free of its window.
pub(crate) fn device_gaps(trace: &Trace, devices: &Devices, device: &DeviceWork) -> Vec<Gap> {
    judged_gaps(trace, devices, device).0
}

/// The gaps of a device, and the judge, who can say what the host did meanwhile.
pub(crate) fn judged_gaps<'a>(trace: &'a Trace, devices: &'a Devices, device: &DeviceWork) -> (Vec<Gap>, Judge<'a>) {
    let open = open_gaps(device);
    let judge = Judge::of(trace, devices, &open);
    let gap = |open: OpenGap| Gap {
        from: open.from,
        to: open.to,
        cause: judge.cause(&open),
        before: open.before,
        next: open.next,
    };
    (open.into_iter().map(gap).collect(), judge)
}

/// A gap whose cause is not known yet.
struct OpenGap {
    from: u64,
    to: u64,
    before: Option<Work>,
    next: Work,
    /// Other work of the same launch came before: it is the inside of a graph.
    is_inside_launch: bool,
}

impl OpenGap {
    fn length(&self) -> u64 {
        self.to - self.from
    }

    fn is_most(&self, part: u64) -> bool {
        part.saturating_mul(2) >= self.length()
    }
}

fn open_gaps(device: &DeviceWork) -> Vec<OpenGap> {
    let Some((first, last)) = device.window() else { return Vec::new() };
    let mut gaps = Vec::new();
    let mut begun: HashSet<SpanId> = HashSet::new();
    let (mut reached, mut before) = (first, None);
    for work in &device.work {
        let is_inside_launch = work.launch.is_some_and(|launch| !begun.insert(launch));
        // Work without length is an end of the window at most, never of a gap.
        let is_end = work.start < work.end || work.start == last;
        if is_end && work.start > reached {
            gaps.push(OpenGap { from: reached, to: work.start, before, next: *work, is_inside_launch });
        }
        if work.end >= reached && is_end {
            (reached, before) = (work.end, Some(*work));
        }
    }
    gaps
}

/// What the launching thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It was in this span and in none inside it.
    Span(SpanId),
    /// No span was open.
    NothingRecorded,
    /// It had launched the work, which had not begun.
    Launched,
}

/// Decides causes: the host's spans, prepared to be asked by time.
pub(crate) struct Judge<'a> {
    trace: &'a Trace,
    activities: &'a [Activity],
    host: Host<'a>,
    /// Calls that launched a copy and returned no sooner than the copy allowed.
    holding: HashSet<SpanId>,
    slack: u64,
}

impl<'a> Judge<'a> {
    fn of(trace: &'a Trace, devices: &'a Devices, gaps: &[OpenGap]) -> Self {
        let launching: HashSet<TrackId> =
            gaps.iter().filter_map(|gap| gap.next.launch).map(|launch| trace.span_track(launch)).collect();
        Self {
            trace,
            activities: &devices.activities,
            host: Host::of(trace, launching),
            holding: holding(trace, devices),
            slack: uncertainty(trace),
        }
    }

    fn cause(&self, gap: &OpenGap) -> Cause {
        let Some(launch) = gap.next.launch else { return Cause::NoLaunch };
        if gap.is_inside_launch && gap.length() <= TURNAROUND {
            return Cause::Turnaround;
        }
        let queued = self.queued(launch);
        let is_late = queued > gap.from.saturating_add(self.slack);
        let held = gap.to.saturating_sub(queued);
        if is_late && held <= (gap.length() / 2).max(LAUNCH) {
            self.cause_of_lateness(gap, launch, queued)
        } else {
            self.cause_of_holding(gap, launch)
        }
    }

    /// What the launching thread did in a gap: each part with its span, and how long. What follows the launch is the
    /// work on its way.
    pub(crate) fn doing(&self, gap: &Gap) -> Vec<(Doing, u64)> {
        let Some(launch) = gap.next.launch else { return Vec::new() };
        let launched = self.queued(launch).clamp(gap.from, gap.to);
        let parts = self.host.doing_within(self.trace.span_track(launch), gap.from, launched);
        let of = |span: Option<SpanId>| span.map_or(Doing::NothingRecorded, Doing::Span);
        let mut doing: Vec<(Doing, u64)> = parts.into_iter().map(|(span, from, to)| (of(span), to - from)).collect();
        if launched < gap.to {
            doing.push((Doing::Launched, gap.to - launched));
        }
        doing
    }

    /// When work was on its way: at the end of the call that launched it, or at the beginning of a stage that did.
    fn queued(&self, launch: SpanId) -> u64 {
        let is_call = self.activities[launch.index()].is_call();
        if is_call { self.trace.span_end(launch).0 } else { self.trace.span_start(launch).0 }
    }

    /// Why the host launched too late.
    ///
    /// A wait is to blame for no more than its own length: without it the launch would have come that much earlier.
    fn cause_of_lateness(&self, gap: &OpenGap, launch: SpanId, queued: u64) -> Cause {
        let track = self.trace.span_track(launch);
        let (first, last) = (gap.from.saturating_sub(self.slack), gap.from.saturating_add(self.slack));
        let moments = [Some(gap.from), (first < gap.from).then_some(first), (gap.from < last).then_some(last)];
        let mut holds = moments.into_iter().flatten().filter_map(|moment| self.held_at(track, moment));
        if let Some((cause, _)) = holds.find(|(_, length)| gap.is_most(*length)) {
            return cause;
        }
        let mut times: HashMap<Cause, u64> = HashMap::new();
        for (span, from, to) in self.host.doing_within(track, gap.from, queued.min(gap.to)) {
            if let Some((cause, _)) = span.and_then(|span| self.held_in(span)) {
                *times.entry(cause).or_default() += to - from;
            }
        }
        let most = [Cause::Sync, Cause::Copy]
            .into_iter()
            .find(|cause| times.get(cause).is_some_and(|&time| gap.is_most(time)));
        most.unwrap_or(Cause::Host)
    }

    fn held_at(&self, track: TrackId, moment: u64) -> Option<(Cause, u64)> {
        self.held_in(self.host.doing(track, moment)?)
    }

    /// The outermost wait or copy that a span lies in, with its length.
    fn held_in(&self, inner: SpanId) -> Option<(Cause, u64)> {
        let holds = self.host.outwards(inner).take(MOST_OUTWARDS).filter_map(|id| {
            let is_copy = || self.trace.span(id).name.contains("Memcpy");
            let cause = match self.activities[id.index()] {
                Activity::Wait => {
                    if is_copy() {
                        Cause::Copy
                    } else {
                        Cause::Sync
                    }
                }
                Activity::Launch if self.holding.contains(&id) => Cause::Copy,
                _ => return None,
            };
            Some((cause, self.trace.span_end(id).0 - self.trace.span_start(id).0))
        });
        holds.last()
    }

    /// Why work that was queued did not begin.
    fn cause_of_holding(&self, gap: &OpenGap, launch: SpanId) -> Cause {
        let other = gap.before.filter(|before| before.stream != gap.next.stream && !gap.is_inside_launch);
        match other {
            _ if gap.length() > TURNAROUND => {
                if !gap.is_inside_launch && self.is_told_to_wait(launch) {
                    Cause::Stream
                } else {
                    Cause::HeldBack
                }
            }
            Some(before) if before.kind == WorkKind::Copy => Cause::Copy,
            Some(_) => Cause::Stream,
            None => Cause::Turnaround,
        }
    }

    /// Whether the host made a stream wait for another one since it launched anything else.
    fn is_told_to_wait(&self, launch: SpanId) -> bool {
        let start = self.trace.span_start(launch);
        let is_done_launch =
            |id: &SpanId| self.activities[id.index()] == Activity::Launch && self.trace.span_end(*id) <= start;
        let mut since = self.host.earlier(launch).take(MOST_EARLIER).take_while(|id| !is_done_launch(id));
        since.any(|id| self.activities[id.index()] == Activity::Call && self.trace.span(id).name.contains("StreamWait"))
    }
}

/// Calls that launched a copy and were held by it: of pageable memory, or they lasted until the copy was done.
fn holding(trace: &Trace, devices: &Devices) -> HashSet<SpanId> {
    let copies = devices.devices.iter().flat_map(|device| &device.work).filter(|work| work.kind == WorkKind::Copy);
    let launched = copies.filter_map(|work| Some((work, work.launch?)));
    let holds = launched.filter(|(work, launch)| {
        let is_pageable = trace.span(work.id).copy_path().is_some_and(|path| path.is_pageable());
        is_pageable || trace.span_end(*launch).0 >= work.end
    });
    holds.map(|(_, launch)| launch).collect()
}

#[cfg(test)]
mod tests;
