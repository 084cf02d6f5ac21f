//! When a device did nothing, and why.

use std::collections::{HashMap, HashSet};

use laptime_trace::{Activity, SpanId, Trace, TrackId};

use crate::{
    devices::{DeviceWork, Devices, Work, WorkKind, uncertainty},
    gap_charge::{Charge, Leads},
    host::Host,
    waits::{Found, Place, waits},
};

/// A device needs up to this long from one piece of queued work to the next.
pub const TURNAROUND: u64 = 20_000;

/// A device begins what it has nothing else to do than within this long of the end of the call that launched it.
pub const LAUNCH: u64 = 20_000;

/// Calls before a launch that are looked at for one that makes a stream wait.
const MOST_EARLIER: usize = 64;

/// Spans around one that are looked at for a wait: a file may nest without end.
const MOST_OUTWARDS: usize = 256;

/// A stretch in which a device did nothing at all, for one cause: a whole gap, or a part of one that has several.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Gap {
    /// When the last work ended, or the part before this one.
    pub from: u64,
    /// When the next work began, or the next part.
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
    /// The host had waited for the device: without that wait the next work would have been launched in time.
    Sync,
    /// The host was held by a copy, or the next work waited for one.
    Copy,
    /// The next work waited for another stream.
    Stream,
    /// The device's own time between two pieces of queued work.
    Turnaround,
    /// The next work was told to wait for something that the trace does not show.
    ToldToWait,
    /// The next work was queued and did not begin, and the trace does not say why.
    HeldBack,
    /// The trace does not say when the next work was launched.
    NoLaunch,
}

impl Cause {
    /// All causes, in the order they are shown.
    pub const ALL: [Self; 8] = [
        Self::Host,
        Self::Sync,
        Self::Copy,
        Self::Stream,
        Self::Turnaround,
        Self::ToldToWait,
        Self::HeldBack,
        Self::NoLaunch,
    ];

    /// The cause in a word, for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Sync => "sync",
            Self::Copy => "copy",
            Self::Stream => "stream",
            Self::Turnaround => "turnaround",
            Self::ToldToWait => "unexplained_wait",
            Self::HeldBack => "unexplained_queued",
            Self::NoLaunch => "unexplained_launch",
        }
    }

    /// The cause in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Host => "the host was late",
            Self::Sync => "caused by a host sync",
            Self::Copy => "held by a copy",
            Self::Stream => "waited for a stream",
            Self::Turnaround => "turnaround",
            Self::ToldToWait => "unexplained: told to wait",
            Self::HeldBack => "unexplained: queued",
            Self::NoLaunch => "unexplained: no launch",
        }
    }
}

/// The gaps of a device in order, each in parts of one cause: exactly what its work leaves free of its window.
pub(crate) fn device_gaps(trace: &Trace, devices: &Devices, device: &DeviceWork) -> Vec<Gap> {
    judged_gaps(trace, devices, device, &waits(trace, devices)).gaps
}

/// The gaps of a device with what waits are charged with, and the judge, who can say what the host did meanwhile.
pub(crate) struct Judged<'a> {
    pub(crate) gaps: Vec<Gap>,
    pub(crate) charges: Vec<Charge>,
    pub(crate) judge: Judge<'a>,
}

/// Judges the gaps of a device.
pub(crate) fn judged_gaps<'a>(
    trace: &'a Trace,
    devices: &'a Devices,
    device: &DeviceWork,
    waits: &[Found],
) -> Judged<'a> {
    let open = open_gaps(device);
    let mut leads = Leads::of(trace, devices, device, waits);
    let judge = Judge::of(trace, devices, device, leads.threads(), waits);
    let (mut gaps, mut charges) = (Vec::with_capacity(open.len()), Vec::new());
    for gap in &open {
        let (before, next) = (gap.before, gap.next);
        let causes = judge.charged(gap, judge.causes(gap), &mut leads, &mut charges);
        gaps.extend(causes.into_iter().map(|(from, to, cause)| Gap { from, to, cause, before, next }));
    }
    Judged { gaps, charges, judge }
}

