//! When a device was idle, and why.

use hashbrown::{HashMap, HashSet};

use laptime_trace::{Activity, SpanId, Trace, TrackId};

use crate::devices::{DeviceWork, Devices, Work, WorkKind, uncertainty};
use crate::gap_charge::{Charge, Leads};
use crate::host::Host;
use crate::waits::Found;

/// The longest pause of a device between two queued pieces of work.
pub const TURNAROUND: u64 = 20_000;

/// An idle device starts work within this time after the end of the launch call.
pub const LAUNCH: u64 = 20_000;

/// How many calls before a launch are searched for a stream wait.
const MOST_EARLIER: usize = 64;

/// How many enclosing spans are searched for a sync: files can nest without limit.
const MOST_OUTWARDS: usize = 256;

/// An interval in which a device was idle for one cause: a whole gap, or a part of a gap with several causes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// The end of the previous work, or of the previous part.
    pub from: u64,
    /// The start of the next work, or of the next part.
    pub to: u64,
    /// The cause.
    pub cause: Cause,
    /// The index of the work before the gap; [`NOTHING`] if there was none. A launch-bound program has a gap per kernel, so
    /// gaps are small.
    before: u32,
    /// The index of the work after the gap.
    next: u32,
}

/// No work before a gap.
const NOTHING: u32 = u32::MAX;

impl Gap {
    /// How long it was.
    pub fn length(&self) -> u64 {
        self.to - self.from
    }
}

laptime_trace::words! {
    /// Why a device was idle.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Cause, ALL: key, words {
        /// The host launched the next work too late.
        Host = ("host", "waiting for the host"),
        /// The host waited for the device; without that sync the next work would have been launched in time.
        Sync = ("sync", "after a host sync"),
        /// The host was blocked by a copy, or the next work waited for one.
        Copy = ("copy", "waiting for a copy"),
        /// The next work waited for another stream.
        Stream = ("stream", "waiting for a stream"),
        /// The pause of the device between two queued pieces of work.
        Turnaround = ("turnaround", "turnaround"),
        /// The stream waited for an event that the trace does not explain.
        StreamWait = ("unexplained_wait", "unexplained: stream wait"),
        /// The next work was queued but did not start, for an unknown reason.
        HeldBack = ("unexplained_queued", "unexplained: queued"),
        /// The launch of the next work is not in the trace.
        NoLaunch = ("unexplained_launch", "unexplained: no launch"),
    }
}

/// The gaps of a device in order, each in parts with one cause: the idle time of its window.
pub(crate) fn device_gaps(trace: &Trace, devices: &Devices, device: &DeviceWork, waits: &[Found]) -> Vec<Gap> {
    judged_gaps(trace, devices, device, waits).gaps
}

/// The gaps of a device with the cost of syncs, and the judge, which knows what the host did.
pub(crate) struct Judged<'a> {
    pub(crate) gaps: Vec<Gap>,
    pub(crate) charges: Vec<Charge>,
    pub(crate) judge: Judge<'a>,
}

/// Judges the gaps of a device.
pub(crate) fn judged_gaps<'a>(
    trace: &'a Trace,
    devices: &'a Devices,
    device: &'a DeviceWork,
    waits: &[Found],
) -> Judged<'a> {
    let mut leads = Leads::of(trace, devices, device, waits);
    let judge = Judge::of(trace, devices, device, leads.threads(), waits);
    let (mut gaps, mut charges) = (Vec::new(), Vec::new());
    for gap in open_gaps(device) {
        let (before, next) = gap.places;
        let causes = judge.charged(&gap, judge.causes(&gap), &mut leads, &mut charges);
        gaps.extend(causes.into_iter().map(|(from, to, cause)| Gap { from, to, cause, before, next }));
    }
    gaps.shrink_to_fit();
    Judged { gaps, charges, judge }
}

/// The parts of each gap, grouped by the work after it.
pub(crate) fn whole_gaps(gaps: &[Gap]) -> impl Iterator<Item = &[Gap]> {
    gaps.chunk_by(|one, next| one.next == next.next)
}

