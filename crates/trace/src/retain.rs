//! Selects a part of a trace.

use std::collections::BTreeMap;

use crate::trace::{SpanId, Trace};
use crate::track::{ProcessId, TrackId};
use crate::{builder::TraceBuilder, column::Column, invariants::InvalidTrace, metadata::rank_in_title, time::Nanos};

impl Trace {
    /// The trace with only the spans that `is_kept` accepts, and the flows between them. Marks and values stay.
    pub fn retain(self, is_kept: impl Fn(&Self, SpanId) -> bool) -> Result<Self, InvalidTrace> {
        let kept: Vec<bool> = self.spans().map(|span| is_kept(&self, span.id)).collect();
        let mut builder = TraceBuilder::extending(self);
        builder.retain_spans(&kept);
        builder.build()
    }

    /// The trace with only the marks and values at times that `is_kept` accepts. Spans stay.
    pub fn retain_points(self, is_kept: impl Fn(Nanos) -> bool) -> Result<Self, InvalidTrace> {
        let kept = |times: &[u64]| -> Vec<bool> { times.iter().map(|&time| is_kept(Nanos(time))).collect() };
        let (marks, values) = (kept(&self.marks.time), kept(&self.values.time));
        let mut builder = TraceBuilder::extending(self);
        builder.keep_points(&marks, &values);
        builder.build()
    }

    /// The processes of each rank, if the trace has several ranks. Those without a rank, such as a launcher, belong to the
    /// lowest one.
    pub fn ranks(&self) -> Option<BTreeMap<u64, Vec<ProcessId>>> {
        let ranks: Vec<(ProcessId, Option<u64>)> =
            self.processes().map(|(id, process)| (id, rank_in_title(self.name(process.name)))).collect();
        let lowest = ranks.iter().filter_map(|(_, rank)| *rank).min()?;
        let mut found: BTreeMap<u64, Vec<ProcessId>> = BTreeMap::new();
        for (id, rank) in ranks {
            found.entry(rank.unwrap_or(lowest)).or_default().push(id);
        }
        (found.len() > 1 && self.metadata.rank().is_none()).then_some(found)
    }

    /// The trace of one rank: its processes and their events.
    pub fn of_rank(self, rank: u64, processes: &[ProcessId]) -> Result<Self, InvalidTrace> {
        let is_kept = |track: TrackId| processes.contains(&self.track(track).process);
        let kept = |tracks: &Column<TrackId>| -> Vec<bool> { tracks.iter().map(is_kept).collect() };
        let (spans, marks, values) = (kept(&self.spans.track), kept(&self.marks.track), kept(&self.values.track));
        let mut builder = TraceBuilder::extending(self);
        builder.metadata.set_rank(rank);
        builder.retain_spans(&spans);
        builder.keep_points(&marks, &values);
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_trace_of_several_ranks_is_divided_by_their_processes() {
        let mut builder = TraceBuilder::default();
        for (pid, title) in [(5, "torchrun"), (7, "rank 1: python"), (6, "rank 0: python")] {
            let process = builder.process(pid);
            builder.name_process(process, title);
            let (main, stream) = (builder.thread(pid, 1, "main"), builder.stream(pid, 7, "stream 7"));
            let launch = builder.span(main, Nanos(0), Nanos(10), "launch", "");
            let kernel = builder.span(stream, Nanos(20), Nanos(30), title, "kernel");
            builder.flow(launch, kernel);
            builder.mark(main, Nanos(5), title, "");
        }
        builder.metadata.set(crate::metadata::DISTRIBUTED, r#"{"world_size": 2}"#);
        let trace = builder.build().unwrap();
        let ranks = trace.ranks().unwrap();
        let part = |rank: u64| trace.clone().of_rank(rank, &ranks[&rank]).unwrap();
        let counts = |trace: &Trace| (trace.span_count(), trace.flows().len(), trace.mark_count());
        assert_eq!([0, 1].map(|rank| counts(&part(rank))), [(4, 2, 2), (2, 1, 1)]);
        let one = part(1);
        assert_eq!((one.metadata.rank(), one.metadata.world_size()), (Some(1), Some(2)));
        assert!(one.spans().all(|span| ["launch", "rank 1: python"].contains(&span.name)));
        assert!(one.ranks().is_none(), "the rank is known");
    }

    #[test]
    fn points_are_selected_by_time() {
        let mut builder = TraceBuilder::default();
        let (main, curve) = (builder.thread(1, 1, "main"), builder.counter(1, "clock", "MHz"));
        builder.span(main, Nanos(0), Nanos(500), "all", "");
        for time in [100, 200, 300] {
            builder.mark(main, Nanos(time), "sample", "");
            builder.value(curve, Nanos(time), crate::Number::Int(1));
        }
        let part = builder.build().unwrap().retain_points(|time| time == Nanos(200)).unwrap();
        let marks: Vec<u64> = part.marks_on(main).map(|mark| mark.time.0).collect();
        assert_eq!((marks, part.values().count(), part.span_count()), (vec![200], 1, 1));
    }

    #[test]
    fn discarded_spans_lose_their_flows() {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        for start in [0, 100] {
            let launch = builder.span(main, Nanos(start), Nanos(10), "launch", "");
            let kernel = builder.span(stream, Nanos(start + 20), Nanos(30), "kernel", "");
            builder.flow(launch, kernel);
        }
        let trace = builder.build().unwrap();
        let part = trace.retain(|trace, id| trace.span_start(id) >= Nanos(100)).unwrap();
        assert_eq!(
            part.outline(),
            "main\n  launch  100..110\nstream 7 (device stream)\n  kernel  120..150\nflow launch 100 -> kernel 120\n"
        );
        assert_eq!(part.flows().len(), 1);
    }
}
