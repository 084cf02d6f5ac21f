//! The stage tree: where the time went.

use hashbrown::HashMap;
use laptime_stats::{Sorted, quantile_by};
use laptime_trace::{Activity, Column, DEEPEST, NameId, Nanos, STAMPED, Span, SpanId, Trace};

use crate::lap_unit::{family, is_lap};
use crate::overview::{Overview, overview_of};
use crate::timeline::{Prepared, at_once};
use crate::{check::check, device_time::device_time, devices::devices};
use crate::{families::Families, intervals::total, waits::waits};

/// The stages of a trace, parents before children, siblings in order of first start.
#[derive(Debug, Clone, PartialEq)]
pub struct Stages {
    /// The stages.
    pub stages: Vec<Stage>,
    /// Spans nested deeper than [`DEEPEST`], which count as part of the stage at that depth.
    pub too_deep: u64,
    /// The trace as a whole.
    pub overview: Overview,
}

impl Stages {
    /// The path of a stage, from the root.
    pub fn path(&self, at: usize) -> Vec<&str> {
        let around = std::iter::successors(Some(at), |&at| self.stages[at].parent);
        let mut path: Vec<&str> = around.map(|at| self.stages[at].name.as_str()).collect();
        path.reverse();
        path
    }
}

/// All spans with the same path; counters in names are ignored.
#[derive(Debug, Clone, PartialEq)]
pub struct Stage {
    /// Its name; counters are written as `*`.
    pub name: String,
    /// The index of its parent.
    pub parent: Option<usize>,
    /// Its depth.
    pub depth: usize,
    /// Whether it is a lap: one iteration of a loop.
    pub is_lap: bool,
    /// Whether it is a host sync.
    pub is_wait: bool,
    /// How often it ran.
    pub count: u64,
    /// Host time of all its spans; threads are added. None for device-only stages.
    pub host: Option<Nanos>,
    /// Host self time.
    pub host_self: Option<Nanos>,
    /// Host time as a share of the trace's wall time.
    pub share: Option<f64>,
    /// Device time of the work it launched; overlapping work counts once per span.
    pub device: Option<Nanos>,
    /// What the median and the 95th percentile are computed over.
    pub per: Per,
    /// The median, in nanoseconds.
    pub median: f64,
    /// The 95th percentile, in nanoseconds.
    pub p95: f64,
    /// The median of its time per lap of the outermost loop around it, in nanoseconds; none outside loops.
    pub outer: Option<OuterLap>,
    /// Spans that were still open when the recording ended.
    pub open: u64,
}

/// The median time of a stage per lap of the outermost loop around it, in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct OuterLap {
    /// On the host; none for device-only stages.
    pub host: Option<f64>,
    /// On devices.
    pub device: Option<f64>,
}

/// What the time of a stage is summed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Per {
    /// Each span separately.
    Call,
    /// Each lap of the innermost loop around it (or the stage itself, if it is a lap) in which it ran.
    Lap(String),
}

/// Builds the stage tree.
///
/// Host spans come first, threads merged. Stages that a device recorded inside a graph belong to the stage that launched
/// it, and device spans without a flow to the host become roots, with device time only.
pub fn stages(trace: &Trace) -> Stages {
    let devices = devices(trace);
    let overview = || overview_of(trace, &waits(trace, &devices), check(trace, &devices));
    let (tree, overview) = at_once(trace, || Tree::of(trace, &devices.activities), overview);
    tree.stages(&overview)
}

impl Prepared<'_> {
    /// The stage tree, see [`stages`].
    pub fn stages(&self) -> Stages {
        Tree::of(self.trace, &self.devices.activities).stages(&self.overview)
    }
}

type Children = HashMap<(Option<usize>, NameId, bool), usize>;

struct Tree<'a> {
    trace: &'a Trace,
    activities: &'a [Activity],
    families: Families,
    nodes: Vec<Node>,
    /// Nodes by parent, name and side (host or device).
    children: Children,
    /// The node of each span, by index.
    node_of: Column<usize>,
    too_deep: u64,
}

struct Node {
    parent: Option<usize>,
    depth: usize,
    /// The name, or the first of its family.
    name: NameId,
    /// Whether the name has a counter.
    may_count: bool,
    is_lap: bool,
    is_wait: bool,
    on_device: bool,
    first: Nanos,
    count: u64,
    total: u64,
    /// A sum over all spans of a file may not fit into 64 bits.
    own: u128,
    device: Option<u64>,
    open: u64,
    lap_name: Option<NameId>,
    /// Time per lap, or one entry per span outside laps.
    by_lap: HashMap<SpanId, u64>,
    by_call: Column<u64>,
    /// Time of its spans and of the device work behind them, per lap of the outermost loop.
    by_outer: HashMap<SpanId, (u64, Option<u64>)>,
}

