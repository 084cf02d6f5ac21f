//! The dependency graph of a trace: host calls, launches, streams, events and syncs; and its replay under changes.
//!
//! Every piece of work starts when its launch, the work before it on its stream, and the work of another stream that it
//! waits for allow it. Every sync ends when the work that it waits for has ended. What these rules do not explain is kept
//! as a delay, so that the replay without changes reproduces the recorded times.

use hashbrown::{HashMap, HashSet};

use laptime_trace::{Activity, ProcessId, SpanId, Trace, TrackId};

use crate::devices::{Work, WorkKind, uncertainty};
use crate::gap_cause::{LAUNCH, TURNAROUND};
use crate::{
    group::Group, host_tree::is_loading, idle_pieces::is_allocation, intervals::Stretches, timeline::Timeline,
    waits::Found,
};

/// How many pieces of work are searched for the one that a sync waited for.
const MOST_EARLIER: usize = 64;

/// Threads of a process whose launches alternate more often than this share of all launches run in parallel.
const PARALLEL: f64 = 0.2;

/// A call that no longer waits takes at most this long.
const SHORT_CALL: u64 = 10_000;

/// A moment or a length in nanoseconds: wide enough for sums over damaged files.
pub(crate) type Time = i128;

/// What is changed in a replay.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Changes {
    /// The host never waits for a device.
    pub without_sync: bool,
    /// The host does not load data.
    pub without_loading: bool,
    /// The host does not allocate.
    pub without_allocation: bool,
    /// Groups or parts of kernel names, and how many times as fast they are.
    pub faster: Vec<(String, f64)>,
    /// Copies between host and device take no time on the streams, and their calls return at once.
    pub hide_copies: bool,
}

/// What made an event happen when it did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// It is the first one.
    Begin,
    /// The host: the end of this step.
    Host(usize),
    /// The start of this step, which launched it.
    Launch(usize),
    /// The work before it on its stream.
    Stream(usize),
    /// Work of another stream.
    Other(usize),
    /// The work that a sync waited for.
    Sync(usize),
}

/// One call of the host: a launch, a sync, or both.
#[derive(Debug)]
pub(crate) struct Step {
    pub(crate) span: SpanId,
    pub(crate) start: u64,
    pub(crate) end: u64,
    /// The step before it on its chain.
    before: Option<usize>,
    /// The work that it waited for, and how long after its end it returned.
    waits: Option<(usize, u64)>,
    is_wait: bool,
    is_launch: bool,
    /// The work that it launched.
    works: Vec<usize>,
}

/// A piece of work with what it depends on. Delays are signed: kernels may start before their predecessor ends.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) work: Work,
    launch: Option<(usize, Time)>,
    before: Option<(usize, Time)>,
    other: Option<(usize, Time)>,
    /// A delay that nothing explains.
    pub(crate) hold: u64,
    group: Group,
}

/// The dependency graph of a trace.
pub(crate) struct Graph<'a> {
    timeline: &'a Timeline<'a>,
    pub(crate) steps: Vec<Step>,
    pub(crate) nodes: Vec<Node>,
    /// When the host loaded data, and when it allocated.
    loading: Stretches,
    allocating: Stretches,
}

/// The times of a replay.
pub(crate) struct Replay {
    /// Start and end of each step.
    pub(crate) steps: Vec<(Time, Time, Bound)>,
    /// Start and end of each piece of work.
    pub(crate) nodes: Vec<(Time, Time, Bound)>,
    pub(crate) begin: Time,
    pub(crate) end: Time,
}

impl Replay {
    pub(crate) fn length(&self) -> u64 {
        u64::try_from(self.end - self.begin).unwrap_or(0)
    }
}

impl<'a> Graph<'a> {
    pub(crate) fn of(timeline: &'a Timeline<'a>) -> Self {
        let mut graph = Self {
            timeline,
            steps: Vec::new(),
            nodes: Vec::new(),
            loading: Stretches::default(),
            allocating: Stretches::default(),
        };
        let mut works: Vec<Work> =
            timeline.devices.devices.iter().flat_map(|device| device.work.iter().copied()).collect();
        works.sort_by_key(|work| (work.start, work.end, work.id));
        let step_of = graph.add_steps(&works);
        graph.add_nodes(&works, &step_of);
        graph.add_waits(&works);
        graph.gather_host_work();
        graph
    }

