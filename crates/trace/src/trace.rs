//! The trace: columns, handles, interned names.
//!
//! Invariants, checked when a trace is built (`TraceBuilder::build`):
//!
//! 1. Spans are ordered by track, then start, longer ones first; a parent comes before its children.
//! 2. On one lane of a track spans nest: two spans are disjoint, or one contains the other.
//! 3. A child is within its parent, on the same track and lane.
//! 4. Marks and values are each sorted by track and time; values are on counter tracks, spans and marks are not.
//! 5. Every handle in a column is valid in its table; no time is later than [`Nanos::MAX`].
//! 6. A field name occurs at most once per span or mark.
//! 7. Only counters have a unit; no host thread and no host lane has a device.
//! 8. Flows are sorted, without duplicates.

use std::{collections::TryReserveError, ops::Range, sync::OnceLock};

use crate::column::{Cell, Column};
use crate::fields::{FieldBlock, FieldBlocks, Fields};
use crate::names::{NameId, Names};
use crate::time::{Nanos, Origin};
use crate::track::{Process, ProcessId, Track, TrackId};
use crate::{metadata::Metadata, value::Number};

/// The id of a span in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanId(pub(crate) u32);

impl Cell for Option<SpanId> {
    fn number(self) -> u64 {
        self.map_or(0, |id| u64::from(id.0) + 1)
    }

    fn of(number: u64) -> Self {
        number.checked_sub(1).map(|id| SpanId(id as u32))
    }
}

impl SpanId {
    /// The span's index in the trace.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// The id of a mark in a trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MarkId(pub(crate) u32);

/// No parent, in the parent column.
pub(crate) const NO_PARENT: u32 = u32::MAX;

/// The span was still open when the recording ended.
pub(crate) const OPEN: u8 = 1;

#[derive(Debug, Clone, Default)]
pub(crate) struct SpanColumns {
    pub start: Vec<u64>,
    pub duration: Column<u64>,
    pub track: Column<TrackId>,
    pub lane: Column<u32>,
    pub name: Column<NameId>,
    pub category: Column<NameId>,
    pub parent: Column<u32>,
    pub fields: Column<FieldBlock>,
    pub flags: Column<u8>,
}

impl SpanColumns {
    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        let times = size_of_val(self.start.as_slice()) + self.duration.bytes();
        let names = self.track.bytes() + self.lane.bytes() + self.name.bytes() + self.category.bytes();
        times + names + self.parent.bytes() + self.fields.bytes() + self.flags.bytes()
    }

    /// Reserves memory for more rows, or returns an error.
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

#[derive(Debug, Clone, Default)]
pub(crate) struct MarkColumns {
    pub time: Vec<u64>,
    pub track: Column<TrackId>,
    pub name: Column<NameId>,
    pub category: Column<NameId>,
    pub fields: Column<FieldBlock>,
}

impl MarkColumns {
    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        let names = self.track.bytes() + self.name.bytes() + self.category.bytes();
        size_of_val(self.time.as_slice()) + names + self.fields.bytes()
    }
}

#[derive(Debug, Clone, Default)]
pub(crate) struct ValueColumns {
    pub time: Vec<u64>,
    pub track: Column<TrackId>,
    pub number: Vec<Number>,
}

impl ValueColumns {
    /// The size in bytes.
    pub fn bytes(&self) -> usize {
        size_of_val(self.time.as_slice()) + self.track.bytes() + size_of_val(self.number.as_slice())
    }
}

/// A recorded or imported trace.
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
    /// The first and last time, computed on first use.
    pub(crate) bounds: OnceLock<Option<(Nanos, Nanos)>>,
    /// The origin of all times.
    pub origin: Origin,
    /// The maximum error of device times relative to host times; none if unknown.
    pub clock_uncertainty: Option<Nanos>,
    /// Events dropped during recording.
    pub lost: u64,
    /// Warnings of the reader for the user.
    pub warnings: Vec<String>,
    /// Metadata of the run: ranks, devices, versions.
    pub metadata: Metadata,
    /// The file ended early or is damaged, so events may be missing.
    pub is_cut_off: bool,
}

