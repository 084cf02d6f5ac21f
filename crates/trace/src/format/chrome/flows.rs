//! Flows of a JSON trace: given by the spans themselves, or by events that refer to spans (our own) or moments (other
//! tools).

use std::collections::HashMap;

use super::tracks::{AsyncId, Tracks};
use crate::builder::{FlowPlace, SpanEntry, TraceBuilder};
use crate::{names::NameId, time::Nanos, track::TrackId};

/// The key that connects the ends of one flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowKey {
    pub category: NameId,
    pub name: NameId,
    pub id: AsyncId,
}

/// Which end of a flow an event is, in the order for ends at the same moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Step {
    Start,
    Middle,
    Finish,
}

#[derive(Debug, Default)]
pub struct Flows {
    own: HashMap<AsyncId, (Option<OwnEnd>, Option<OwnEnd>)>,
    keys: HashMap<FlowKey, u32>,
    others: Vec<(u32, OtherEnd)>,
    bound: Vec<BoundEnd>,
}

/// An end of a flow that is given by a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct BoundEnd {
    pub id: AsyncId,
    pub time: u64,
    pub step: Step,
    pub span: SpanEntry,
}

/// An end of another tool's flow: its track and time.
#[derive(Debug, Clone, Copy)]
pub struct OtherEnd {
    pub time: u64,
    pub step: Step,
    pub pid: i64,
    pub tid: i64,
    pub is_next: bool,
}

/// The start or end of one of our flows: the number of the span in the file, and its position.
#[derive(Debug, Clone, Copy)]
pub struct OwnEnd {
    pub span: u64,
    pub track: TrackId,
    pub time: u64,
}

impl Flows {
    /// Adds one end of our own flow.
    pub fn own(&mut self, id: AsyncId, is_start: bool, end: OwnEnd) {
        let flow = self.own.entry(id).or_default();
        *(if is_start { &mut flow.0 } else { &mut flow.1 }) = Some(end);
    }

    /// Adds one end of another tool's flow.
    pub fn other(&mut self, key: FlowKey, end: OtherEnd) {
        let next = self.keys.len() as u32;
        let key = *self.keys.entry(key).or_insert(next);
        self.others.push((key, end));
    }

    /// Adds an end of a flow, given by the fields of a span.
    pub fn bound(&mut self, end: BoundEnd) {
        self.bound.push(end);
    }

    /// Connects the flows; returns how many have a missing end.
    pub fn connect(self, tracks: &Tracks, builder: &mut TraceBuilder) -> u64 {
        let Self { own, mut others, mut bound, .. } = self;
        let mut lost = connect_own(own, builder);
        bound.sort_unstable();
        lost += bound.chunk_by(|a, b| a.id == b.id).map(|flow| connect_bound(flow, builder)).sum::<u64>();
        others.sort_by_key(|(key, end)| (*key, end.time, end.step));
        lost + others.chunk_by(|a, b| a.0 == b.0).map(|flow| connect_other(flow, tracks, builder)).sum::<u64>()
    }
}

/// A damaged file may have lost spans: an end that is not where its span begins belongs to another span.
fn connect_own(own: HashMap<AsyncId, (Option<OwnEnd>, Option<OwnEnd>)>, builder: &mut TraceBuilder) -> u64 {
    let mut lost = 0;
    let span = |end: Option<OwnEnd>, builder: &TraceBuilder| {
        let end = end?;
        let entry = builder.entry(end.span)?;
        builder.begins_at(entry, end.track, Nanos(end.time)).then_some(entry)
    };
    for (from, to) in own.into_values() {
        match (span(from, builder), span(to, builder)) {
            (Some(from), Some(to)) => builder.flow(from, to),
            _ => lost += 1,
        }
    }
    lost
}

/// Connects the spans of one flow, as [`connect_other`] does.
fn connect_bound(flow: &[BoundEnd], builder: &mut TraceBuilder) -> u64 {
    let first = flow.iter().position(|end| end.step == Step::Start);
    let Some(mut from) = first.map(|at| flow[at].span) else { return flow.len() as u64 };
    let mut ties = 0;
    for end in flow {
        if end.step != Step::Start {
            builder.flow(from, end.span);
            ties += 1;
        }
        if end.step != Step::Finish {
            from = end.span;
        }
    }
    u64::from(ties == 0)
}

/// Connects the ends of one flow in order of time: a start leads to what follows, a step continues from there. One
/// start may have many ends, such as the launch of a graph. Device clocks are slightly off, so an end may come before
/// its start.
fn connect_other(flow: &[(u32, OtherEnd)], tracks: &Tracks, builder: &mut TraceBuilder) -> u64 {
    let place = |end: &OtherEnd| {
        let track = tracks.seen(end.pid, end.tid)?;
        Some(FlowPlace { track, time: end.time, is_next: end.is_next })
    };
    let first_start = flow.iter().find(|(_, end)| end.step == Step::Start).and_then(|(_, end)| place(end));
    let Some(mut from) = first_start else { return flow.len() as u64 };
    let (mut ties, mut lost) = (0, 0);
    for (_, end) in flow {
        let Some(here) = place(end) else {
            lost += 1;
            continue;
        };
        if end.step != Step::Start {
            builder.flow_between(from, here);
            ties += 1;
        }
        if end.step != Step::Finish {
            from = here;
        }
    }
    lost + u64::from(ties + lost == 0)
}
