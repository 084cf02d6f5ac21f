//! Gathers what a trace is made of; `build` makes one of it.

mod build;

use std::collections::HashMap;

use crate::{
    names::{NameId, Names},
    time::{Nanos, Origin},
    trace::{FieldRange, OPEN, StoredValue},
    track::{Process, ProcessId, Track, TrackId, TrackKind},
    value::{Number, Value},
};

/// A span as it is handed to the builder; flows refer to it by this until the trace is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanEntry(u32);

#[derive(Debug, Clone, Copy)]
struct SpanRow {
    track: TrackId,
    start: u64,
    duration: u64,
    name: NameId,
    category: NameId,
    fields: FieldRange,
    flags: u8,
}

impl SpanRow {
    fn end(&self) -> u128 {
        u128::from(self.start) + u128::from(self.duration)
    }
}

/// The span was taken back; only while a trace is being built.
const DISCARDED: u8 = 0x80;

#[derive(Debug, Clone, Copy)]
struct MarkRow {
    track: TrackId,
    time: u64,
    name: NameId,
    category: NameId,
    fields: FieldRange,
}

/// Gathers tracks, spans, marks, values and flows in any order; [`TraceBuilder::build`] makes a [`Trace`](crate::Trace) of them.
///
/// ```
/// # use laptime_trace::{Nanos, TraceBuilder};
/// let mut builder = TraceBuilder::default();
/// let main = builder.thread(1, 1, "main");
/// let outer = builder.span(main, Nanos(0), Nanos(100), "generate", "");
/// builder.span_field(outer, "tokens", 512_i64);
/// builder.span(main, Nanos(10), Nanos(50), "prefill", "");
/// let trace = builder.build().unwrap();
/// assert_eq!(trace.outline(), "main\n  generate  0..100  tokens=512\n    prefill  10..60\n");
/// ```
#[derive(Debug, Default)]
pub struct TraceBuilder {
    names: Names,
    processes: Vec<Process>,
    process_numbers: HashMap<i64, ProcessId>,
    tracks: Vec<Track>,
    spans: Vec<SpanRow>,
    marks: Vec<MarkRow>,
    values: Vec<(TrackId, u64, Number)>,
    flows: Vec<(SpanEntry, SpanEntry)>,
    fields: Vec<(NameId, StoredValue)>,
    /// What the times are counted from.
    pub origin: Origin,
    /// How far device times may be off against host times.
    pub clock_uncertainty: Option<Nanos>,
    /// Events that could not be kept while recording.
    pub lost: u64,
    /// What could not be made sense of.
    pub warnings: Vec<String>,
}

impl TraceBuilder {
    /// Finds or adds a name.
    pub fn name(&mut self, name: &str) -> NameId {
        self.names.id(name)
    }

    /// Finds or adds a process by its number.
    pub fn process(&mut self, number: i64) -> ProcessId {
        *self.process_numbers.entry(number).or_insert_with(|| {
            self.processes.push(Process { number, name: NameId::EMPTY });
            ProcessId(self.processes.len() as u32 - 1)
        })
    }

    /// Names a process.
    pub fn name_process(&mut self, process: ProcessId, name: &str) {
        self.processes[process.index()].name = self.names.id(name);
    }

    /// Adds a track.
    pub fn track(&mut self, track: Track) -> TrackId {
        self.tracks.push(track);
        TrackId(self.tracks.len() as u32 - 1)
    }

    /// Changes a track that was added before.
    pub fn track_mut(&mut self, id: TrackId) -> &mut Track {
        &mut self.tracks[id.index()]
    }

    /// Adds the track of a thread.
    pub fn thread(&mut self, process: i64, number: i64, name: &str) -> TrackId {
        self.named_track(process, TrackKind::Thread, name, Some(number))
    }

    /// Adds the track of a device stream.
    pub fn stream(&mut self, process: i64, number: i64, name: &str) -> TrackId {
        self.named_track(process, TrackKind::Stream, name, Some(number))
    }

    /// Adds the track of a curve.
    pub fn counter(&mut self, process: i64, name: &str, unit: &str) -> TrackId {
        let track = self.named_track(process, TrackKind::Counter, name, None);
        self.tracks[track.index()].unit = self.names.id(unit);
        track
    }

    fn named_track(&mut self, process: i64, kind: TrackKind, name: &str, number: Option<i64>) -> TrackId {
        let (process, name) = (self.process(process), self.names.id(name));
        self.track(Track { process, kind, name, number, unit: NameId::EMPTY })
    }

    /// Adds a span.
    pub fn span(&mut self, track: TrackId, start: Nanos, duration: Nanos, name: &str, category: &str) -> SpanEntry {
        let (name, category) = (self.names.id(name), self.names.id(category));
        self.span_named(track, start, duration, name, category)
    }

    /// Adds a span whose names are known.
    pub fn span_named(
        &mut self,
        track: TrackId,
        start: Nanos,
        duration: Nanos,
        name: NameId,
        category: NameId,
    ) -> SpanEntry {
        let fields = FieldRange::default();
        let (start, duration) = (start.0, duration.0);
        self.spans.push(SpanRow { track, start, duration, name, category, fields, flags: 0 });
        SpanEntry((self.spans.len() - 1) as u32)
    }

    /// Says when a span added before ended.
    pub fn end_span(&mut self, span: SpanEntry, end: Nanos) {
        let row = &mut self.spans[span.0 as usize];
        row.duration = end.0.saturating_sub(row.start);
    }