    /// The launches and syncs of the host in order of start, chained by process or by thread.
    fn add_steps(&mut self, works: &[Work]) -> HashMap<SpanId, usize> {
        let trace = self.timeline.trace;
        let launches: HashSet<SpanId> = works.iter().filter_map(|work| work.launch).collect();
        let waits: HashSet<SpanId> = self.blocking_waits(&launches);
        let mut spans: Vec<SpanId> = launches.union(&waits).copied().collect();
        spans.sort_by_key(|span| (trace.span_start(*span), *span));
        let by_thread = self.parallel_launchers(&spans, &launches);
        let mut last: HashMap<(ProcessId, Option<TrackId>), usize> = HashMap::new();
        let mut step_of = HashMap::new();
        for span in spans {
            let (track, start, end) = (trace.span_track(span), trace.span_start(span).0, trace.span_end(span).0);
            let process = trace.track(track).process;
            let chain = (process, by_thread.contains(&process).then_some(track));
            let before = last.insert(chain, self.steps.len());
            step_of.insert(span, self.steps.len());
            let (is_wait, is_launch) = (waits.contains(&span), launches.contains(&span));
            let works = Vec::new();
            self.steps.push(Step { span, start, end, before, waits: None, is_wait, is_launch, works });
        }
        step_of
    }

    /// Syncs during which no other thread of the process launched anything: they stop the host.
    fn blocking_waits(&self, launches: &HashSet<SpanId>) -> HashSet<SpanId> {
        let trace = self.timeline.trace;
        let mut moments: HashMap<ProcessId, Vec<(u64, TrackId)>> = HashMap::new();
        for &launch in launches {
            let track = trace.span_track(launch);
            moments.entry(trace.track(track).process).or_default().push((trace.span_start(launch).0, track));
        }
        moments.values_mut().for_each(|moments| moments.sort_unstable());
        let blocks = |track: TrackId, start: u64, end: u64| {
            let Some(moments) = moments.get(&trace.track(track).process) else { return false };
            let during = &moments[moments.partition_point(|(at, _)| *at < start)..];
            !during.iter().take_while(|(at, _)| *at < end).any(|(_, other)| *other != track)
        };
        let blocking =
            self.timeline.waits.iter().filter(|wait| wait.end.is_some_and(|end| blocks(wait.track, wait.start, end)));
        blocking.filter_map(Found::span).collect()
    }

    /// The processes whose threads launch in parallel. Threads that alternate rarely, as in a backward pass, are one chain.
    fn parallel_launchers(&self, spans: &[SpanId], launches: &HashSet<SpanId>) -> HashSet<ProcessId> {
        let trace = self.timeline.trace;
        let mut turns: HashMap<ProcessId, (TrackId, u64, u64)> = HashMap::new();
        for span in spans.iter().filter(|span| launches.contains(*span)) {
            let track = trace.span_track(*span);
            let entry = turns.entry(trace.track(track).process).or_insert((track, 0, 0));
            *entry = (track, entry.1 + u64::from(entry.0 != track), entry.2 + 1);
        }
        let is_parallel = |turns: u64, all: u64| turns as f64 > PARALLEL * all as f64;
        turns.into_iter().filter(|(_, (_, turns, all))| is_parallel(*turns, *all)).map(|(process, _)| process).collect()
    }