impl<'a> Tree<'a> {
    fn of(trace: &'a Trace, activities: &'a [Activity]) -> Self {
        let mut tree = Self {
            trace,
            activities,
            families: Families::default(),
            nodes: Vec::new(),
            children: HashMap::new(),
            node_of: Column::filled(0, trace.span_count()),
            too_deep: 0,
        };
        tree.gather();
        tree
    }

    fn stages(mut self, overview: &Overview) -> Stages {
        let order = self.depth_first();
        let mut place_of = vec![0; order.len()];
        for (place, &at) in order.iter().enumerate() {
            place_of[at] = place;
        }
        let stages = order.iter().map(|&at| self.stage(at, &place_of, overview)).collect();
        Stages { stages, too_deep: self.too_deep, overview: overview.clone() }
    }

    fn gather(&mut self) {
        let trace = self.trace;
        let device = device_time(trace);
        let mut lap_of: Column<Option<SpanId>> = Column::filled(None, trace.span_count());
        let mut outer_of: Column<Option<SpanId>> = Column::filled(None, trace.span_count());
        let mut led_by: Column<Option<SpanId>> = Column::filled(None, trace.span_count());
        trace.flows().iter().for_each(|flow| led_by.set(flow.to.index(), Some(flow.from)));
        // Work that a flow leads to counts for the stage of the launch, with everything inside it.
        let mut is_reported = vec![false; trace.span_count()];
        // Whether the duration of a span is part of its node's self time.
        let mut is_counted = vec![false; trace.span_count()];
        let of_side = |wanted| trace.tracks().filter(move |(_, track)| track.kind.is_device() == wanted);
        for span in of_side(false).chain(of_side(true)).flat_map(|(track, _)| trace.spans_on(track)) {
            let outer = span.parent.and_then(|parent| lap_of.get(parent.index()));
            let lap = if is_lap(&span) { Some(span.id) } else { outer };
            lap_of.set(span.id.index(), lap);
            let outermost = span.parent.and_then(|parent| outer_of.get(parent.index())).or(lap);
            outer_of.set(span.id.index(), outermost);
            if let Some(parent) = span.parent.filter(|parent| is_counted[parent.index()]) {
                self.nodes[self.node_of.get(parent.index())].own -= u128::from(span.duration.0);
            }
            let on_device = trace.track(span.track).kind.is_device();
            let reported_by = led_by.get(span.id.index()).or(span.parent.filter(|parent| is_reported[parent.index()]));
            is_reported[span.id.index()] = on_device && reported_by.is_some();
            if let Some(reported_by) = reported_by.filter(|_| on_device) {
                self.node_of.set(span.id.index(), self.node_of.get(reported_by.index()));
                // Device timestamps inside a graph are the only source for these stages.
                if span.category != STAMPED {
                    continue;
                }
            }
            is_counted[span.id.index()] = true;
            let Some(at) = self.node(&span, on_device) else {
                self.nodes[self.node_of.get(span.id.index())].own += u128::from(span.duration.0);
                continue;
            };
            let led_to = device.get(span.id);
            self.nodes[at].add(&span, led_to, lap);
            if let Some(outer) = outermost {
                self.nodes[at].add_outer(&span, led_to, outer);
            }
            if let Some(lap) = lap {
                self.nodes[at].lap_name = Some(trace.span_name(lap));
            }
        }
    }

    /// The node of a span; none if it is too deep: it then belongs to the node of its parent.
    fn node(&mut self, span: &Span<'_>, on_device: bool) -> Option<usize> {
        let parent = span.parent.map(|parent| self.node_of.get(parent.index()));
        let depth = parent.map_or(0, |parent| self.nodes[parent].depth + 1);
        if let Some(parent) = parent.filter(|_| depth >= DEEPEST) {
            self.node_of.set(span.id.index(), parent);
            self.too_deep += 1;
            return None;
        }
        let activity = self.activities[span.id.index()];
        let name = self.families.of_span(self.trace, self.trace.span_name(span.id), activity);
        let at = *self.children.entry((parent, name, on_device)).or_insert_with(|| {
            self.nodes.push(Node {
                parent,
                depth,
                name,
                may_count: Families::may_count(activity),
                is_lap: is_lap(span),
                is_wait: activity == Activity::Wait,
                on_device,
                first: span.start,
                count: 0,
                total: 0,
                own: 0,
                device: None,
                open: 0,
                lap_name: None,
                by_lap: HashMap::new(),
                by_call: Column::default(),
                by_outer: HashMap::new(),
            });
            self.nodes.len() - 1
        });
        self.node_of.set(span.id.index(), at);
        Some(at)
    }