/// A gap with an unknown cause.
struct OpenGap {
    from: u64,
    to: u64,
    before: Option<Work>,
    next: Work,
    /// The indices of the two.
    places: (u32, u32),
    /// It is inside a graph: the previous work belongs to the same launch.
    is_inside_launch: bool,
}

impl OpenGap {
    fn length(&self) -> u64 {
        self.to - self.from
    }
}

fn open_gaps(device: &DeviceWork) -> impl Iterator<Item = OpenGap> {
    let (first, last) = device.window().unwrap_or_default();
    let mut begun: HashSet<SpanId> = HashSet::new();
    let (mut reached, mut before) = (first, None);
    device.work.iter().enumerate().filter_map(move |(at, work)| {
        let (at, mut gap) = (at as u32, None);
        let is_inside_launch = work.launch.is_some_and(|launch| !begun.insert(launch));
        // Work of zero length never ends a gap.
        let is_end = work.start < work.end || work.start == last;
        if is_end && work.start > reached && !device.not_recorded.contains(reached) {
            let places = (before.map_or(NOTHING, |(at, _)| at), at);
            let before = before.map(|(_, work)| work);
            gap = Some(OpenGap { from: reached, to: work.start, before, next: *work, places, is_inside_launch });
        }
        if work.end >= reached && is_end {
            (reached, before) = (work.end, Some((at, *work)));
        }
        gap
    })
}

/// What the launching thread did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Doing {
    /// It was in this span and in no child of it.
    Span(SpanId),
    /// No span was open.
    NothingRecorded,
    /// The work was launched but had not started.
    Launched,
}

/// A part of a gap: start, end, cause.
type Caused = (u64, u64, Cause);

/// Finds causes, using the host spans indexed by time.
pub(crate) struct Judge<'a> {
    trace: &'a Trace,
    activities: &'a [Activity],
    work: &'a [Work],
    host: Host<'a>,
    /// Calls that launched a copy and blocked until it was done, and whether the memory is pageable.
    holding: HashMap<SpanId, bool>,
    /// Spans in which the host waited, with the indices of the syncs.
    waits: HashMap<SpanId, usize>,
    /// When work of other devices ended, in order.
    ends_elsewhere: Vec<u64>,
    slack: u64,
}

impl<'a> Judge<'a> {
    fn of(
        trace: &'a Trace,
        devices: &'a Devices,
        device: &'a DeviceWork,
        launching: &[TrackId],
        waits: &[Found],
    ) -> Self {
        let spans = waits.iter().enumerate().filter_map(|(at, wait)| Some((wait.span()?, at)));
        Self {
            trace,
            activities: &devices.activities,
            work: &device.work,
            host: Host::of(trace, launching.iter().copied()),
            holding: holding(trace, devices),
            waits: spans.collect(),
            ends_elsewhere: ends_elsewhere(devices, device),
            slack: uncertainty(trace),
        }
    }

