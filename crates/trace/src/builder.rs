//! Collects the parts of a trace; `build` creates the trace.

mod build;

pub(crate) use self::build::sort_by_key;

use std::collections::{HashMap, TryReserveError};

use crate::fields::{FieldBlock, FieldBlocks, StoredValue};
use crate::metadata::Metadata;
use crate::names::{NameId, Names};
use crate::time::{Nanos, Origin};
use crate::trace::{Flow, MarkColumns, OPEN, SpanColumns, Trace, ValueColumns};
use crate::track::{Process, ProcessId, Track, TrackId, TrackKind};
use crate::value::{Number, Value};

/// A span in a builder; flows refer to it until the trace is built.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SpanEntry(u32);

impl SpanEntry {
    fn at(self) -> usize {
        self.0 as usize
    }

    /// Its insertion index.
    pub(crate) fn number(self) -> u32 {
        self.0
    }
}

/// The span was discarded; only used while a trace is being built.
const DISCARDED: u8 = 0x80;

/// The start or end of a flow on the timeline, if its span is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct FlowPlace {
    pub track: TrackId,
    pub time: u64,
    /// The flow ends in the next span, not in the enclosing one.
    pub is_next: bool,
}

/// Collects tracks, spans, marks, values and flows in any order; [`TraceBuilder::build`] creates a
/// [`Trace`](crate::Trace) from them.
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
    /// In insertion order; lanes and parents are determined when the trace is built.
    spans: SpanColumns,
    marks: MarkColumns,
    values: ValueColumns,
    flows: Vec<(SpanEntry, SpanEntry)>,
    placed_flows: Vec<(FlowPlace, FlowPlace)>,
    fields: FieldBlocks,
    /// Fields that will become a block.
    scratch: Vec<(NameId, StoredValue)>,
    /// The origin of all times.
    pub origin: Origin,
    /// The maximum error of device times relative to host times.
    pub clock_uncertainty: Option<Nanos>,
    /// Events dropped during recording.
    pub lost: u64,
    /// Problems found while reading.
    pub warnings: Vec<String>,
    /// Metadata of the run.
    pub metadata: Metadata,
    /// The file ended early or is damaged.
    pub is_cut_off: bool,
}

impl TraceBuilder {
    /// Continues a finished trace: more can be added, and existing content stays unchanged.
    pub fn extending(trace: Trace) -> Self {
        let numbered = trace.processes.iter().enumerate();
        let process_numbers = numbered.map(|(at, process)| (process.number, ProcessId(at as u32))).collect();
        let entries = |flow: &Flow| (SpanEntry(flow.from.0), SpanEntry(flow.to.0));
        Self {
            names: trace.names,
            process_numbers,
            processes: trace.processes,
            tracks: trace.tracks,
            spans: trace.spans,
            marks: trace.marks,
            values: trace.values,
            flows: trace.flows.iter().map(entries).collect(),
            placed_flows: Vec::new(),
            fields: trace.fields,
            scratch: Vec::new(),
            origin: trace.origin,
            clock_uncertainty: trace.clock_uncertainty,
            lost: trace.lost,
            warnings: trace.warnings,
            metadata: trace.metadata,
            is_cut_off: trace.is_cut_off,
        }
    }

    /// Finds or adds a name.
    pub fn name(&mut self, name: &str) -> NameId {
        self.names.id(name)
    }