    /// The nodes, parents before children; roots and siblings by first start, host before device.
    fn depth_first(&self) -> Vec<usize> {
        let mut below: HashMap<Option<usize>, Vec<usize>> = HashMap::new();
        for (at, node) in self.nodes.iter().enumerate() {
            below.entry(node.parent).or_default().push(at);
        }
        for siblings in below.values_mut() {
            // In reverse, because the stack is popped from the end.
            siblings.sort_by_key(|&at| std::cmp::Reverse((self.nodes[at].on_device, self.nodes[at].first, at)));
        }
        let mut order = Vec::with_capacity(self.nodes.len());
        let mut stack = below.remove(&None).unwrap_or_default();
        while let Some(at) = stack.pop() {
            order.push(at);
            stack.extend(below.remove(&Some(at)).unwrap_or_default());
        }
        order
    }

    fn family(&self, name: NameId) -> String {
        family(self.trace.name(name)).into_owned()
    }

    fn stage(&mut self, at: usize, place_of: &[usize], overview: &Overview) -> Stage {
        let times = self.nodes[at].take_times().into_sorted();
        let quantile = |q| quantile_by(times.len(), |at| times.get(at), q).unwrap_or(0.0);
        let node = &self.nodes[at];
        let host = (!node.on_device).then_some(Nanos(node.total));
        let wall = overview.wall.0;
        Stage {
            name: if node.may_count { self.family(node.name) } else { self.trace.name(node.name).to_owned() },
            parent: node.parent.map(|parent| place_of[parent]),
            depth: node.depth,
            is_lap: node.is_lap,
            is_wait: node.is_wait,
            count: node.count,
            host,
            host_self: host.map(|_| Nanos(u64::try_from(node.own).unwrap_or(u64::MAX))),
            share: host.filter(|_| wall > 0).map(|host| host.0 as f64 / wall as f64),
            device: if node.on_device { Some(Nanos(node.total)) } else { node.device.map(Nanos) },
            per: node.lap_name.map_or(Per::Call, |name| Per::Lap(self.family(name))),
            median: quantile(0.5),
            p95: quantile(0.95),
            outer: node.outer(),
            open: node.open,
        }
    }
}

impl Node {
    /// Adds a span; the time of its children is taken from its self time later.
    fn add(&mut self, span: &Span<'_>, device: Option<Nanos>, lap: Option<SpanId>) {
        self.count += 1;
        self.total = self.total.saturating_add(span.duration.0);
        self.own += u128::from(span.duration.0);
        self.open += u64::from(span.is_open);
        self.first = self.first.min(span.start);
        if let Some(device) = device {
            self.device = Some(total([self.device.unwrap_or(0), device.0]));
        }
        match lap {
            Some(lap) => {
                let time = self.by_lap.entry(lap).or_default();
                *time = time.saturating_add(span.duration.0);
            }
            None => self.by_call.push(span.duration.0),
        }
    }

    fn add_outer(&mut self, span: &Span<'_>, device: Option<Nanos>, outer: SpanId) {
        let (time, led_to) = self.by_outer.entry(outer).or_default();
        *time = time.saturating_add(span.duration.0);
        if let Some(device) = device {
            *led_to = Some(led_to.unwrap_or(0).saturating_add(device.0));
        }
    }

    fn outer(&self) -> Option<OuterLap> {
        let median = |times: Vec<u64>| Sorted::<u64>::from_unsorted(times).median();
        let own = median(self.by_outer.values().map(|(own, _)| *own).collect())?;
        let led_to = median(self.by_outer.values().filter_map(|(_, led_to)| *led_to).collect());
        Some(match self.on_device {
            true => OuterLap { host: None, device: Some(own) },
            false => OuterLap { host: Some(own), device: led_to },
        })
    }

    /// The samples: laps if it ran in any, else calls.
    fn take_times(&mut self) -> Column<u64> {
        let (laps, calls) = (std::mem::take(&mut self.by_lap), std::mem::take(&mut self.by_call));
        if self.lap_name.is_some() { laps.into_values().collect() } else { calls }
    }
}

#[cfg(test)]
mod tests;