    /// The work before a gap; none if there was none.
    pub(crate) fn before(&self, gap: &Gap) -> Option<&'a Work> {
        self.work.get(gap.before as usize)
    }

    /// The work after a gap.
    pub(crate) fn next(&self, gap: &Gap) -> &'a Work {
        &self.work[gap.next as usize]
    }

    /// Splits a gap into parts with one cause each.
    ///
    /// Time before the launch is caused by the host, depending on the span of the launching thread; time after it is launch
    /// latency, or a reason that delayed the work.
    fn causes(&self, gap: &OpenGap) -> Vec<Caused> {
        let whole = |cause| vec![(gap.from, gap.to, cause)];
        let Some(launch) = gap.next.launch else { return whole(Cause::NoLaunch) };
        if gap.is_inside_launch && gap.length() <= TURNAROUND {
            return whole(Cause::Turnaround);
        }
        if !self.is_late(launch, gap.from) {
            let is_long = gap.length() > TURNAROUND;
            return whole(if is_long { self.cause_of_long_hold(gap, launch) } else { cause_of_short_hold(gap) });
        }
        let queued = self.queued(launch).min(gap.to);
        let mut causes = self.causes_of_lateness(launch, gap.from, queued);
        let cause = match gap.to - queued {
            0 => return causes,
            1..=LAUNCH if self.holding.contains_key(&launch) => Cause::Copy,
            1..=LAUNCH => Cause::Host,
            _ => self.cause_of_long_hold(gap, launch),
        };
        add_cause(&mut causes, (queued, gap.to, cause));
        causes
    }

    /// Whether work had not been launched yet at a moment.
    fn is_late(&self, launch: SpanId, moment: u64) -> bool {
        self.queued(launch) > moment.saturating_add(self.slack)
    }

    /// What the launching thread did in a gap, with start and end of each part. After the launch, the work is on its
    /// way.
    pub(crate) fn doing(&self, gap: &Gap) -> Vec<(Doing, u64, u64)> {
        let Some(launch) = self.next(gap).launch else { return Vec::new() };
        let launched = self.queued(launch).clamp(gap.from, gap.to);
        let parts = self.host.doing_within(self.trace.span_track(launch), gap.from, launched);
        let of = |span: Option<SpanId>| span.map_or(Doing::NothingRecorded, Doing::Span);
        let mut doing: Vec<(Doing, u64, u64)> =
            parts.into_iter().map(|(span, from, to)| (of(span), from, to)).collect();
        if launched < gap.to {
            doing.push((Doing::Launched, launched, gap.to));
        }
        doing
    }

    /// When work was launched: at the end of the launch call, or at the start of the stage that launched it.
    fn queued(&self, launch: SpanId) -> u64 {
        let is_call = self.activities[launch.index()].is_call();
        if is_call { self.trace.span_end(launch).0 } else { self.trace.span_start(launch).0 }
    }

    /// Why the host launched too late: for each part, the sync or copy that the launching thread was in.
    fn causes_of_lateness(&self, launch: SpanId, from: u64, queued: u64) -> Vec<Caused> {
        let mut causes = Vec::new();
        for (span, from, to) in self.host.doing_within(self.trace.span_track(launch), from, queued) {
            let held = span.and_then(|span| self.held_in(span));
            add_cause(&mut causes, (from, to, held.map_or(Cause::Host, |(_, cause)| cause)));
        }
        causes
    }

    /// Charges syncs with the part of a gap that would disappear without them.
    ///
    /// Moments in which the host waited come first. The rest of the lead goes to the earliest moments in which the host was
    /// late: without the sync it would have started earlier.
    fn charged(
        &self,
        gap: &OpenGap,
        causes: Vec<Caused>,
        leads: &mut Leads<'_>,
        charges: &mut Vec<Charge>,
    ) -> Vec<Caused> {
        let Some(launch) = gap.next.launch.filter(|launch| self.is_late(*launch, gap.from)) else { return causes };
        let lead = leads.before(launch, &self.host);
        let mut spent = 0;
        for &(from, to, _) in causes.iter().filter(|(_, _, cause)| matches!(cause, Cause::Sync | Cause::Copy)) {
            spent += to - from;
            charges.extend(self.wait_at(launch, from).map(|wait| Charge { wait, from, to }));
        }
        let Some((wait, time)) = lead else { return causes };
        let mut left = time.saturating_sub(spent);
        let mut charged = Vec::with_capacity(causes.len() + 1);
        for (from, to, cause) in causes {
            let early = if cause == Cause::Host { left.min(to - from) } else { 0 };
            if early > 0 {
                left -= early;
                charges.push(Charge { wait, from, to: from + early });
                add_cause(&mut charged, (from, from + early, Cause::Sync));
            }
            if from + early < to {
                add_cause(&mut charged, (from + early, to, cause));
            }
        }
        leads.spend(launch, time - left);
        charged
    }

    /// The sync that the launching thread was in at a moment.
    fn wait_at(&self, launch: SpanId, moment: u64) -> Option<usize> {
        let inner = self.host.doing(self.trace.span_track(launch), moment)?;
        self.host.outwards(inner).take(MOST_OUTWARDS).filter_map(|id| self.waits.get(&id).copied()).last()
    }

    /// Whether a part of a gap caused by a copy is due to pageable memory.
    pub(crate) fn is_pageable(&self, gap: &Gap) -> bool {
        let launch = self.next(gap).launch;
        let doing = launch.and_then(|launch| self.host.doing(self.trace.span_track(launch), gap.from));
        let is_late = launch.is_some_and(|launch| self.is_late(launch, gap.from));
        match doing.and_then(|span| self.held_in(span)).filter(|_| is_late) {
            Some((call, _)) => self.holding.get(&call) == Some(&true),
            None => self.before(gap).is_some_and(|before| is_pageable(self.trace, before)),
        }
    }

    /// The outermost sync or copy around a span, with the cause.
    fn held_in(&self, inner: SpanId) -> Option<(SpanId, Cause)> {
        let holds = self.host.outwards(inner).take(MOST_OUTWARDS).filter_map(|id| {
            let is_copy = || self.trace.span(id).name.contains("Memcpy");
            match self.activities[id.index()] {
                Activity::Wait if is_copy() => Some((id, Cause::Copy)),
                Activity::Wait => Some((id, Cause::Sync)),
                Activity::Launch if self.holding.contains_key(&id) => Some((id, Cause::Copy)),
                _ => None,
            }
        });
        holds.last()
    }

    /// Why queued work did not start for long.
    fn cause_of_long_hold(&self, gap: &OpenGap, launch: SpanId) -> Cause {
        if gap.is_inside_launch || !self.is_after_stream_wait(launch) {
            Cause::HeldBack
        } else if self.is_end_elsewhere(gap.to) {
            Cause::Stream
        } else {
            Cause::StreamWait
        }
    }

    /// Whether work of another device ended just before a moment. Other streams of this device are idle in a gap.
    fn is_end_elsewhere(&self, moment: u64) -> bool {
        let first = moment.saturating_sub(TURNAROUND.saturating_add(self.slack));
        let at = self.ends_elsewhere.partition_point(|end| *end < first);
        self.ends_elsewhere.get(at).is_some_and(|end| *end <= moment.saturating_add(self.slack))
    }

    /// Whether the host made a stream wait for another one since the previous launch.
    fn is_after_stream_wait(&self, launch: SpanId) -> bool {
        let start = self.trace.span_start(launch);
        let is_done_launch =
            |id: &SpanId| self.activities[id.index()] == Activity::Launch && self.trace.span_end(*id) <= start;
        let mut since = self.host.earlier(launch).take(MOST_EARLIER).take_while(|id| !is_done_launch(id));
        since.any(|id| self.activities[id.index()] == Activity::Call && self.trace.span(id).name.contains("StreamWait"))
    }
}