    /// Finds or adds a process by its id.
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
        self.named_track(process, TrackKind::Thread, name, Some(number), None)
    }

    /// Adds the track of a device stream.
    pub fn stream(&mut self, process: i64, number: i64, name: &str) -> TrackId {
        self.named_track(process, TrackKind::Stream, name, Some(number), None)
    }

    /// Adds the track of a curve.
    pub fn counter(&mut self, process: i64, name: &str, unit: &str) -> TrackId {
        let track = self.named_track(process, TrackKind::Counter, name, None, None);
        self.tracks[track.index()].unit = self.names.id(unit);
        track
    }

    /// Adds the track of a thread or stream with this `number`, or one of any other kind.
    pub fn named_track(
        &mut self,
        process: i64,
        kind: TrackKind,
        name: &str,
        number: Option<i64>,
        device: Option<i64>,
    ) -> TrackId {
        let (process, name) = (self.process(process), self.names.id(name));
        self.track(Track { process, kind, name, number, device, unit: NameId::EMPTY })
    }

    /// Adds a span.
    pub fn span(&mut self, track: TrackId, start: Nanos, duration: Nanos, name: &str, category: &str) -> SpanEntry {
        let (name, category) = (self.names.id(name), self.names.id(category));
        self.span_named(track, start, duration, name, category)
    }

    /// Adds a span whose names are interned.
    pub fn span_named(
        &mut self,
        track: TrackId,
        start: Nanos,
        duration: Nanos,
        name: NameId,
        category: NameId,
    ) -> SpanEntry {
        let spans = &mut self.spans;
        spans.track.push(track);
        spans.start.push(start.0);
        spans.duration.push(duration.0);
        spans.name.push(name);
        spans.category.push(category);
        spans.fields.push(FieldBlock::NONE);
        spans.flags.push(0);
        SpanEntry((spans.start.len() - 1) as u32)
    }

    /// Sets the end of a span.
    pub fn end_span(&mut self, span: SpanEntry, end: Nanos) {
        self.spans.duration.set(span.at(), end.0.saturating_sub(self.spans.start[span.at()]));
    }

    /// Marks a span as still open at the end.
    pub fn leave_open(&mut self, span: SpanEntry) {
        self.set_flag(span, OPEN);
    }

    /// Adds a field to a span; a field of the same name is replaced.
    pub fn span_field<'v>(&mut self, span: SpanEntry, name: &str, value: impl Into<Value<'v>>) {
        let block = self.spans.fields.get(span.at());
        let block = self.add_field(block, name, value.into());
        self.spans.fields.set(span.at(), block);
    }

    /// Adds a mark.
    pub fn mark(&mut self, track: TrackId, time: Nanos, name: &str, category: &str) -> usize {
        let (name, category) = (self.names.id(name), self.names.id(category));
        self.mark_named(track, time, name, category, FieldBlock::NONE);
        self.marks.time.len() - 1
    }

    /// Adds a field to the mark of this number; a field of the same name is replaced.
    pub fn mark_field<'v>(&mut self, mark: usize, name: &str, value: impl Into<Value<'v>>) {
        let block = self.marks.fields.get(mark);
        let block = self.add_field(block, name, value.into());
        self.marks.fields.set(mark, block);
    }

    /// Adds a point of a curve.
    pub fn value(&mut self, track: TrackId, time: Nanos, number: Number) {
        self.values.track.push(track);
        self.values.time.push(time.0);
        self.values.number.push(number);
    }

    /// Adds a flow between two spans.
    pub fn flow(&mut self, from: SpanEntry, to: SpanEntry) {
        self.flows.push((from, to));
    }

    /// Adds a flow between the spans at two places.
    pub(crate) fn flow_between(&mut self, from: FlowPlace, to: FlowPlace) {
        self.placed_flows.push((from, to));
    }

    fn add_field(&mut self, block: FieldBlock, name: &str, value: Value<'_>) -> FieldBlock {
        let field = (self.names.id(name), self.stored(value));
        self.add_stored(block, &[field])
    }

    pub(crate) fn stored(&mut self, value: Value<'_>) -> StoredValue {
        match value {
            Value::Int(value) => StoredValue::Int(value),
            Value::Uint(value) => StoredValue::Uint(value),
            Value::Float(value) => StoredValue::Float(value),
            Value::Bool(value) => StoredValue::Bool(value),
            Value::Str(value) => StoredValue::Str(self.names.id(value)),
        }
    }

    fn add_stored(&mut self, block: FieldBlock, more: &[(NameId, StoredValue)]) -> FieldBlock {
        self.scratch.clear();
        self.scratch.extend(self.fields.fields(block));
        self.scratch.extend_from_slice(more);
        self.fields.replace(block, &mut self.scratch)
    }

    /// The text of a name.
    pub(crate) fn text(&self, name: NameId) -> &str {
        self.names.name(name)
    }

    /// The id of a name, if it is known.
    pub(crate) fn known_name(&self, name: &str) -> Option<NameId> {
        self.names.known(name)
    }

    /// Stores fields of a span that is not known yet.
    pub(crate) fn keep_fields(&mut self, fields: &mut Vec<(NameId, StoredValue)>) -> FieldBlock {
        self.fields.add(fields)
    }

    /// Stores fields whose names differ and are those of another table, which `name_of` knows.
    pub(crate) fn keep_foreign_fields(
        &mut self,
        fields: &[(NameId, StoredValue)],
        mut name_of: impl FnMut(&mut Names, NameId) -> NameId,
    ) -> FieldBlock {
        let names = &mut self.names;
        self.fields.add_distinct(fields.iter().map(|&(name, value)| {
            let name = name_of(names, name);
            match value {
                StoredValue::Str(text) => (name, StoredValue::Str(name_of(names, text))),
                value => (name, value),
            }
        }))
    }

    /// Sets the fields of a new span.
    pub(crate) fn set_span_fields(&mut self, span: SpanEntry, fields: &mut Vec<(NameId, StoredValue)>) {
        let block = self.keep_fields(fields);
        self.set_span_block(span, block);
    }

    /// Sets the stored fields of a new span.
    pub(crate) fn set_span_block(&mut self, span: SpanEntry, block: FieldBlock) {
        self.spans.fields.set(span.at(), block);
    }

    /// Sets stored fields of a span.
    pub(crate) fn add_kept_fields(&mut self, span: SpanEntry, kept: FieldBlock) {
        if kept == FieldBlock::NONE {
            return;
        }
        let more: Vec<_> = self.fields.fields(kept).collect();
        let block = self.add_stored(self.spans.fields.get(span.at()), &more);
        self.spans.fields.set(span.at(), block);
    }

    /// Adds a mark whose names are interned.
    pub(crate) fn mark_named(
        &mut self,
        track: TrackId,
        time: Nanos,
        name: NameId,
        category: NameId,
        block: FieldBlock,
    ) {
        let marks = &mut self.marks;
        marks.track.push(track);
        marks.time.push(time.0);
        marks.name.push(name);
        marks.category.push(category);
        marks.fields.push(block);
    }

    /// The span at this insertion index.
    pub(crate) fn entry(&self, number: u64) -> Option<SpanEntry> {
        let number = u32::try_from(number).ok()?;
        ((number as usize) < self.spans.start.len()).then_some(SpanEntry(number))
    }

    /// All processes, with their ids.
    pub(crate) fn processes(&self) -> Vec<(i64, ProcessId)> {
        let numbered = self.processes.iter().enumerate();
        numbered.map(|(at, process)| (process.number, ProcessId(at as u32))).collect()
    }

    /// The tracks of a kind that have a number, by it, in one process.
    pub(crate) fn tracks_in(&self, process: ProcessId, kind: TrackKind) -> HashMap<i64, TrackId> {
        let tracks = self.tracks.iter().enumerate();
        let wanted = tracks.filter(|(_, track)| track.kind == kind && track.process == process);
        wanted.filter_map(|(at, track)| Some((track.number?, TrackId(at as u32)))).collect()
    }

    /// The moments at which spans of each thread of a process begin or end, in order.
    pub(crate) fn boundaries(&self, process: ProcessId) -> HashMap<TrackId, Vec<u64>> {
        let is_wanted = |track: &Track| track.kind == TrackKind::Thread && track.process == process;
        let wanted: Vec<bool> = self.tracks.iter().map(is_wanted).collect();
        let mut boundaries: HashMap<TrackId, Vec<u64>> = HashMap::new();
        let spans = &self.spans;
        for (at, track) in spans.track.iter().enumerate().filter(|(_, track)| wanted[track.index()]) {
            let start = spans.start[at];
            boundaries.entry(track).or_default().extend([start, start.saturating_add(spans.duration.get(at))]);
        }
        for moments in boundaries.values_mut() {
            moments.sort_unstable();
            moments.dedup();
        }
        boundaries
    }

    /// Whether a span begins at this place.
    pub(crate) fn begins_at(&self, span: SpanEntry, track: TrackId, time: Nanos) -> bool {
        (self.spans.track.get(span.at()), self.spans.start[span.at()]) == (track, time.0)
    }

    pub(crate) fn discard_span(&mut self, span: SpanEntry) {
        self.set_flag(span, DISCARDED);
    }

    /// Whether there is a span, a mark or a value.
    pub(crate) fn has_events(&self) -> bool {
        !(self.spans.start.is_empty() && self.marks.time.is_empty() && self.values.time.is_empty())
    }

    fn set_flag(&mut self, span: SpanEntry, flag: u8) {
        let flags = self.spans.flags.get(span.at()) | flag;
        self.spans.flags.set(span.at(), flags);
    }

    /// The memory of its events in bytes, without spare capacity.
    pub(crate) fn held_bytes(&self) -> u64 {
        let flows = size_of_val(self.flows.as_slice()) + size_of_val(self.placed_flows.as_slice());
        let events = self.spans.bytes() + self.marks.bytes() + self.values.bytes();
        (events + flows + self.fields.bytes() + self.names.bytes()) as u64
    }

    /// Reserves memory for more spans, or returns an error.
    pub(crate) fn try_reserve(&mut self, spans: usize) -> Result<(), TryReserveError> {
        self.spans.try_reserve(spans)
    }

    /// All spans that were added.
    pub(crate) fn entries(&self) -> impl Iterator<Item = SpanEntry> + use<> {
        (0..self.spans.start.len() as u32).map(SpanEntry)
    }

    /// A track that was added before.
    pub(crate) fn track_at(&self, id: TrackId) -> &Track {
        &self.tracks[id.index()]
    }

    pub(crate) fn track_of(&self, span: SpanEntry) -> TrackId {
        self.spans.track.get(span.at())
    }

    /// The name and the category of a span.
    pub(crate) fn label_of(&self, span: SpanEntry) -> (NameId, NameId) {
        (self.spans.name.get(span.at()), self.spans.category.get(span.at()))
    }

    /// Gives a span another name and category.
    pub(crate) fn relabel(&mut self, span: SpanEntry, name: NameId, category: NameId) {
        self.spans.name.set(span.at(), name);
        self.spans.category.set(span.at(), category);
    }

    pub(crate) fn field_of(&self, span: SpanEntry, name: NameId) -> Option<StoredValue> {
        let mut fields = self.fields.fields(self.spans.fields.get(span.at()));
        fields.find(|(known, _)| *known == name).map(|(_, value)| value)
    }

    /// Discards spans that are not kept, in insertion order, and their flows.
    pub(crate) fn retain_spans(&mut self, kept: &[bool]) {
        for at in (0..kept.len()).filter(|&at| !kept[at]) {
            self.discard_span(SpanEntry(at as u32));
        }
        self.flows.retain(|(from, to)| kept[from.at()] && kept[to.at()]);
    }

    pub(crate) fn start_of(&self, span: SpanEntry) -> Nanos {
        Nanos(self.spans.start[span.at()])
    }

    pub(crate) fn is_discarded(&self, span: SpanEntry) -> bool {
        self.spans.flags.get(span.at()) & DISCARDED != 0
    }

    /// Replaces the placeholder tracks used so far.
    pub(crate) fn replace_tracks(&mut self, settled: &[TrackId]) {
        for column in [&mut self.spans.track, &mut self.marks.track, &mut self.values.track] {
            *column = column.iter().map(|track| settled[track.index()]).collect();
        }
    }
}
