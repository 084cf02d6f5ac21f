//! What the host did while a device waited for it, by place; the time of a place includes its children.

use hashbrown::HashMap;

use laptime_trace::{Activity, Column, NameId, Nanos, SpanId, Trace};

use crate::lap_unit::{STEPS, family};
use crate::{families::Families, one_off::OneOffs};

/// The place of most of some time is the innermost one with this share of it.
const MOST: f64 = 0.5;

/// A child is named from this share of the time on.
const NOTABLE: f64 = 0.1;

/// How many enclosing spans are searched: files can nest without limit.
const MOST_OUTWARDS: usize = 256;

/// A place in host code in which idle time of a device was spent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPlace {
    /// Its name.
    pub name: String,
    /// The idle time in it, children included.
    pub time: Nanos,
    /// The child with the most of that time.
    pub inside: Option<(String, Nanos)>,
}

impl HostPlace {
    /// What to look at: the child with most of the time, or the place itself.
    pub fn innermost(&self) -> &str {
        match &self.inside {
            Some((name, time)) if time.0 as f64 >= MOST * self.time.0 as f64 => name,
            _ => &self.name,
        }
    }
}

/// The kind of host work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum HostWork {
    /// Loading the data of the next batch.
    Loading,
    /// One-off initialisation: loading modules, capturing graphs, compiling.
    Starting,
    /// Anything else.
    Other,
}

struct Node {
    parent: usize,
    name: Option<NameId>,
    work: HostWork,
    is_call: bool,
    /// The self time.
    own: u64,
}

/// Host time by place: a tree of names, with counters ignored.
pub(crate) struct HostTree<'a> {
    trace: &'a Trace,
    activities: &'a [Activity],
    one_offs: &'a OneOffs,
    nodes: Vec<Node>,
    children: HashMap<(usize, NameId, HostWork), usize>,
    /// The node of each span plus one, by index; zero if unknown.
    of_span: Column<usize>,
    families: Families,
}

impl<'a> HostTree<'a> {
    pub(crate) fn new(trace: &'a Trace, activities: &'a [Activity], one_offs: &'a OneOffs) -> Self {
        let root = Node { parent: 0, name: None, work: HostWork::Other, is_call: false, own: 0 };
        let (children, of_span) = (HashMap::new(), Column::filled(0, trace.span_count()));
        Self { trace, activities, one_offs, nodes: vec![root], children, of_span, families: Families::default() }
    }

    /// Adds self time of a span, or time outside all spans.
    pub(crate) fn add(&mut self, span: Option<SpanId>, time: u64) -> HostWork {
        let node = span.map_or(0, |span| self.node(span));
        self.nodes[node].own += time;
        self.nodes[node].work
    }

    fn node(&mut self, span: SpanId) -> usize {
        if let Some(node) = self.of_span.get(span.index()).checked_sub(1) {
            return node;
        }
        let around: Vec<SpanId> =
            std::iter::successors(Some(span), |id| self.trace.span_parent(*id)).take(MOST_OUTWARDS).collect();
        let mut parent = 0;
        for id in around.into_iter().rev() {
            parent = match self.of_span.get(id.index()).checked_sub(1) {
                Some(known) => known,
                None => self.child(parent, id),
            };
        }
        parent
    }

    fn child(&mut self, parent: usize, span: SpanId) -> usize {
        let activity = self.activities[span.index()];
        let name = self.families.of_span(self.trace, self.trace.span_name(span), activity);
        let work = match self.nodes[parent].work {
            HostWork::Other => self.work(span, activity),
            work => work,
        };
        let node = *self.children.entry((parent, name, work)).or_insert_with(|| {
            self.nodes.push(Node { parent, name: Some(name), work, is_call: activity.is_call(), own: 0 });
            self.nodes.len() - 1
        });
        self.of_span.set(span.index(), node + 1);
        node
    }

    fn work(&self, span: SpanId, activity: Activity) -> HostWork {
        if self.one_offs.has(self.trace, span) {
            HostWork::Starting
        } else if !activity.is_call() && is_loading(self.trace.span(span).name) {
            HostWork::Loading
        } else {
            HostWork::Other
        }
    }

    /// The time of each node, children included.
    fn inclusive(&self) -> Vec<u64> {
        let mut times: Vec<u64> = self.nodes.iter().map(|node| node.own).collect();
        for at in (1..times.len()).rev() {
            times[self.nodes[at].parent] += times[at];
        }
        times
    }

