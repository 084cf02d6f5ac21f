//! The trace: columns, handles, interned names.
//!
//! What always holds, checked when a trace is built (`TraceBuilder::build`):
//!
//! 1. Spans are ordered by track, then start, longer ones first; a parent comes before its children.
//! 2. On one lane of a track spans nest: two of them lie apart or one lies inside the other.
//! 3. A child lies within its parent, on the same track and lane.
//! 4. Marks are ordered by track and time, values likewise; values lie on counter tracks, spans and marks do not.
//! 5. Every handle in a column points into its table; no moment is later than [`Nanos::MAX`].
//! 6. A field name stands at most once on a span or mark.
//! 7. Only counters have a unit; no host thread and no host lane has a device.
//! 8. Flows are ordered, and each stands once.

use std::{collections::TryReserveError, ops::Range};

use crate::{
    column::Column,
    fields::{FieldBlock, FieldBlocks, Fields},
    metadata::Metadata,
    names::{NameId, Names},
    time::{Nanos, Origin},
    track::{Process, ProcessId, Track, TrackId},
    value::Number,
};

/// The number of a span of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub(crate) u32);

impl SpanId {
    /// The span's place in the trace's order.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The number of a mark of a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkId(pub(crate) u32);

/// No parent, in the parent column.
pub(crate) const NO_PARENT: u32 = u32::MAX;

/// The span was still open when the recording ended.
pub(crate) const OPEN: u8 = 1;

/// The columns of the spans.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpanColumns {
    pub start: Vec<u64>,
    pub duration: Vec<u64>,
    pub track: Vec<TrackId>,
    pub lane: Column<u32>,
    pub name: Vec<NameId>,
    pub category: Column<NameId>,
    pub parent: Column<u32>,
    pub fields: Column<FieldBlock>,
    pub flags: Column<u8>,
}

impl SpanColumns {
    /// Bytes that they hold.
    pub fn bytes(&self) -> usize {
        let plain = 2 * size_of::<u64>() + size_of::<TrackId>() + size_of::<NameId>();
        let columns = self.lane.bytes() + self.category.bytes() + self.parent.bytes();
        self.start.len() * plain + columns + self.fields.bytes() + self.flags.bytes()
    }

    /// Makes room for more rows, or says that there is none.
    pub fn try_reserve(&mut self, more: usize) -> Result<(), TryReserveError> {
        self.start.try_reserve(more)?;
        self.duration.try_reserve(more)?;
        self.track.try_reserve(more)?;
        self.name.try_reserve(more)?;
        self.category.try_reserve(more)?;
        self.fields.try_reserve(more)?;
        self.flags.try_reserve(more)
    }
}

/// The columns of the marks.
#[derive(Debug, Clone, Default)]
pub(crate) struct MarkColumns {
    pub time: Vec<u64>,
    pub track: Vec<TrackId>,
    pub name: Vec<NameId>,
    pub category: Vec<NameId>,
    pub fields: Vec<FieldBlock>,
}

/// The columns of the values.
#[derive(Debug, Clone, Default)]
pub(crate) struct ValueColumns {
    pub time: Vec<u64>,
    pub track: Vec<TrackId>,
    pub number: Vec<Number>,
}

/// What a run left behind.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    pub(crate) names: Names,
    pub(crate) processes: Vec<Process>,
    pub(crate) tracks: Vec<Track>,
    pub(crate) spans: SpanColumns,
    pub(crate) marks: MarkColumns,
    pub(crate) values: ValueColumns,
    pub(crate) flows: Vec<Flow>,
    pub(crate) fields: FieldBlocks,
    /// What the times are counted from.
    pub origin: Origin,
    /// How far device times may be off against host times; none if the trace does not say.
    pub clock_uncertainty: Option<Nanos>,
    /// Events that could not be kept while recording.
    pub lost: u64,
    /// What the reader could not make sense of, in sentences for people.
    pub warnings: Vec<String>,
    /// What the file says of the run as a whole: ranks, devices, versions.
    pub metadata: Metadata,
    /// The file ended early or is damaged: what is missing here may have followed.
    pub is_cut_off: bool,
}

