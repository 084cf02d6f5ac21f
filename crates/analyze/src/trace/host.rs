//! What a host thread was doing at a moment.

use std::collections::BinaryHeap;

use hashbrown::HashMap;

use laptime_trace::{SpanId, Trace, TrackId};

/// How many enclosing spans are searched before a lane counts as idle: files can nest without limit.
const MOST_OUTWARDS: usize = 256;

/// The spans of each thread by lane, indexed by time.
#[derive(Debug)]
pub struct Host<'a> {
    trace: &'a Trace,
    /// Spans of each lane in order of start, by track.
    lanes: HashMap<TrackId, Vec<Vec<SpanId>>>,
}

impl<'a> Host<'a> {
    /// Indexes the given threads.
    pub fn of(trace: &'a Trace, tracks: impl IntoIterator<Item = TrackId>) -> Self {
        let mut host = Self { trace, lanes: HashMap::new() };
        for track in tracks {
            host.lanes.entry(track).or_insert_with(|| {
                let mut lanes: Vec<Vec<SpanId>> = Vec::new();
                for span in trace.spans_on(track) {
                    let lane = span.lane as usize;
                    if lanes.len() <= lane {
                        lanes.resize_with(lane + 1, Vec::new);
                    }
                    lanes[lane].push(span.id);
                }
                lanes
            });
        }
        host
    }

    /// The innermost span of a thread at a moment; if lanes overlap, the one that started last.
    pub fn doing(&self, track: TrackId, moment: u64) -> Option<SpanId> {
        let lanes = self.lanes.get(&track)?;
        lanes.iter().filter_map(|lane| self.open_at(lane, moment)).max_by_key(|id| self.trace.span_start(*id))
    }

    /// The innermost spans that are open during a whole interval, one per lane except one.
    pub fn around(&self, track: TrackId, from: u64, to: u64, but: Option<u32>) -> Vec<SpanId> {
        let lanes = self.lanes.get(&track).into_iter().flatten().enumerate();
        let lanes = lanes.filter(|(lane, _)| Some(*lane) != but.map(|lane| lane as usize));
        lanes.filter_map(|(_, lane)| self.open_over(lane, from, to)).collect()
    }

    fn open_over(&self, lane: &[SpanId], from: u64, to: u64) -> Option<SpanId> {
        let inner = self.open_at(lane, from)?;
        let mut around = std::iter::successors(Some(inner), |id| self.trace.span(*id).parent).take(MOST_OUTWARDS);
        around.find(|id| self.trace.span(*id).end().0 >= to)
    }

    /// The innermost span of a lane that is open at a moment.
    fn open_at(&self, lane: &[SpanId], moment: u64) -> Option<SpanId> {
        let after = lane.partition_point(|id| self.trace.span_start(*id).0 <= moment);
        let last = lane[after.checked_sub(1)?];
        let around = std::iter::successors(Some(last), |id| self.trace.span_parent(*id));
        let mut around = around.skip_while(|id| self.trace.span_end(*id).0 <= moment);
        around.next()
    }

    /// Earlier spans on the lane of a span, latest first.
    pub fn earlier(&self, id: SpanId) -> impl Iterator<Item = SpanId> {
        let span = self.trace.span(id);
        let lane = self.lanes.get(&span.track).and_then(|lanes| lanes.get(span.lane as usize));
        let before = lane.map_or(&[][..], |lane| &lane[..lane.partition_point(|other| *other < id)]);
        before.iter().rev().copied()
    }

    /// A span and its ancestors, innermost first.
    pub fn outwards(&self, id: SpanId) -> impl Iterator<Item = SpanId> {
        std::iter::successors(Some(id), |id| self.trace.span_parent(*id))
    }