/// Adds a part, to the last one if the cause is the same.
fn add_cause(causes: &mut Vec<Caused>, (from, to, cause): Caused) {
    match causes.last_mut() {
        Some(last) if last.2 == cause => last.1 = to,
        _ => causes.push((from, to, cause)),
    }
}

/// Why queued work started slightly later.
fn cause_of_short_hold(gap: &OpenGap) -> Cause {
    match gap.before.filter(|before| before.stream != gap.next.stream && !gap.is_inside_launch) {
        Some(before) if before.kind == WorkKind::Copy => Cause::Copy,
        Some(_) => Cause::Stream,
        None => Cause::Turnaround,
    }
}

/// When work of other devices ended, in order.
fn ends_elsewhere(devices: &Devices, device: &DeviceWork) -> Vec<u64> {
    let others = devices.devices.iter().filter(|other| (other.number, &other.name) != (device.number, &device.name));
    let mut ends: Vec<u64> = others.flat_map(|other| &other.work).map(|work| work.end).collect();
    ends.sort_unstable();
    ends
}

/// Whether work is a copy from or to pageable host memory.
pub(crate) fn is_pageable(trace: &Trace, work: &Work) -> bool {
    work.kind == WorkKind::Copy && trace.span(work.id).copy_path().is_some_and(|path| path.is_pageable())
}

/// Calls that launched a copy and blocked: pageable memory, or the call lasted until the copy was done.
fn holding(trace: &Trace, devices: &Devices) -> HashMap<SpanId, bool> {
    let copies = devices.work().filter(|work| work.kind == WorkKind::Copy);
    let launched = copies.filter_map(|work| Some((work, work.launch?, is_pageable(trace, work))));
    let holds = launched.filter(|(work, launch, is_pageable)| *is_pageable || trace.span_end(*launch).0 >= work.end);
    holds.map(|(_, launch, is_pageable)| (launch, is_pageable)).collect()
}

#[cfg(test)]
mod tests;
