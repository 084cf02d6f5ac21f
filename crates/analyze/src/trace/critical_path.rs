//! The critical path: the chain of host code, launches, work, copies and syncs that decides how long a trace takes; and
//! how long it would take with changes.

use std::collections::BTreeMap;

use laptime_trace::{Nanos, Trace};

use crate::replay::{Bound, Changes, Graph, Replay, Time};
use crate::timeline::{Prepared, Timeline};
use crate::{group::Group, overview::Overview};

/// Names that are listed.
const MOST_NAMES: usize = 10;

/// The critical path of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct CriticalPath {
    /// The time of the path: from the first launch or work to the last end.
    pub length: Nanos,
    /// The time of each kind on the path, most first; the times add up to the path.
    pub kinds: Vec<PathPart>,
    /// The names with the most time on the path.
    pub names: Vec<PathName>,
    /// What changes would bring; none without changes.
    pub prediction: Option<Prediction>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// One kind on the path.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PathPart {
    /// The kind.
    pub kind: PathKind,
    /// Its time on the path.
    pub time: Nanos,
    /// Its share of the path.
    pub share: f64,
    /// How many parts of the path have this kind.
    pub count: u64,
}

/// A name on the path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathName {
    /// The name of a kernel, a copy or a call.
    pub name: String,
    /// Its kind.
    pub kind: PathKind,
    /// Its time on the path.
    pub time: Nanos,
    /// How often it is on the path.
    pub count: u64,
}

/// What a part of the path is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathKind {
    /// A compute kernel, by its group.
    Kernel(Group),
    /// A copy.
    Copy,
    /// A communication kernel.
    Communication,
    /// Host code between calls.
    Host,
    /// A launch or another call.
    Call,
    /// From a launch to its work.
    Latency,
    /// The pause between work on a stream.
    Turnaround,
    /// Work that waits for another stream.
    Event,
    /// From the end of work to the return of the sync that waits for it.
    Sync,
    /// A delay that the trace does not explain.
    Unexplained,
}

impl PathKind {
    /// The kind for machines and tables.
    pub fn word(self) -> String {
        let word = match self {
            Self::Kernel(group) => return format!("kernel: {}", group.word()),
            Self::Copy => "copy",
            Self::Communication => "communication",
            Self::Host => "host code",
            Self::Call => "call",
            Self::Latency => "launch latency",
            Self::Turnaround => "turnaround",
            Self::Event => "stream wait",
            Self::Sync => "sync",
            Self::Unexplained => "unexplained",
        };
        word.to_owned()
    }
}

/// What changes would bring.
#[derive(Debug, Clone, PartialEq)]
pub struct Prediction {
    /// The predicted time.
    pub length: Nanos,
    /// What the prediction assumes.
    pub assumptions: Vec<&'static str>,
    /// Names of faster work that match no work.
    pub unmatched: Vec<String>,
}

/// Finds the critical path; none for a trace without device work. With changes, the time is predicted.
pub fn critical_path(trace: &Trace, changes: &Changes) -> Option<CriticalPath> {
    let prepared = Prepared::of(trace);
    if prepared.devices.devices.is_empty() {
        return None;
    }
    let timeline = Timeline::of(&prepared, None).ok()?;
    let graph = Graph::of(&timeline);
    let replay = graph.replay(&Changes::default());
    let path = Path::of(&graph, &replay);
    let length = replay.length();
    let part = |(kind, (time, count)): (PathKind, (u64, u64))| PathPart {
        kind,
        time: Nanos(time),
        share: time as f64 / length.max(1) as f64,
        count,
    };
    let mut kinds: Vec<PathPart> = path.kinds.into_iter().map(part).collect();
    kinds.sort_by_key(|part| (std::cmp::Reverse(part.time), part.kind));
    let named = |((kind, name), (time, count)): ((PathKind, &str), (u64, u64))| PathName {
        name: name.to_owned(),
        kind,
        time: Nanos(time),
        count,
    };
    let mut names: Vec<PathName> = path.names.into_iter().map(named).collect();
    names.sort_by(|a, b| (b.time, &a.name).cmp(&(a.time, &b.name)));
    names.truncate(MOST_NAMES);
    let prediction = (*changes != Changes::default()).then(|| Prediction {
        length: Nanos(graph.replay(changes).length()),
        assumptions: assumptions(changes),
        unmatched: graph.unmatched(changes),
    });
    Some(CriticalPath { length: Nanos(length), kinds, names, prediction, overview: timeline.overview.clone() })
}