/// A view of a span.
#[derive(Debug, Clone, Copy)]
pub struct Span<'a> {
    /// The id.
    pub id: SpanId,
    /// The track.
    pub track: TrackId,
    /// The lane of that track.
    pub lane: u32,
    /// Its name.
    pub name: &'a str,
    /// Its category; empty for a plain stage.
    pub category: &'a str,
    /// The start time.
    pub start: Nanos,
    /// The duration.
    pub duration: Nanos,
    /// The enclosing span.
    pub parent: Option<SpanId>,
    /// Whether it was still open when the recording ended, and was closed there.
    pub is_open: bool,
    /// Its fields.
    pub fields: Fields<'a>,
}

impl Span<'_> {
    /// The end time.
    pub fn end(&self) -> Nanos {
        self.start.saturating_add(self.duration)
    }
}

/// A view of a mark: a moment in time.
#[derive(Debug, Clone, Copy)]
pub struct Mark<'a> {
    /// The id.
    pub id: MarkId,
    /// The track.
    pub track: TrackId,
    /// Its name.
    pub name: &'a str,
    /// Its category; empty for a plain mark.
    pub category: &'a str,
    /// The time.
    pub time: Nanos,
    /// Its fields.
    pub fields: Fields<'a>,
}

/// A point of a curve.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ValuePoint {
    /// The counter track.
    pub track: TrackId,
    /// The time.
    pub time: Nanos,
    /// The value.
    pub number: Number,
}

/// A flow between two spans, such as a launch on the host and its work on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Flow {
    /// The cause.
    pub from: SpanId,
    /// The effect.
    pub to: SpanId,
}

impl Trace {
    /// Whether it contains no span, no mark and no value.
    pub fn is_empty(&self) -> bool {
        self.spans.start.is_empty() && self.marks.time.is_empty() && self.values.time.is_empty()
    }

    /// All tracks, in insertion order.
    pub fn tracks(&self) -> impl ExactSizeIterator<Item = (TrackId, &Track)> {
        self.tracks.iter().enumerate().map(|(at, track)| (TrackId(at as u32), track))
    }

    /// One track.
    #[inline]
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

    /// The text of a name.
    #[inline]
    pub fn name(&self, id: NameId) -> &str {
        self.names.name(id)
    }