    /// Says that a span was still open at the end.
    pub fn leave_open(&mut self, span: SpanEntry) {
        self.spans[span.0 as usize].flags |= OPEN;
    }

    /// Adds a field to a span; a field of the same name is replaced.
    pub fn span_field<'v>(&mut self, span: SpanEntry, name: &str, value: impl Into<Value<'v>>) {
        let range = self.spans[span.0 as usize].fields;
        self.spans[span.0 as usize].fields = self.add_field(range, name, value.into());
    }

    /// Adds a mark.
    pub fn mark(&mut self, track: TrackId, time: Nanos, name: &str, category: &str) -> usize {
        let (name, category) = (self.names.id(name), self.names.id(category));
        self.marks.push(MarkRow { track, time: time.0, name, category, fields: FieldRange::default() });
        self.marks.len() - 1
    }

    /// Adds a field to the mark of this number; a field of the same name is replaced.
    pub fn mark_field<'v>(&mut self, mark: usize, name: &str, value: impl Into<Value<'v>>) {
        let range = self.marks[mark].fields;
        self.marks[mark].fields = self.add_field(range, name, value.into());
    }

    /// Adds a point of a curve.
    pub fn value(&mut self, track: TrackId, time: Nanos, number: Number) {
        self.values.push((track, time.0, number));
    }

    /// Says that one span led to another.
    pub fn flow(&mut self, from: SpanEntry, to: SpanEntry) {
        self.flows.push((from, to));
    }

    fn add_field(&mut self, range: FieldRange, name: &str, value: Value<'_>) -> FieldRange {
        let name = self.names.id(name);
        let value = self.stored(value);
        self.add_stored(range, name, value)
    }

    fn stored(&mut self, value: Value<'_>) -> StoredValue {
        match value {
            Value::Int(value) => StoredValue::Int(value),
            Value::Uint(value) => StoredValue::Uint(value),
            Value::Float(value) => StoredValue::Float(value),
            Value::Bool(value) => StoredValue::Bool(value),
            Value::Str(value) => StoredValue::Str(self.names.id(value)),
        }
    }

    fn add_stored(&mut self, range: FieldRange, name: NameId, value: StoredValue) -> FieldRange {
        let (start, end) = (range.start as usize, range.start as usize + usize::from(range.count));
        if let Some(known) = self.fields[start..end].iter_mut().find(|(known, _)| *known == name) {
            known.1 = value;
            return range;
        }
        if range.count == u16::MAX {
            return range;
        }
        // The fields of one span lie together: if others came in between, its own move to the end.
        let start = if range.count == 0 || end == self.fields.len() {
            if range.count == 0 { self.fields.len() } else { start }
        } else {
            let moved = self.fields.len();
            self.fields.extend_from_within(start..end);
            moved
        };
        self.fields.push((name, value));
        FieldRange { start: start as u32, count: range.count + 1 }
    }

    /// A name's number if it is known.
    pub(crate) fn known_name(&self, name: &str) -> Option<NameId> {
        self.names.known(name)
    }

    /// Keeps fields that belong to a span not known yet.
    pub(crate) fn keep_fields(&mut self, fields: &[(NameId, StoredValue)]) -> FieldRange {
        fields.iter().fold(FieldRange::default(), |range, &(name, value)| self.add_stored(range, name, value))
    }

    /// Gives a new span its fields.
    pub(crate) fn set_span_fields(&mut self, span: SpanEntry, fields: &[(NameId, StoredValue)]) {
        self.spans[span.0 as usize].fields = self.keep_fields(fields);
    }

    /// Gives a span fields that were kept.
    pub(crate) fn add_kept_fields(&mut self, span: SpanEntry, kept: FieldRange) {
        for at in 0..usize::from(kept.count) {
            let (name, value) = self.fields[kept.start as usize + at];
            let range = self.spans[span.0 as usize].fields;
            self.spans[span.0 as usize].fields = self.add_stored(range, name, value);
        }
    }

    /// Adds a mark whose names are known.
    pub(crate) fn mark_named(
        &mut self,
        track: TrackId,
        time: Nanos,
        name: NameId,
        category: NameId,
        fields: &[(NameId, StoredValue)],
    ) {
        let fields = self.keep_fields(fields);
        self.marks.push(MarkRow { track, time: time.0, name, category, fields });
    }

    /// Whether a span begins there.
    pub(crate) fn begins_at(&self, span: SpanEntry, track: TrackId, time: Nanos) -> bool {
        let row = &self.spans[span.0 as usize];
        (row.track, row.start) == (track, time.0)
    }

    /// Takes a span back.
    pub(crate) fn discard_span(&mut self, span: SpanEntry) {
        self.spans[span.0 as usize].flags |= DISCARDED;
    }

    /// When a span began.
    pub(crate) fn start_of(&self, span: SpanEntry) -> Nanos {
        Nanos(self.spans[span.0 as usize].start)
    }

    pub(crate) fn is_discarded(&self, span: SpanEntry) -> bool {
        self.spans[span.0 as usize].flags & DISCARDED != 0
    }

    /// Puts tracks in place of the placeholders used so far.
    pub(crate) fn replace_tracks(&mut self, settled: &[TrackId]) {
        let spans = self.spans.iter_mut().map(|span| &mut span.track);
        let marks = self.marks.iter_mut().map(|mark| &mut mark.track);
        let values = self.values.iter_mut().map(|(track, _, _)| track);
        for track in spans.chain(marks).chain(values) {
            *track = settled[track.index()];
        }
    }
}
