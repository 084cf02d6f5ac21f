//! The stages inside graph replays, as stamped by the device.
//!
//! A replay is one launch, so it is one stage on the host and on the device. The device code that stamps the stages
//! creates [`GraphReplay`]s; [`Trace::with_replays`] inserts them into the trace.

use std::{collections::HashMap, sync::Arc};

use crate::trace::{SpanId, Trace};
use crate::track::{TrackId, TrackKind};
use crate::{STAMPED, builder::TraceBuilder, invariants::InvalidTrace, kernels::Stretch, time::Nanos, value::Value};

/// The span field with the id of a graph replay.
pub const REPLAY: &str = "replay";

/// One replay of a graph with stamped stages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GraphReplay {
    /// The value of the `replay` field of its span; unique in the process.
    pub number: u64,
    /// The stages, shared by all replays of a graph.
    pub stages: Arc<[InnerStage]>,
    /// Their time ranges, in nanoseconds on the device's timer.
    pub times: Vec<Stretch>,
}

/// A stage inside a graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InnerStage {
    /// Its name.
    pub name: String,
    /// A counter and its value: `layer`, 3.
    pub place: Option<(&'static str, u32)>,
}

/// All replays that a device stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct GraphReplays {
    /// The replays that were read.
    pub replays: Vec<GraphReplay>,
    /// The number of replays that were overwritten before they were read.
    pub lost: u64,
}

impl Trace {
    /// The trace with the stages inside replays, as device-only spans below the spans of their replays.
    ///
    /// The device's timer is not the clock of the trace: a replay is aligned to the end of its span, and the launch
    /// latency is before it. Stages are clipped to the span. Replays without a span in the trace were not recorded.
    pub fn with_replays(self, replays: &GraphReplays) -> Result<Self, InvalidTrace> {
        let places = places(&self, &replays.replays);
        let mut builder = TraceBuilder::extending(self);
        for (track, [start, end], replay) in places {
            add(&mut builder, track, [start, end], replay);
        }
        builder.lost = builder.lost.saturating_add(replays.lost);
        builder.build()
    }
}

/// The device spans that are replays, with their data.
fn places<'a>(trace: &Trace, replays: &'a [GraphReplay]) -> Vec<(TrackId, [u64; 2], &'a GraphReplay)> {
    let by_number: HashMap<u64, &GraphReplay> = replays.iter().map(|replay| (replay.number, replay)).collect();
    let of_span = |id: SpanId| {
        let span = trace.span(id);
        let number = match span.fields.iter().find(|(name, _)| *name == REPLAY)?.1 {
            Value::Uint(number) => number,
            Value::Int(number) => u64::try_from(number).ok()?,
            _ => return None,
        };
        let is_stream = trace.track(span.track).kind == TrackKind::Stream;
        let replay = by_number.get(&number).filter(|_| is_stream)?;
        Some((span.track, [span.start.0, span.end().0], *replay))
    };
    trace.spans().filter_map(|span| of_span(span.id)).collect()
}

fn add(builder: &mut TraceBuilder, track: TrackId, [start, end]: [u64; 2], replay: &GraphReplay) {
    let Some(last) = replay.times.iter().map(|time| time.end_ns).max() else { return };
    let on_trace = |nanos: u64| end.saturating_sub(last.saturating_sub(nanos)).max(start);
    for (stage, time) in replay.stages.iter().zip(&replay.times) {
        let (begin, until) = (on_trace(time.start_ns), on_trace(time.end_ns));
        if until <= start {
            continue;
        }
        let length = Nanos(until.saturating_sub(begin));
        let span = builder.span(track, Nanos(begin), length, &stage.name, STAMPED);
        if let Some((name, number)) = stage.place {
            builder.span_field(span, name, u64::from(number));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stages() -> Arc<[InnerStage]> {
        let layer = |number| InnerStage { name: "layer".to_owned(), place: Some(("layer", number)) };
        [layer(0), layer(1), InnerStage { name: "head".to_owned(), place: None }].into()
    }

    fn replay(number: u64, moments: [u64; 4]) -> GraphReplay {
        let times = moments.windows(2).map(|pair| Stretch { start_ns: pair[0], end_ns: pair[1] }).collect();
        GraphReplay { number, stages: stages(), times }
    }

    /// Two steps on the host and on the device, replays 7 and 8.
    fn trace() -> Trace {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        for (number, start) in [(7_u64, 1_000), (8, 2_000)] {
            let here = builder.span(main, Nanos(start), Nanos(10), "step", "");
            let there = builder.span(stream, Nanos(start + 100), Nanos(500), "step", "");
            builder.span_field(here, REPLAY, number);
            builder.span_field(there, REPLAY, number);
            builder.flow(here, there);
        }
        builder.build().unwrap()
    }

    #[test]
    fn stages_lie_in_the_span_of_their_replay_and_end_where_it_does() {
        let replays = vec![replay(8, [90_000, 90_100, 90_300, 90_400]), replay(7, [50_000, 50_100, 50_200, 50_450])];
        let found = trace().with_replays(&GraphReplays { replays, lost: 2 }).unwrap();
        let expected = "\
main
  step  1000..1010  replay=7
  step  2000..2010  replay=8
stream 7 (device stream)
  step  1100..1600  replay=7
    stamped:layer  1150..1250  layer=0
    stamped:layer  1250..1350  layer=1
    stamped:head  1350..1600
  step  2100..2600  replay=8
    stamped:layer  2200..2300  layer=0
    stamped:layer  2300..2500  layer=1
    stamped:head  2500..2600
";
        assert!(found.outline().starts_with(expected), "{}", found.outline());
        assert_eq!(found.lost, 2);
        assert_eq!(found.flows().len(), 2);
    }

    #[test]
    fn a_replay_that_seems_longer_than_its_span_is_cut_to_it() {
        let replays = vec![replay(7, [1_000, 1_200, 1_400, 1_700])];
        let found = trace().with_replays(&GraphReplays { replays, lost: 0 }).unwrap();
        let inside: Vec<_> = found.spans().filter(|span| span.category == STAMPED).collect();
        let times: Vec<_> = inside.iter().map(|span| (span.start.0, span.end().0)).collect();
        assert_eq!(times, [(1_100, 1_300), (1_300, 1_600)]);
        assert!(inside.iter().all(|span| span.parent.is_some_and(|parent| found.span(parent).name == "step")));
    }

    #[test]
    fn replays_that_were_not_recorded_leave_nothing() {
        let replays = vec![replay(3, [0, 1, 2, 3]), GraphReplay { times: Vec::new(), ..replay(7, [0; 4]) }];
        assert_eq!(trace().with_replays(&GraphReplays { replays, lost: 0 }).unwrap(), trace());
    }
}