/// A span, seen whole.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// Its number.
    pub id: SpanId,
    /// The track it lies on.
    pub track: TrackId,
    /// The lane of that track.
    pub lane: u32,
    /// Its name.
    pub name: &'a str,
    /// Its category; empty for a plain stage.
    pub category: &'a str,
    /// When it began.
    pub start: Nanos,
    /// How long it lasted.
    pub duration: Nanos,
    /// The span it lies in.
    pub parent: Option<SpanId>,
    /// It was still open when the recording ended, and was closed there.
    pub is_open: bool,
    /// Its fields.
    pub fields: Fields<'a>,
}

impl Span<'_> {
    /// When it ended.
    pub fn end(&self) -> Nanos {
        self.start.saturating_add(self.duration)
    }
}

/// A moment that was marked.
#[derive(Debug, Clone, Copy)]
pub struct Mark<'a> {
    /// Its number.
    pub id: MarkId,
    /// The track it lies on.
    pub track: TrackId,
    /// Its name.
    pub name: &'a str,
    /// Its category; empty for a plain mark.
    pub category: &'a str,
    /// When it was.
    pub time: Nanos,
    /// Its fields.
    pub fields: Fields<'a>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValuePoint {
    /// The counter track.
    pub track: TrackId,
    /// When it was.
    pub time: Nanos,
    /// The value.
    pub number: Number,
}

/// One span led to another: a launch on the host to the work on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The cause.
    pub from: SpanId,
    /// The effect.
    pub to: SpanId,
}

impl Trace {
    /// Whether there is no span, no mark and no value in it.
    pub fn is_empty(&self) -> bool {
        self.spans.start.is_empty() && self.marks.time.is_empty() && self.values.time.is_empty()
    }

    /// All tracks, in the order they were added.
    pub fn tracks(&self) -> impl ExactSizeIterator<Item = (TrackId, &Track)> {
        self.tracks.iter().enumerate().map(|(at, track)| (TrackId(at as u32), track))
    }

    /// One track.
    pub fn track(&self, id: TrackId) -> &Track {
        &self.tracks[id.index()]
    }

    /// All processes.
    pub fn processes(&self) -> impl ExactSizeIterator<Item = (ProcessId, &Process)> {
        self.processes.iter().enumerate().map(|(at, process)| (ProcessId(at as u32), process))
    }

    /// One process.
    pub fn process(&self, id: ProcessId) -> &Process {
        &self.processes[id.index()]
    }

    /// The string behind a name.
    pub fn name(&self, id: NameId) -> &str {
        self.names.name(id)
    }

    /// The number of a string, if the trace holds it.
    pub fn known_name(&self, name: &str) -> Option<NameId> {
        self.names.known(name)
    }

    /// How many spans there are.
    pub fn span_count(&self) -> usize {
        self.spans.start.len()
    }