    fn add_nodes(&mut self, works: &[Work], step_of: &HashMap<SpanId, usize>) {
        let usual = self.usual_latency(works);
        let slack = uncertainty(self.timeline.trace);
        let after_wait = self.after_stream_waits();
        let mut last: HashMap<TrackId, usize> = HashMap::new();
        // The work with the latest end so far on each stream, and in all.
        for (at, work) in works.iter().enumerate() {
            let start = work.start as Time;
            let step = work.launch.and_then(|launch| step_of.get(&launch).copied());
            let called = step.map(|step| self.steps[step].start as Time);
            let before = last.get(&work.stream).copied();
            let free = before.map(|before| works[before].end as Time);
            let is_ordered = work.launch.is_some_and(|launch| after_wait.contains(&launch));
            let queued = step.map_or(start, |step| self.steps[step].end as Time);
            let is_free = free.is_none_or(|free| start - free > TURNAROUND as Time);
            let is_held = is_free && start - queued > LAUNCH as Time;
            let other = (is_ordered || is_held).then(|| latest_elsewhere(works, at, slack)).flatten();
            let launch = step.zip(called).map(|(step, called)| {
                let is_late = is_free && !is_held;
                (step, if is_late { start - called } else { usual.min(start - called) })
            });
            let pause =
                free.map(|free| (start - free).min(if launch.is_none() { Time::MAX } else { TURNAROUND as Time }));
            let mut node = Node {
                work: *work,
                launch,
                before: before.zip(pause),
                other: other.map(|other| (other, start - works[other].end as Time)),
                hold: 0,
                group: Group::of(
                    self.timeline.devices.activities[work.id.index()],
                    self.timeline.trace.span(work.id).name,
                ),
            };
            let allowed = [
                launch.zip(called).map(|((_, latency), called)| called + latency),
                node.before.map(|(before, pause)| works[before].end as Time + pause),
                node.other.map(|(other, pause)| works[other].end as Time + pause),
            ];
            let allowed = allowed.into_iter().flatten().max().unwrap_or(start);
            node.hold = u64::try_from(start - allowed).unwrap_or(0);
            if let Some(step) = step {
                self.steps[step].works.push(at);
            }
            self.nodes.push(node);
            if before.is_none_or(|before| works[before].end <= work.end) {
                last.insert(work.stream, at);
            }
        }
    }

    /// The median time from a launch to its work on an idle stream.
    fn usual_latency(&self, works: &[Work]) -> Time {
        let trace = self.timeline.trace;
        let mut free: HashMap<TrackId, u64> = HashMap::new();
        let mut delays: Vec<f64> = Vec::new();
        for work in works {
            let until = free.entry(work.stream).or_default();
            if let Some(launch) = work.launch.map(|launch| trace.span_start(launch).0) {
                delays.extend(work.start.checked_sub(launch).filter(|_| *until <= launch).map(|delay| delay as f64));
            }
            *until = (*until).max(work.end);
        }
        laptime_stats::spread::median(&delays).unwrap_or(0.0).min(LAUNCH as f64) as Time
    }

