//! One-off initialisation: loading modules, capturing graphs, compiling, allocating for the first time.

use hashbrown::{HashMap, HashSet};

use laptime_trace::{Activity, NameId, SpanId, Trace, TrackId};

use crate::lap_unit::{LapSource, LapUnit};
use crate::{intervals::Stretches, laps::cold_laps};

/// A longer runtime call does more than its name suggests.
const LONG: u64 = 1_000_000;

/// A call that takes this long more often is not initialisation.
const MOST_LONG: u64 = 2;

/// A call that takes longer sets something up: a context, a library, a heap.
const VERY_LONG: u64 = 100_000_000;

/// A call that takes very long more often than this always does.
const MOST_VERY_LONG: u64 = 10;

/// One in this many launches may take this long: those that load their kernel.
const LOADING_LAUNCHES: u64 = 10;

/// An operation that takes very long must have this many times as many calls that do not.
const OPERATIONS: u64 = 3;

/// Cold laps are initialisation if this share of them exceeds the median lap.
const BEYOND: f64 = 0.5;

/// The fewest laps for a median.
const LEAST_LAPS: usize = 3;

/// The spans and the time of initialisation.
#[derive(Debug, Default)]
pub(crate) struct OneOffs {
    spans: HashSet<SpanId>,
    names: HashSet<NameId>,
    capturing: HashMap<TrackId, Stretches>,
    /// Everything on the host before this moment is initialisation.
    pub(crate) until: u64,
}

impl OneOffs {
    pub(crate) fn of(trace: &Trace, activities: &[Activity], unit: Option<&LapUnit>) -> Self {
        let mut long: HashMap<NameId, (Activity, u64, Vec<SpanId>)> = HashMap::new();
        let mut found = Self { until: unit.map_or(0, started), ..Self::default() };
        let mut known: HashMap<NameId, bool> = HashMap::new();
        let mut captures: HashMap<TrackId, Vec<(u64, bool)>> = HashMap::new();
        for id in trace.span_ids() {
            let (name, activity) = (trace.span_name(id), activities[id.index()]);
            if *known.entry(name).or_insert_with(|| is_start(trace.name(name))) {
                found.names.insert(name);
            }
            if !matches!(activity, Activity::Call | Activity::Launch | Activity::Operation) {
                continue;
            }
            let entry = long.entry(name).or_insert((activity, 0, Vec::new()));
            entry.1 += 1;
            let length = trace.span_end(id).saturating_sub(trace.span_start(id));
            if length.0 >= if activity == Activity::Operation { VERY_LONG } else { LONG } {
                entry.2.push(id);
            }
            let is_begin = activity == Activity::Call && trace.name(name).contains("StreamBeginCapture");
            if is_begin || activity == Activity::Call && trace.name(name).contains("StreamEndCapture") {
                let moment = if is_begin { trace.span_start(id) } else { trace.span_end(id) };
                captures.entry(trace.span_track(id)).or_default().push((moment.0, is_begin));
            }
        }
        for (activity, all, spans) in long.into_values() {
            let count = spans.len() as u64;
            // An operation may always take long; it is initialisation if most calls of it do not.
            let is_usual = activity == Activity::Operation && all < OPERATIONS * count;
            if is_usual {
                continue;
            }
            let is_rare = count <= MOST_LONG || activity == Activity::Launch && count * LOADING_LAUNCHES <= all;
            let length = |id: &SpanId| trace.span_end(*id).saturating_sub(trace.span_start(*id)).0;
            let very_long: HashSet<SpanId> = spans.iter().copied().filter(|id| length(id) >= VERY_LONG).collect();
            if is_rare {
                found.spans.extend(spans);
            } else if very_long.len() as u64 <= MOST_VERY_LONG {
                found.spans.extend(very_long);
            }
        }
        found.capturing = captures.into_iter().map(|(track, moments)| (track, between(moments))).collect();
        found
    }

    /// Whether a span is initialisation.
    pub(crate) fn has(&self, trace: &Trace, span: SpanId) -> bool {
        self.spans.contains(&span) || self.names.contains(&trace.span_name(span))
    }

    /// Whether a thread was initialising or capturing a graph at a moment.
    pub(crate) fn is_at(&self, track: TrackId, moment: u64) -> bool {
        moment < self.until || self.capturing.get(&track).is_some_and(|stretches| stretches.contains(moment))
    }
}

/// When graphs were captured.
fn between(moments: Vec<(u64, bool)>) -> Stretches {
    let mut stretches = Vec::new();
    let mut begun = None;
    for (moment, is_begin) in moments {
        match (is_begin, begun) {
            (true, None) => begun = Some(moment),
            (false, Some(from)) => {
                stretches.push((from, moment));
                begun = None;
            }
            _ => {}
        }
    }
    Stretches::union(stretches)
}

/// The start of the first lap, or the end of the last cold lap.
fn started(unit: &LapUnit) -> u64 {
    if unit.laps.len() < LEAST_LAPS {
        return 0;
    }
    let lengths: Vec<f64> = unit.laps.iter().map(|lap| (lap.end - lap.start) as f64).collect();
    let cold = cold_laps(&lengths);
    let usual = laptime_stats::spread::median(&lengths[cold..]).unwrap_or(0.0);
    let all: f64 = lengths[..cold].iter().sum();
    if cold > 0 && all - cold as f64 * usual >= BEYOND * all {
        unit.laps[cold - 1].end
    } else if unit.source == LapSource::Kernels {
        // Before the first detected sequence there may be others.
        0
    } else {
        unit.laps[0].start
    }
}

/// Whether a name means loading, capturing or compiling.
fn is_start(name: &str) -> bool {
    const PARTS: [&str; 13] = [
        "ModuleLoad",
        "LibraryLoad",
        "Module Loading",
        "Lazy Function Loading",
        "GraphInstantiate",
        "LinkComplete",
        "CtxCreate",
        "PrimaryCtxRetain",
        "CompileProgram",
        "compileFusion",
        "(dynamo_timed)",
        "torch/_dynamo/convert_frame.py(",
        "torch/utils/cpp_extension.py(",
    ];
    // Other functions of these files run in every step. A node of a graph tree is made when its graph is recorded.
    const FUNCTIONS: [(&str, &str); 4] = [
        ("torch/_inductor/compile_fx.py(", "compile"),
        ("torch/_inductor/compile_fx.py(", "_compile"),
        ("triton/compiler/compiler.py(", "compile"),
        ("torch/_inductor/cudagraph_trees.py(", "__init__"),
    ];
    let is_in = |(file, start): &(&str, &str)| {
        name.contains(file) && name.rsplit("): ").next().is_some_and(|function| function.starts_with(start))
    };
    matches!(name, "cuInit" | "hipInit") || PARTS.iter().any(|part| name.contains(part)) || FUNCTIONS.iter().any(is_in)
}