/// The parts of each gap together: those that the same work ended.
pub(crate) fn whole_gaps(gaps: &[Gap]) -> impl Iterator<Item = &[Gap]> {
    gaps.chunk_by(|one, next| one.next.id == next.next.id)
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
        if is_end && work.start > reached && !device.not_recorded.contains(reached) {
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

/// A part of a gap: from, to, why.
type Caused = (u64, u64, Cause);

/// Decides causes: the host's spans, prepared to be asked by time.
pub(crate) struct Judge<'a> {
    trace: &'a Trace,
    activities: &'a [Activity],
    host: Host<'a>,
    /// Calls that launched a copy and returned no sooner than the copy allowed, and whether its memory is pageable.
    holding: HashMap<SpanId, bool>,
    /// Spans in which the host waited, with the places of the waits.
    waits: HashMap<SpanId, usize>,
    /// When work of other devices ended, in order.
    ends_elsewhere: Vec<u64>,
    slack: u64,
}

impl<'a> Judge<'a> {
    fn of(trace: &'a Trace, devices: &'a Devices, device: &DeviceWork, launching: &[TrackId], waits: &[Found]) -> Self {
        let spans = waits.iter().enumerate().filter_map(|(at, wait)| match wait.place {
            Place::Span(id) => Some((id, at)),
            Place::Mark(..) => None,
        });
        Self {
            trace,
            activities: &devices.activities,
            host: Host::of(trace, launching.iter().copied()),
            holding: holding(trace, devices),
            waits: spans.collect(),
            ends_elsewhere: ends_elsewhere(devices, device),
            slack: uncertainty(trace),
        }
    }

    /// Divides a gap into parts of one cause each.
    ///
    /// What lies before the launch is the host's, by what the launching thread was in; what follows is the launch on its
    /// way, or whatever held the work back.
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

    /// Whether work was not yet on its way at a moment.
    fn is_late(&self, launch: SpanId, moment: u64) -> bool {
        self.queued(launch) > moment.saturating_add(self.slack)
    }

    /// What the launching thread did in a gap, each part with when it began and ended. What follows the launch is the
    /// work on its way.
    pub(crate) fn doing(&self, gap: &Gap) -> Vec<(Doing, u64, u64)> {
        let Some(launch) = gap.next.launch else { return Vec::new() };
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

    /// When work was on its way: at the end of the call that launched it, or at the beginning of a stage that did.
    fn queued(&self, launch: SpanId) -> u64 {
        let is_call = self.activities[launch.index()].is_call();
        if is_call { self.trace.span_end(launch).0 } else { self.trace.span_start(launch).0 }
    }

    /// Why the host launched too late: each part by the wait or the copy that the launching thread was in.
    fn causes_of_lateness(&self, launch: SpanId, from: u64, queued: u64) -> Vec<Caused> {
        let mut causes = Vec::new();
        for (span, from, to) in self.host.doing_within(self.trace.span_track(launch), from, queued) {
            let held = span.and_then(|span| self.held_in(span));
            add_cause(&mut causes, (from, to, held.map_or(Cause::Host, |(_, cause)| cause)));
        }
        causes
    }

    /// Charges waits with what of a gap would vanish without them.
    ///
    /// Moments in which the host waited come first. What is left of the lead goes to the earliest moments in which the
    /// host was late: so much later did it begin with what it did then.
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

    /// The wait that the launching thread was in at a moment.
    fn wait_at(&self, launch: SpanId, moment: u64) -> Option<usize> {
        let inner = self.host.doing(self.trace.span_track(launch), moment)?;
        self.host.outwards(inner).take(MOST_OUTWARDS).filter_map(|id| self.waits.get(&id).copied()).last()
    }

    /// Whether a part of a gap that a copy is the cause of is that of pageable memory.
    pub(crate) fn is_pageable(&self, gap: &Gap) -> bool {
        let doing = gap.next.launch.and_then(|launch| self.host.doing(self.trace.span_track(launch), gap.from));
        let is_late = gap.next.launch.is_some_and(|launch| self.is_late(launch, gap.from));
        match doing.and_then(|span| self.held_in(span)).filter(|_| is_late) {
            Some((call, _)) => self.holding.get(&call) == Some(&true),
            None => gap.before.is_some_and(|before| is_pageable(self.trace, &before)),
        }
    }

    /// The outermost wait or copy that a span lies in, and what it is the cause of.
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

    /// Why work that was queued did not begin for long.
    fn cause_of_long_hold(&self, gap: &OpenGap, launch: SpanId) -> Cause {
        if gap.is_inside_launch || !self.is_told_to_wait(launch) {
            Cause::HeldBack
        } else if self.is_end_elsewhere(gap.to) {
            Cause::Stream
        } else {
            Cause::ToldToWait
        }
    }

    /// Whether work of another device ended just before a moment. Other streams of the same device do nothing in a gap.
    fn is_end_elsewhere(&self, moment: u64) -> bool {
        let first = moment.saturating_sub(TURNAROUND.saturating_add(self.slack));
        let at = self.ends_elsewhere.partition_point(|end| *end < first);
        self.ends_elsewhere.get(at).is_some_and(|end| *end <= moment.saturating_add(self.slack))
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

/// Adds a part, to the last one if the cause is the same.
fn add_cause(causes: &mut Vec<Caused>, (from, to, cause): Caused) {
    match causes.last_mut() {
        Some(last) if last.2 == cause => last.1 = to,
        _ => causes.push((from, to, cause)),
    }
}

/// Why work that was queued began only a little later.
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

/// Whether a piece of work is a copy from or to pageable memory of the host.
pub(crate) fn is_pageable(trace: &Trace, work: &Work) -> bool {
    work.kind == WorkKind::Copy && trace.span(work.id).copy_path().is_some_and(|path| path.is_pageable())
}

/// Calls that launched a copy and were held by it: of pageable memory, or they lasted until the copy was done.
fn holding(trace: &Trace, devices: &Devices) -> HashMap<SpanId, bool> {
    let copies = devices.devices.iter().flat_map(|device| &device.work).filter(|work| work.kind == WorkKind::Copy);
    let launched = copies.filter_map(|work| Some((work, work.launch?, is_pageable(trace, work))));
    let holds = launched.filter(|(work, launch, is_pageable)| *is_pageable || trace.span_end(*launch).0 >= work.end);
    holds.map(|(_, launch, is_pageable)| (launch, is_pageable)).collect()
}

#[cfg(test)]
mod tests;
