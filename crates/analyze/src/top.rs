//! Which names took most time, wherever they stand.

use std::collections::HashMap;

use laptime_stats::Sorted;
use laptime_trace::{LAP, NameId, Nanos, SYNC, Span, SpanId, Trace, TrackId};

use crate::{
    device_time::is_on_device,
    overview::{Overview, overview},
};

/// The names of a trace, those with most time of their own first.
#[derive(Debug, Clone, PartialEq)]
pub struct Top {
    /// The operations.
    pub operations: Vec<Operation>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// What an operation is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum OperationKind {
    /// A stage of the host.
    Stage,
    /// One turn of a loop.
    Lap,
    /// The host waiting for a device.
    Wait,
    /// Work of a device.
    Device,
}

impl OperationKind {
    /// The kind in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Stage => "stage",
            Self::Lap => "lap",
            Self::Wait => "wait",
            Self::Device => "device",
        }
    }
}

/// All spans of one name and kind.
#[derive(Debug, Clone, PartialEq)]
pub struct Operation {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: OperationKind,
    /// How often it ran.
    pub count: u64,
    /// Its time less that of what is inside it.
    pub own: Nanos,
    /// Own time as a share of all own time on its side, host or device.
    pub own_share: f64,
    /// Its whole time; where it contains itself, the outer one counts.
    pub total: Nanos,
    /// The median span, in nanoseconds.
    pub median: f64,
    /// The longest span.
    pub longest: Nanos,
}

/// Ranks names by their own time.
pub fn top(trace: &Trace) -> Top {
    let own = trace.own_times();
    let mut groups: HashMap<(NameId, OperationKind), Group> = HashMap::new();
    let mut open = OpenNames::default();
    for span in trace.spans() {
        let is_inside_itself = open.enter(trace, &span);
        let group = groups.entry((trace.span_name(span.id), kind(trace, &span))).or_default();
        group.own += own[span.id.index()].0;
        group.durations.push(span.duration.0);
        if !is_inside_itself {
            group.total += span.duration.0;
        }
    }
    let side = |wanted: bool| {
        let times = groups.iter().filter(|((_, kind), _)| (*kind == OperationKind::Device) == wanted);
        times.map(|(_, group)| group.own).sum::<u64>()
    };
    let (host, device) = (side(false), side(true));
    let mut operations: Vec<Operation> = groups
        .into_iter()
        .map(|((name, kind), group)| {
            let all = if kind == OperationKind::Device { device } else { host };
            group.operation(trace.name(name), kind, all)
        })
        .collect();
    operations.sort_by(|a, b| (b.own, &a.name, a.kind).cmp(&(a.own, &b.name, b.kind)));
    Top { operations, overview: overview(trace) }
}

#[derive(Default)]
struct Group {
    own: u64,
    total: u64,
    durations: Vec<u64>,
}

impl Group {
    fn operation(self, name: &str, kind: OperationKind, all: u64) -> Operation {
        let durations = Sorted::<u64>::from_unsorted(self.durations);
        Operation {
            name: name.to_owned(),
            kind,
            count: durations.len() as u64,
            own: Nanos(self.own),
            own_share: if all == 0 { 0.0 } else { self.own as f64 / all as f64 },
            total: Nanos(self.total),
            median: durations.median().unwrap_or(0.0),
            longest: Nanos(durations.max().unwrap_or(0)),
        }
    }
}

fn kind(trace: &Trace, span: &Span<'_>) -> OperationKind {
    match span.category {
        _ if is_on_device(trace, span) => OperationKind::Device,
        LAP => OperationKind::Lap,
        SYNC => OperationKind::Wait,
        _ => OperationKind::Stage,
    }
}

/// The names that are open on each lane, counted, so that a look at them does not depend on the depth.
#[derive(Default)]
struct OpenNames(HashMap<(TrackId, u32), Lane>);

/// What is open on one lane: the spans, innermost last, and how often each name.
#[derive(Default)]
struct Lane {
    around: Vec<SpanId>,
    names: HashMap<NameId, u32>,
}

impl OpenNames {
    /// Goes on to a span; true if it lies inside one of its own name.
    fn enter(&mut self, trace: &Trace, span: &Span<'_>) -> bool {
        let Lane { around, names } = self.0.entry((span.track, span.lane)).or_default();
        while let Some(ended) = around.pop_if(|top| Some(*top) != span.parent) {
            if let Some(count) = names.get_mut(&trace.span_name(ended)) {
                *count -= 1;
            }
        }
        around.push(span.id);
        let count = names.entry(trace.span_name(span.id)).or_default();
        *count += 1;
        *count > 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::TraceBuilder;

    fn shown(trace: &Trace) -> Vec<(String, &'static str, u64, u64, u64)> {
        let shown = |op: Operation| (op.name, op.kind.word(), op.count, op.own.0, op.total.0);
        top(trace).operations.into_iter().map(shown).collect()
    }

    #[test]
    fn names_are_ranked_by_their_own_time() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let worker = builder.thread(1, 2, "worker");
        builder.span(main, Nanos(0), Nanos(100), "generate", "");
        builder.span(main, Nanos(10), Nanos(70), "matmul", "");
        builder.span(worker, Nanos(0), Nanos(20), "matmul", "");
        builder.span(main, Nanos(85), Nanos(5), "read", SYNC);
        let trace = builder.build().unwrap();
        assert_eq!(
            shown(&trace),
            [
                ("matmul".into(), "stage", 2, 90, 90),
                ("generate".into(), "stage", 1, 25, 100),
                ("read".into(), "wait", 1, 5, 5)
            ]
        );
        let shares: f64 = top(&trace).operations.iter().map(|op| op.own_share).sum();
        assert!((shares - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_name_inside_itself_counts_its_whole_time_once() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(100), "visit", "");
        builder.span(main, Nanos(10), Nanos(50), "visit", "");
        builder.span(main, Nanos(200), Nanos(7), "visit", "");
        let trace = builder.build().unwrap();
        assert_eq!(shown(&trace), [("visit".into(), "stage", 3, 107, 107)]);
    }

    #[test]
    fn host_and_device_work_of_one_name_stay_apart() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        let stream = builder.stream(1, 7, "stream 7");
        builder.span(main, Nanos(0), Nanos(5), "gemm", "");
        builder.span(stream, Nanos(3), Nanos(80), "gemm", "");
        let trace = builder.build().unwrap();
        assert_eq!(shown(&trace), [("gemm".into(), "device", 1, 80, 80), ("gemm".into(), "stage", 1, 5, 5)]);
    }
}