    /// The launches before which the host made a stream wait for another one.
    fn after_stream_waits(&self) -> HashSet<SpanId> {
        let (trace, activities) = (self.timeline.trace, &self.timeline.devices.activities);
        let mut found = HashSet::new();
        for (track, _) in trace.tracks().filter(|(_, track)| !track.kind.is_device()) {
            let mut has_waited = false;
            for span in trace.spans_on(track) {
                match activities[span.id.index()] {
                    Activity::Call if span.name.contains("StreamWait") => has_waited = true,
                    Activity::Launch if std::mem::take(&mut has_waited) => {
                        found.insert(span.id);
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// The work that each sync waited for: the last one that ended before the sync did.
    fn add_waits(&mut self, works: &[Work]) {
        let slack = uncertainty(self.timeline.trace).max(2_000);
        let mut by_end: Vec<usize> = (0..works.len()).collect();
        by_end.sort_by_key(|at| works[*at].end);
        let trace = self.timeline.trace;
        for step in self.steps.iter_mut().filter(|step| step.is_wait) {
            let after = by_end.partition_point(|at| works[*at].end <= step.end.saturating_add(slack));
            let earlier = by_end[..after].iter().rev().take(MOST_EARLIER);
            let mut earlier = earlier.take_while(|at| works[**at].end > step.start).copied();
            let is_given = |at: &usize| match works[*at].launch {
                Some(launch) => trace.span_start(launch).0 <= step.start,
                None => works[*at].start <= step.start,
            };
            step.waits = earlier.find(is_given).map(|at| (at, step.end.saturating_sub(works[at].end)));
        }
    }

    fn gather_host_work(&mut self) {
        let (trace, activities) = (self.timeline.trace, &self.timeline.devices.activities);
        let chained: HashSet<TrackId> = self.steps.iter().map(|step| trace.span_track(step.span)).collect();
        let (mut loading, mut allocating) = (Vec::new(), Vec::new());
        for span in chained.into_iter().flat_map(|track| trace.spans_on(track)) {
            let stretch = (span.start.0, span.end().0);
            match activities[span.id.index()].is_call() {
                true if is_allocation(span.name) => allocating.push(stretch),
                false if is_loading(span.name) => loading.push(stretch),
                _ => {}
            }
        }
        (self.loading, self.allocating) = (Stretches::union(loading), Stretches::union(allocating));
    }

    /// Replays the trace with changes.
    pub(crate) fn replay(&self, changes: &Changes) -> Replay {
        let begin = self.begin();
        let never = (Time::MIN, Time::MIN, Bound::Begin);
        let mut replay =
            Replay { steps: vec![never; self.steps.len()], nodes: vec![never; self.nodes.len()], begin, end: begin };
        // Work without a launch follows its stream alone.
        let mut unlaunched = (0..self.nodes.len()).filter(|at| self.nodes[*at].launch.is_none()).peekable();
        for at in 0..self.steps.len() {
            while let Some(node) = unlaunched.next_if(|node| self.nodes[*node].work.start <= self.steps[at].start) {
                self.replay_node(node, changes, &mut replay);
            }
            self.replay_step(at, changes, &mut replay);
        }
        unlaunched.for_each(|node| self.replay_node(node, changes, &mut replay));
        let ends = replay.steps.iter().chain(&replay.nodes).map(|(_, end, _)| *end);
        replay.end = ends.max().unwrap_or(begin).max(begin);
        if changes.hide_copies {
            replay.end = replay.end.max(begin + self.longest_link() as Time);
        }
        replay
    }

    fn begin(&self) -> Time {
        let step = self.steps.first().map(|step| step.start);
        let node = self.nodes.first().map(|node| node.work.start);
        step.into_iter().chain(node).min().unwrap_or(0) as Time
    }

    fn replay_step(&self, at: usize, changes: &Changes, replay: &mut Replay) {
        let step = &self.steps[at];
        // Between two calls the host works; after a call that another one encloses it does not.
        let (start, bound) = match step.before {
            Some(before) => {
                let until = self.steps[before].end.min(step.start);
                let mut code = step.start - until;
                let removed = |is_removed: bool, stretches: &Stretches| {
                    if is_removed { stretches.length_within(until, step.start) } else { 0 }
                };
                code -= removed(changes.without_loading, &self.loading)
                    .saturating_add(removed(changes.without_allocation, &self.allocating))
                    .min(code);
                // Calls that overlap keep their distance.
                let overlap = self.steps[before].end.saturating_sub(step.start) as Time;
                (replay.steps[before].1 - overlap + code as Time, Bound::Host(before))
            }
            None => (step.start as Time, Bound::Begin),
        };
        replay.steps[at] = (start, start, bound);
        for &node in &step.works {
            self.replay_node(node, changes, replay);
        }
        let length = step.end - step.start;
        let is_allocation = changes.without_allocation && self.allocating.contains(step.start);
        let is_hidden = changes.hide_copies && self.only_copies(step);
        replay.steps[at] = match step.waits {
            _ if is_allocation => (start, start, bound),
            _ if is_hidden => (start, start + length.min(SHORT_CALL) as Time, bound),
            _ if changes.without_sync && step.is_wait => {
                let rest = if step.is_launch { length.min(SHORT_CALL) } else { 0 };
                (start, start + rest as Time, bound)
            }
            Some((work, after)) if replay.nodes[work].1 > Time::MIN => {
                let done = replay.nodes[work].1 + after as Time;
                let least = start + length.min(SHORT_CALL) as Time;
                if done >= least { (start, done, Bound::Sync(work)) } else { (start, least, bound) }
            }
            _ => (start, start + length as Time, bound),
        };
    }

    fn replay_node(&self, at: usize, changes: &Changes, replay: &mut Replay) {
        let node = &self.nodes[at];
        let ended = |(other, pause): (usize, Time)| {
            let end = replay.nodes[other].1;
            (end > Time::MIN).then(|| (end + pause, other))
        };
        // A hidden copy does not wait for its call, which staged the data.
        let is_hidden = changes.hide_copies && self.crosses(node);
        let most = if is_hidden { SHORT_CALL as Time } else { Time::MAX };
        let allowed = [
            node.launch.map(|(step, latency)| (replay.steps[step].0 + latency.min(most), Bound::Launch(step))),
            node.before.and_then(ended).map(|(time, before)| (time, Bound::Stream(before))),
            node.other.and_then(ended).map(|(time, other)| (time, Bound::Other(other))),
        ];
        let latest = allowed.into_iter().flatten().max_by_key(|(time, _)| *time);
        let (start, bound) = latest.unwrap_or((node.work.start as Time, Bound::Begin));
        let start = start + node.hold as Time;
        replay.nodes[at] = (start, start + self.length(node, changes), bound);
    }

    /// How long work takes with changes.
    fn length(&self, node: &Node, changes: &Changes) -> Time {
        let length = node.work.length();
        if changes.hide_copies && self.crosses(node) {
            return 0;
        }
        let factor =
            changes.faster.iter().find(|(wanted, _)| self.fits(node, wanted)).map_or(1.0, |(_, factor)| *factor);
        (length as f64 / factor).round() as Time
    }

    /// Whether work is of a group, or has a name that contains this.
    fn fits(&self, node: &Node, wanted: &str) -> bool {
        wanted == node.group.word() || self.timeline.trace.span(node.work.id).name.contains(wanted)
    }

    /// The names of faster work that match no work.
    pub(crate) fn unmatched(&self, changes: &Changes) -> Vec<String> {
        let is_known = |wanted: &str| self.nodes.iter().any(|node| self.fits(node, wanted));
        changes.faster.iter().filter(|(wanted, _)| !is_known(wanted)).map(|(wanted, _)| wanted.clone()).collect()
    }

    /// Whether work is a copy between host and device.
    fn crosses(&self, node: &Node) -> bool {
        let path = self.timeline.trace.span(node.work.id).copy_path();
        node.work.kind == WorkKind::Copy && path.is_some_and(|path| path.is_upload() || path.is_download())
    }

    /// Whether all that a call launched are copies between host and device.
    fn only_copies(&self, step: &Step) -> bool {
        !step.works.is_empty() && step.works.iter().all(|at| self.crosses(&self.nodes[*at]))
    }

    /// The time of all copies in one direction of a device: hidden copies still need the link. Pageable ones do not count:
    /// the host fills the staging buffer more slowly than the link empties it.
    fn longest_link(&self) -> u64 {
        let mut links: HashMap<(Option<i64>, bool), u64> = HashMap::new();
        for node in self.nodes.iter().filter(|node| self.crosses(node)) {
            let Some(path) = self.timeline.trace.span(node.work.id).copy_path().filter(|path| !path.is_pageable())
            else {
                continue;
            };
            let device = self.timeline.trace.track(node.work.stream).device;
            *links.entry((device, path.is_upload())).or_default() += node.work.length();
        }
        links.into_values().max().unwrap_or(0)
    }

    pub(crate) fn trace(&self) -> &'a Trace {
        self.timeline.trace
    }

    /// The step before another one on its chain.
    pub(crate) fn before(&self, step: usize) -> Option<usize> {
        self.steps[step].before
    }

    pub(crate) fn group(&self, node: usize) -> Group {
        self.nodes[node].group
    }
}

/// The work on another stream that ended last before this work started, and at most a turnaround before it.
fn latest_elsewhere(works: &[Work], at: usize, slack: u64) -> Option<usize> {
    let work = &works[at];
    let (first, last) = (work.start.saturating_sub(TURNAROUND + slack), work.start.saturating_add(slack));
    let earlier = works[..at].iter().enumerate().rev().take(MOST_EARLIER);
    let others = earlier.filter(|(_, other)| other.stream != work.stream && (first..=last).contains(&other.end));
    others.max_by_key(|(_, other)| other.end).map(|(at, _)| at)
}
