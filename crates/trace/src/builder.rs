//! Builds a trace, and checks and orders what it is given.

use std::collections::HashMap;

use crate::{
    lanes,
    names::{NameId, Names},
    time::{Nanos, Origin},
    trace::{FieldRange, Flow, NO_PARENT, OPEN, SpanColumns, SpanId, StoredValue, Trace},
    track::{Process, ProcessId, Track, TrackId, TrackKind},
    value::{Number, Value},
};

/// Why a trace cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTrace {
    /// A span or mark was put on a counter, or a value on something else.
    #[error("`{name}` does not belong on a track of kind `{kind}`")]
    WrongTrack {
        /// What was put there.
        name: String,
        /// The kind of the track.
        kind: &'static str,
    },

    /// A moment lies beyond what the formats can hold.
    #[error("`{name}` ends {nanos} ns after the origin, later than a trace can hold")]
    TooLate {
        /// What ends then.
        name: String,
        /// When.
        nanos: u128,
    },

    /// There is more of something than its handles can count.
    #[error("the trace has more than {most} {what}")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it may have.
        most: u64,
    },
}

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

/// Gathers tracks, spans, marks, values and flows in any order; [`TraceBuilder::build`] makes a [`Trace`] of them.
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

    /// Takes a span back.
    pub(crate) fn discard_span(&mut self, span: SpanEntry) {
        self.spans[span.0 as usize].flags |= DISCARDED;
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

    /// Orders, nests and checks what was gathered.
    pub fn build(mut self) -> Result<Trace, InvalidTrace> {
        self.check()?;
        let order = self.span_order();
        let mut trace = Trace { spans: self.span_columns(&order), ..Trace::default() };
        let mut place_of = vec![None; self.spans.len()];
        for (place, &entry) in order.iter().enumerate() {
            place_of[entry as usize] = Some(SpanId(place as u32));
        }
        let id = |entry: SpanEntry| place_of[entry.0 as usize];
        let flow = |&(from, to): &(SpanEntry, SpanEntry)| Some(Flow { from: id(from)?, to: id(to)? });
        trace.flows = self.flows.iter().filter_map(flow).collect();
        trace.flows.sort_unstable();
        trace.flows.dedup();
        self.put_marks(&mut trace);
        self.put_values(&mut trace);
        trace.names = self.names;
        trace.processes = self.processes;
        trace.tracks = self.tracks;
        trace.fields = self.fields;
        trace.origin = self.origin;
        trace.clock_uncertainty = self.clock_uncertainty;
        trace.lost = self.lost;
        trace.warnings = self.warnings;
        Ok(trace)
    }

    fn check(&self) -> Result<(), InvalidTrace> {
        let most = u64::from(u32::MAX) - 1;
        for (what, count) in [("spans", self.spans.len()), ("marks", self.marks.len()), ("fields", self.fields.len())] {
            if count as u64 > most {
                return Err(InvalidTrace::TooMany { what, most });
            }
        }
        for span in &self.spans {
            self.check_place(span.track, span.name, false)?;
            self.check_time(span.name, u128::from(span.start) + u128::from(span.duration))?;
        }
        for mark in &self.marks {
            self.check_place(mark.track, mark.name, false)?;
            self.check_time(mark.name, u128::from(mark.time))?;
        }
        for &(track, time, _) in &self.values {
            let name = self.tracks[track.index()].name;
            self.check_place(track, name, true)?;
            self.check_time(name, u128::from(time))?;
        }
        Ok(())
    }

    fn check_place(&self, track: TrackId, name: NameId, is_value: bool) -> Result<(), InvalidTrace> {
        let kind = self.tracks[track.index()].kind;
        if (kind == TrackKind::Counter) == is_value {
            return Ok(());
        }
        Err(InvalidTrace::WrongTrack { name: self.names.name(name).to_owned(), kind: kind.words() })
    }

    fn check_time(&self, name: NameId, nanos: u128) -> Result<(), InvalidTrace> {
        if nanos <= u128::from(Nanos::MAX.0) {
            return Ok(());
        }
        Err(InvalidTrace::TooLate { name: self.names.name(name).to_owned(), nanos })
    }

    /// The spans' numbers by track, start, longer first; equal ones stay in the order they came.
    fn span_order(&self) -> Vec<u32> {
        let key = |&at: &u32| {
            let span = &self.spans[at as usize];
            (span.track, span.start, std::cmp::Reverse(span.duration))
        };
        let kept = |&at: &u32| !self.is_discarded(SpanEntry(at));
        let mut order: Vec<u32> = (0..self.spans.len() as u32).filter(kept).collect();
        if !order.is_sorted_by_key(key) {
            order.sort_by_key(key);
        }
        order
    }

    fn span_columns(&self, order: &[u32]) -> SpanColumns {
        let mut columns = SpanColumns::default();
        for &at in order {
            let span = &self.spans[at as usize];
            columns.start.push(span.start);
            columns.duration.push(span.duration);
            columns.track.push(span.track);
            columns.name.push(span.name);
            columns.category.push(span.category);
            columns.fields.push(span.fields);
            columns.flags.push(span.flags);
        }
        let mut first = 0;
        while first < order.len() {
            let track = columns.track[first];
            let end = first + columns.track[first..].partition_point(|&known| known == track);
            let spans = (first..end).map(|at| (columns.start[at], columns.start[at] + columns.duration[at]));
            for place in lanes::place(spans, first as u32) {
                columns.lane.push(place.lane);
                columns.parent.push(place.parent.unwrap_or(NO_PARENT));
            }
            first = end;
        }
        columns
    }

    fn put_marks(&mut self, trace: &mut Trace) {
        self.marks.sort_by_key(|mark| (mark.track, mark.time));
        for mark in &self.marks {
            trace.marks.time.push(mark.time);
            trace.marks.track.push(mark.track);
            trace.marks.name.push(mark.name);
            trace.marks.category.push(mark.category);
            trace.marks.fields.push(mark.fields);
        }
    }

    fn put_values(&mut self, trace: &mut Trace) {
        self.values.sort_by_key(|&(track, time, _)| (track, time));
        for &(track, time, number) in &self.values {
            trace.values.time.push(time);
            trace.values.track.push(track);
            trace.values.number.push(number);
        }
    }
}