    /// The time of one kind of work, and the place with most of it.
    pub(crate) fn place_of(&self, wanted: HostWork) -> Option<HostPlace> {
        let times = self.inclusive();
        let is_top = |at: &usize| self.nodes[*at].work == wanted && self.nodes[self.nodes[*at].parent].work != wanted;
        let mut by_name: HashMap<NameId, (u64, usize)> = HashMap::new();
        for at in (1..times.len()).filter(is_top) {
            if let Some(name) = self.nodes[at].name {
                let entry = by_name.entry(name).or_insert((0, at));
                *entry = (entry.0 + times[at], if times[at] > times[entry.1] { at } else { entry.1 });
            }
        }
        let (&name, &(time, top)) =
            by_name.iter().max_by_key(|(name, (time, _))| (*time, std::cmp::Reverse(**name)))?;
        (time > 0).then(|| HostPlace { name: self.text(name), time: Nanos(time), inside: self.inside(top, &times) })
    }

    /// The innermost place with most of the time of other work. Runtime calls are named inside it.
    pub(crate) fn place(&self, but: Option<&str>) -> Option<HostPlace> {
        let times = self.inclusive_of_other();
        let all = times[0];
        let (mut at, mut best) = (0, None);
        while let Some(child) = self.largest_child(at, &times) {
            if (times[child] as f64) < MOST * all as f64 {
                break;
            }
            if !self.nodes[child].is_call {
                best = Some(child);
            }
            at = child;
        }
        let at = best?;
        let name = self.text(self.nodes[at].name?);
        let inside = self.inside(at, &times);
        // The loop itself is not a useful place.
        let is_loop = but == Some(name.as_str()) || name == STEPS;
        match inside {
            Some((name, time)) if is_loop => Some(HostPlace { name, time, inside: None }),
            None if is_loop => None,
            inside => Some(HostPlace { name, time: Nanos(times[at]), inside }),
        }
    }

    fn inclusive_of_other(&self) -> Vec<u64> {
        let own = |node: &Node| if node.work == HostWork::Other { node.own } else { 0 };
        let mut times: Vec<u64> = self.nodes.iter().map(own).collect();
        for at in (1..times.len()).rev() {
            times[self.nodes[at].parent] += times[at];
        }
        times
    }

    fn largest_child(&self, parent: usize, times: &[u64]) -> Option<usize> {
        let children = (parent + 1..self.nodes.len()).filter(|at| self.nodes[*at].parent == parent && times[*at] > 0);
        children.max_by_key(|at| (times[*at], std::cmp::Reverse(*at)))
    }

    /// The innermost place inside another with most of its time, or its largest child.
    fn inside(&self, place: usize, times: &[u64]) -> Option<(String, Nanos)> {
        let holds = |at: &usize, share: f64| times[*at] as f64 >= share * times[place] as f64;
        let mut found = self.largest_child(place, times).filter(|at| holds(at, NOTABLE))?;
        while let Some(child) = self.largest_child(found, times).filter(|at| holds(at, MOST)) {
            found = child;
        }
        Some((self.text(self.nodes[found].name?), Nanos(times[found])))
    }

    fn text(&self, name: NameId) -> String {
        family(self.trace.name(name)).into_owned()
    }
}

/// Words in the names of functions that load data.
const LOADS: [&str; 9] = [
    "get_batch",
    "load_batch",
    "next_batch",
    "fetch_batch",
    "load_data",
    "data_loading",
    "load_next_batch",
    "iteratorgetnext",
    "data_wait",
];

/// Whether a place loads data, by its name: `enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__`,
/// `torch/utils/data/dataloader.py(633): __next__`, `get_batch`.
pub(crate) fn is_loading(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    let mut words = name.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    ["dataloader", "data_loader", "torch/utils/data"].iter().any(|part| name.contains(part))
        || words.any(|word| LOADS.contains(&word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn data_loading_is_recognised_by_name_and_batch_schedulers_are_not() {
        for name in [
            "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__",
            "torch/utils/data/_utils/fetch.py(54): <listcomp>",
            "DataLoader.__next__",
            "train.py(110): get_batch",
            "IteratorGetNext",
        ] {
            assert!(is_loading(name), "{name}");
        }
        for name in ["scheduler.py(9): get_next_batch_to_run", "aten::batch_norm", "data_ptr", "forward", "reload"] {
            assert!(!is_loading(name), "{name}");
        }
    }
}