    /// Splits an interval of a thread by its innermost span: each part with its span, or none if nothing was open.
    ///
    /// The parts are in order and add up to the interval.
    pub fn doing_within(&self, track: TrackId, from: u64, to: u64) -> Vec<(Option<SpanId>, u64, u64)> {
        let mut parts: Vec<(Option<SpanId>, u64, u64)> = Vec::new();
        let mut open = BinaryHeap::new();
        let starting = self.starting(track, from, to, &mut open);
        let mut at = from;
        let mut starting = starting.into_iter().peekable();
        while at < to {
            while let Some((start, id)) = starting.next_if(|(start, _)| *start <= at) {
                open.push((start, id));
            }
            while open.peek().is_some_and(|(_, id)| self.trace.span_end(*id).0 <= at) {
                open.pop();
            }
            let inner = open.peek().map(|(_, id)| *id);
            let until = inner.map_or(to, |id| self.trace.span_end(id).0).min(to);
            let until = starting.peek().map_or(until, |(start, _)| until.min(*start));
            match parts.last_mut() {
                Some(last) if last.0 == inner => last.2 = until,
                _ => parts.push((inner, at, until)),
            }
            at = until;
        }
        parts
    }

    /// The spans that start within an interval, in order; those open at its start go to `open`.
    fn starting(&self, track: TrackId, from: u64, to: u64, open: &mut BinaryHeap<(u64, SpanId)>) -> Vec<(u64, SpanId)> {
        let mut starting = Vec::new();
        for lane in self.lanes.get(&track).into_iter().flatten() {
            let begin = |id: &SpanId| self.trace.span_start(*id).0;
            if let Some(inner) = self.open_at(lane, from) {
                let around = std::iter::successors(Some(inner), |id| self.trace.span_parent(*id));
                open.extend(around.map(|id| (begin(&id), id)));
            }
            let first = lane.partition_point(|id| begin(id) <= from);
            let last = lane.partition_point(|id| begin(id) < to);
            starting.extend(lane[first..last.max(first)].iter().map(|id| (begin(id), *id)));
        }
        starting.sort_unstable();
        starting
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{Nanos, TraceBuilder};
    use proptest::prelude::*;

    #[test]
    fn an_interval_is_split_by_the_innermost_span() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(100), "outer", "");
        builder.span(main, Nanos(20), Nanos(30), "inner", "");
        builder.span(main, Nanos(110), Nanos(10), "next", "");
        let trace = builder.build().unwrap();
        let host = Host::of(&trace, [main]);
        let name = |id: Option<SpanId>| id.map_or("-", |id| trace.span(id).name);
        let parts = host.doing_within(main, 10, 115);
        let shown: Vec<_> = parts.iter().map(|(id, from, to)| (name(*id), *from, *to)).collect();
        let expected = [("outer", 10, 20), ("inner", 20, 50), ("outer", 50, 100), ("-", 100, 110), ("next", 110, 115)];
        assert_eq!(shown, expected);
        assert_eq!([5, 30, 105].map(|at| name(host.doing(main, at))), ["outer", "inner", "-"]);
    }

    #[test]
    fn activity_around_an_interval_covers_all_threads_but_one() {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(100), "outer", "");
        builder.span(main, Nanos(10), Nanos(40), "inner", "");
        builder.span(main, Nanos(30), Nanos(90), "across", "");
        let trace = builder.build().unwrap();
        let host = Host::of(&trace, [main]);
        let names = |from, to, but| {
            let mut names: Vec<_> =
                host.around(main, from, to, but).into_iter().map(|id| trace.span(id).name).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(35, 45, None), ["across", "inner"]);
        assert_eq!(names(35, 60, None), ["across", "outer"]);
        assert_eq!(names(35, 60, Some(1)), ["outer"]);
        assert_eq!(names(35, 130, None), [""; 0]);
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_interval_and_agree_with_a_lookup_per_moment(
            spans in prop::collection::vec((0_u64..60, 0_u64..30), 0..12), from in 0_u64..80, length in 0_u64..40,
        ) {
            let mut builder = TraceBuilder::default();
            let main = builder.thread(1, 1, "main");
            for (at, (start, length)) in spans.iter().enumerate() {
                builder.span(main, Nanos(*start), Nanos(*length), &format!("s{at}"), "");
            }
            let trace = builder.build().unwrap();
            let host = Host::of(&trace, [main]);
            let parts = host.doing_within(main, from, from + length);
            prop_assert_eq!(parts.iter().map(|(_, from, to)| to - from).sum::<u64>(), length);
            for (id, start, end) in parts {
                for moment in start..end {
                    let begun = |id: Option<SpanId>| id.map(|id| trace.span(id).start);
                    prop_assert_eq!(begun(host.doing(main, moment)), begun(id));
                }
            }
        }
    }
}