    /// All names, by their index.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        (0..self.names.len() as u32).map(|at| self.names.name(NameId(at)))
    }

    /// The id of a string, if it is in the trace.
    pub fn known_name(&self, name: &str) -> Option<NameId> {
        self.names.known(name)
    }

    /// The number of spans.
    pub fn span_count(&self) -> usize {
        self.spans.start.len()
    }

    /// One span. Inlined, so that columns that a caller does not read are not loaded.
    #[inline]
    pub fn span(&self, id: SpanId) -> Span<'_> {
        let at = id.index();
        let spans = &self.spans;
        let parent = spans.parent.get(at);
        Span {
            id,
            track: spans.track.get(at),
            lane: spans.lane.get(at),
            name: self.names.name(spans.name.get(at)),
            category: self.names.name(spans.category.get(at)),
            start: Nanos(spans.start[at]),
            duration: Nanos(spans.duration.get(at)),
            parent: (parent != NO_PARENT).then_some(SpanId(parent)),
            is_open: spans.flags.get(at) & OPEN != 0,
            fields: self.fields_in(spans.fields.get(at)),
        }
    }

    /// The ids of all spans: track by track, each sorted by start.
    pub fn span_ids(&self) -> impl ExactSizeIterator<Item = SpanId> + use<> {
        (0..self.span_count() as u32).map(SpanId)
    }

    /// The spans without a parent.
    pub fn roots(&self) -> impl Iterator<Item = Span<'_>> {
        self.span_ids().filter(|&id| self.span_parent(id).is_none()).map(|id| self.span(id))
    }

    /// The number of spans that were still open when the recording ended.
    pub fn open_count(&self) -> usize {
        self.spans.flags.iter().filter(|flags| flags & OPEN != 0).count()
    }

    /// The start of a span, without its other columns.
    #[inline]
    pub fn span_start(&self, id: SpanId) -> Nanos {
        Nanos(self.spans.start[id.index()])
    }

    /// The starts of all spans in nanoseconds.
    pub fn span_starts(&self) -> &[u64] {
        &self.spans.start
    }

    /// The end of a span, without its other columns.
    #[inline]
    pub fn span_end(&self, id: SpanId) -> Nanos {
        self.span_start(id).saturating_add(Nanos(self.spans.duration.get(id.index())))
    }

    /// The parent of a span, without its other columns.
    #[inline]
    pub fn span_parent(&self, id: SpanId) -> Option<SpanId> {
        let parent = self.spans.parent.get(id.index());
        (parent != NO_PARENT).then_some(SpanId(parent))
    }

    /// The track of a span, without its other columns.
    #[inline]
    pub fn span_track(&self, id: SpanId) -> TrackId {
        self.spans.track.get(id.index())
    }

    /// All spans: track by track, each sorted by start.
    pub fn spans(&self) -> impl ExactSizeIterator<Item = Span<'_>> {
        self.span_ids().map(|id| self.span(id))
    }

    /// The spans of one track, sorted by start, longer ones first; a parent comes before its children.
    pub fn spans_on(&self, track: TrackId) -> impl ExactSizeIterator<Item = Span<'_>> {
        range_of(&self.spans.track, track).map(|at| self.span(SpanId(at)))
    }

    /// The self time of each span, by its index: its duration minus that of its children.
    ///
    /// Children of one parent are disjoint, on one lane: their total never exceeds the parent's duration.
    pub fn own_times(&self) -> Vec<Nanos> {
        let mut own: Vec<Nanos> = self.spans.duration.iter().map(Nanos).collect();
        for span in self.spans() {
            if let Some(parent) = span.parent {
                own[parent.index()] = own[parent.index()].saturating_sub(span.duration);
            }
        }
        own
    }

    /// The name of a span as an id, for grouping without comparing text.
    #[inline]
    pub fn span_name(&self, id: SpanId) -> NameId {
        self.spans.name.get(id.index())
    }

    /// The category of a span as an id, for grouping without comparing text.
    #[inline]
    pub fn span_category(&self, id: SpanId) -> NameId {
        self.spans.category.get(id.index())
    }

    /// The number of marks.
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

    /// A mark by its id.
    pub fn mark(&self, id: MarkId) -> Mark<'_> {
        let (marks, at) = (&self.marks, id.0 as usize);
        Mark {
            id,
            track: marks.track.get(at),
            name: self.names.name(marks.name.get(at)),
            category: self.names.name(marks.category.get(at)),
            time: Nanos(marks.time[at]),
            fields: self.fields_in(marks.fields.get(at)),
        }
    }

    /// All points of all curves: track by track, each in order of time.
    pub fn values(&self) -> impl ExactSizeIterator<Item = ValuePoint> {
        let values = &self.values;
        (0..values.time.len()).map(|at| ValuePoint {
            track: values.track.get(at),
            time: Nanos(values.time[at]),
            number: values.number[at],
        })
    }

    /// All flows, sorted by their source.
    pub fn flows(&self) -> &[Flow] {
        &self.flows
    }

    /// The first and last time of any event; none for an empty trace.
    pub fn bounds(&self) -> Option<(Nanos, Nanos)> {
        *self.bounds.get_or_init(|| self.find_bounds())
    }

    fn find_bounds(&self) -> Option<(Nanos, Nanos)> {
        let starts = self.spans.start.iter().chain(&self.marks.time).chain(&self.values.time);
        let first = starts.min()?;
        let ends = self.span_ids().map(|id| self.span_end(id).0);
        let last = ends.chain(self.marks.time.iter().copied()).chain(self.values.time.iter().copied()).max()?;
        Some((Nanos(*first), Nanos(last)))
    }

    #[inline]
    fn fields_in(&self, block: FieldBlock) -> Fields<'_> {
        Fields { names: &self.names, blocks: &self.fields, block }
    }
}

/// The rows of a track in a column ordered by track.
fn range_of(tracks: &Column<TrackId>, track: TrackId) -> Range<u32> {
    let start = tracks.partition_point(0, tracks.len(), |known| known < track);
    let end = tracks.partition_point(start, tracks.len(), |known| known <= track);
    start as u32..end as u32
}