fn assumptions(changes: &Changes) -> Vec<&'static str> {
    let mut found = vec!["everything else takes as long as recorded, and dependencies stay the same"];
    if changes.without_sync {
        found.push("no result of a sync is needed before the end, and the launch queue is long enough");
    }
    if changes.hide_copies {
        found.push(
            "data is copied ahead, from pinned memory, and never awaited; the link still needs the time of all pinned copies",
        );
    }
    if changes.without_loading {
        found.push("every batch is ready when it is requested");
    }
    if changes.without_allocation {
        found.push("memory is allocated before the loop");
    }
    found
}

/// The path, from its end to its beginning.
struct Path<'a> {
    trace: &'a Trace,
    kinds: BTreeMap<PathKind, (u64, u64)>,
    names: BTreeMap<(PathKind, &'a str), (u64, u64)>,
}

/// Where the path arrives.
enum At {
    StepEnd(usize),
    StepStart(usize),
    Node(usize),
}

impl<'a> Path<'a> {
    fn of(graph: &Graph<'a>, replay: &Replay) -> Self {
        let mut path = Self { trace: graph.trace(), kinds: BTreeMap::new(), names: BTreeMap::new() };
        let step = (0..graph.steps.len()).max_by_key(|at| replay.steps[*at].1);
        let node = (0..graph.nodes.len()).max_by_key(|at| replay.nodes[*at].1);
        let end = |at: Option<usize>, ends: &[(Time, Time, Bound)]| at.map_or(Time::MIN, |at| ends[at].1);
        let is_node = end(node, &replay.nodes) >= end(step, &replay.steps);
        let mut at = if is_node { node.map(At::Node) } else { step.map(At::StepEnd) };
        // The path never moves forwards, so it ends; a damaged trace is cut off.
        for _ in 0..2 * (graph.steps.len() + graph.nodes.len()) + 2 {
            at = match at {
                None => break,
                Some(At::Node(node)) => path.add_node(graph, replay, node),
                Some(At::StepEnd(step)) => path.add_step(graph, replay, step),
                Some(At::StepStart(step)) => path.before_step(graph, replay, step),
            };
        }
        path
    }

    fn add(&mut self, kind: PathKind, time: Time, name: Option<&'a str>) {
        let time = u64::try_from(time).unwrap_or(0);
        if time == 0 {
            return;
        }
        let add = |(sum, count): &mut (u64, u64)| (*sum, *count) = (sum.saturating_add(time), *count + 1);
        add(self.kinds.entry(kind).or_default());
        if let Some(name) = name {
            add(self.names.entry((kind, name)).or_default());
        }
    }

    /// A piece of work, and what it waited for.
    fn add_node(&mut self, graph: &Graph<'a>, replay: &Replay, at: usize) -> Option<At> {
        let (node, (start, end, bound)) = (&graph.nodes[at], replay.nodes[at]);
        let kind = match graph.group(at) {
            Group::Communication => PathKind::Communication,
            _ if node.work.kind == crate::devices::WorkKind::Copy => PathKind::Copy,
            group => PathKind::Kernel(group),
        };
        let allowed = start - node.hold as Time;
        let (reached, kind_of_wait, next) = match bound {
            Bound::Launch(step) => (replay.steps[step].0, PathKind::Latency, Some(At::StepStart(step))),
            Bound::Stream(before) => (replay.nodes[before].1, PathKind::Turnaround, Some(At::Node(before))),
            Bound::Other(other) => (replay.nodes[other].1, PathKind::Event, Some(At::Node(other))),
            _ => (allowed, PathKind::Unexplained, None),
        };
        // A kernel that starts before its predecessor ends is on the path from that end on.
        self.add(kind, end - start.max(reached), Some(self.trace.span(node.work.id).name));
        self.add(kind_of_wait, allowed - reached, None);
        self.add(PathKind::Unexplained, start - allowed.max(reached.min(start)), None);
        next
    }

    /// A call: from its end to its start, or to the end of the work that it waited for.
    fn add_step(&mut self, graph: &Graph<'a>, replay: &Replay, at: usize) -> Option<At> {
        let (start, end, bound) = replay.steps[at];
        let name = self.trace.span(graph.steps[at].span).name;
        if let Bound::Sync(work) = bound {
            self.add(PathKind::Sync, end - replay.nodes[work].1, Some(name));
            return Some(At::Node(work));
        }
        self.add(PathKind::Call, end - start, Some(name));
        Some(At::StepStart(at))
    }

    /// The host code before a call.
    fn before_step(&mut self, graph: &Graph<'a>, replay: &Replay, at: usize) -> Option<At> {
        let before = graph.before(at)?;
        let (from, to) = (replay.steps[before].1, replay.steps[at].0);
        self.add(PathKind::Host, to - from, None);
        Some(if from <= to { At::StepEnd(before) } else { At::StepStart(before) })
    }
}