    /// One span.
    pub fn span(&self, id: SpanId) -> Span<'_> {
        let at = id.index();
        let spans = &self.spans;
        let parent = spans.parent[at];
        Span {
            id,
            track: spans.track[at],
            lane: spans.lane[at],
            name: self.names.name(spans.name[at]),
            category: self.names.name(spans.category[at]),
            start: Nanos(spans.start[at]),
            duration: Nanos(spans.duration[at]),
            parent: (parent != NO_PARENT).then_some(SpanId(parent)),
            is_open: spans.flags[at] & OPEN != 0,
            fields: self.fields_in(spans.fields[at]),
        }
    }

    /// When a span began, without looking at the rest of it.
    #[inline]
    pub fn span_start(&self, id: SpanId) -> Nanos {
        Nanos(self.spans.start[id.index()])
    }

    /// When a span ended, without looking at the rest of it.
    #[inline]
    pub fn span_end(&self, id: SpanId) -> Nanos {
        self.span_start(id).saturating_add(Nanos(self.spans.duration[id.index()]))
    }

    /// The span that a span lies in, without looking at the rest of it.
    #[inline]
    pub fn span_parent(&self, id: SpanId) -> Option<SpanId> {
        let parent = self.spans.parent[id.index()];
        (parent != NO_PARENT).then_some(SpanId(parent))
    }

    /// The track that a span lies on, without looking at the rest of it.
    #[inline]
    pub fn span_track(&self, id: SpanId) -> TrackId {
        self.spans.track[id.index()]
    }

    /// All spans: track by track, each in order of start.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = Span<'_>> {
        (0..self.span_count() as u32).map(|at| self.span(SpanId(at)))
    }

    /// The spans of one track, in order of start, longer ones first; a parent comes before its children.
    pub fn spans_on(&self, track: TrackId) -> impl ExactSizeIterator<Item = Span<'_>> {
        range_of(&self.spans.track, track).map(|at| self.span(SpanId(at)))
    }

    /// The time of each span less that of its children, by the span's place in the trace.
    ///
    /// Children of one parent lie apart, on one lane: their times never add up to more than the parent's.
    pub fn own_times(&self) -> Vec<Nanos> {
        let mut own: Vec<Nanos> = self.spans.duration.iter().map(|&duration| Nanos(duration)).collect();
        for span in self.spans() {
            if let Some(parent) = span.parent {
                own[parent.index()] = own[parent.index()].saturating_sub(span.duration);
            }
        }
        own
    }

    /// The name of a span as a number, for grouping without comparing text.
    pub fn span_name(&self, id: SpanId) -> NameId {
        self.spans.name[id.index()]
    }

    /// The category of a span as a number, for grouping without comparing text.
    pub fn span_category(&self, id: SpanId) -> NameId {
        self.spans.category[id.index()]
    }

    /// How many marks there are.
    pub fn mark_count(&self) -> usize {
        self.marks.time.len()
    }

    /// All marks: track by track, each in order of time.
    pub fn marks(&self) -> impl ExactSizeIterator<Item = Mark<'_>> {
        (0..self.mark_count() as u32).map(|at| self.mark(MarkId(at)))
    }

    /// The marks of one track, in order of time.
    pub fn marks_on(&self, track: TrackId) -> impl ExactSizeIterator<Item = Mark<'_>> {
        range_of(&self.marks.track, track).map(|at| self.mark(MarkId(at)))
    }

    /// A mark by its number.
    pub fn mark(&self, id: MarkId) -> Mark<'_> {
        let (marks, at) = (&self.marks, id.0 as usize);
        Mark {
            id,
            track: marks.track[at],
            name: self.names.name(marks.name[at]),
            category: self.names.name(marks.category[at]),
            time: Nanos(marks.time[at]),
            fields: self.fields_in(marks.fields[at]),
        }
    }

    /// All points of all curves: track by track, each in order of time.
    pub fn values(&self) -> impl ExactSizeIterator<Item = ValuePoint> {
        let values = &self.values;
        (0..values.time.len()).map(|at| ValuePoint {
            track: values.track[at],
            time: Nanos(values.time[at]),
            number: values.number[at],
        })
    }

    /// What led to what, in order of the cause.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The first and last moment that anything happened; none if nothing did.
    pub fn bounds(&self) -> Option<(Nanos, Nanos)> {
        let starts = self.spans.start.iter().chain(&self.marks.time).chain(&self.values.time);
        let first = starts.min()?;
        let ends = (0..self.span_count() as u32).map(|at| self.span_end(SpanId(at)).0);
        let last = ends.chain(self.marks.time.iter().copied()).chain(self.values.time.iter().copied()).max()?;
        Some((Nanos(*first), Nanos(last)))
    }

    fn fields_in(&self, block: FieldBlock) -> Fields<'_> {
        Fields { names: &self.names, stored: self.fields.fields(block) }
    }
}

/// The rows of a track in a column ordered by track.
fn range_of(tracks: &[TrackId], track: TrackId) -> Range<u32> {
    let start = tracks.partition_point(|&known| known < track);
    let end = tracks.partition_point(|&known| known <= track);
    start as u32..end as u32
}
