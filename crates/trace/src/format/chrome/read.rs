//! Merges the events of a JSON trace.

use std::io::{BufRead, Read};

use hashbrown::DefaultHashBuilder;

use super::batch::{Batch, Merged};
use super::document::{Document, Sink};
use super::flows::{BoundEnd, FlowKey, Flows, OtherEnd, OwnEnd, Step};
use super::kineto::{self, Class};
use super::pipeline::{CHUNK, read_chunks, thread_count};
use super::row::{Number as Numbered, OTHER_PHASE, Row, Time};
use super::tracks::{AsyncId, Place, Tracks};
use super::{finish::Counts, stream::Chunks};
use crate::builder::{SpanEntry, TraceBuilder};
use crate::fields::{FieldBlock, StoredValue};
use crate::format::{ReadError, budget::Budget, filled, launches::Launches, pairing::Ending};
use crate::names::{NameId, Names};
use crate::{metadata::SOURCE, time::Nanos, trace::Trace, track::TrackId, value::Number};

/// Reads a trace from a stream, on this thread.
pub fn read(input: impl BufRead) -> Result<Trace, ReadError> {
    read_within(input, Budget::default())
}

/// Reads a trace from a stream, on this thread, in bounded memory.
pub(crate) fn read_within(mut input: impl BufRead, budget: Budget) -> Result<Trace, ReadError> {
    let hasher = DefaultHashBuilder::default();
    let (mut document, mut reader) = (Document::new(hasher), Reader { budget, ..Reader::default() });
    while !document.has_ended() && !reader.is_full() {
        let bytes = filled(&mut input)?;
        if bytes.is_empty() {
            break;
        }
        document.feed(bytes, &mut reader);
        let length = bytes.len();
        input.consume(length);
    }
    reader.finish(&document)
}

/// Reads a trace from a stream that another thread may read, on several threads.
pub(crate) fn read_parallel(input: impl Read + Send, budget: Budget) -> Result<Trace, ReadError> {
    let hasher = DefaultHashBuilder::default();
    let (mut document, mut reader) = (Document::new(hasher.clone()), Reader { budget, ..Reader::default() });
    read_chunks(thread_count(), Chunks::new(input, CHUNK), &mut document, &hasher, &mut reader)?;
    reader.finish(&document)
}

/// An event with its batch, process and thread.
#[derive(Clone, Copy)]
pub struct At<'a> {
    pub batch: &'a Batch,
    pub row: &'a Row,
    pub pid: i64,
    pub tid: i64,
}

impl<'a> At<'a> {
    /// The field of this name, if it is a whole number.
    pub fn int(&self, name: Option<NameId>) -> Option<i64> {
        self.batch.field(self.row, name?).and_then(kineto::whole)
    }

    /// The field of this name, if it is a string.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        match self.batch.field(self.row, self.batch.names.known(name)?)? {
            StoredValue::Str(text) => Some(self.batch.names.name(text)),
            _ => None,
        }
    }
}

#[derive(Debug, Default)]
pub struct Reader {
    pub builder: TraceBuilder,
    pub tracks: Tracks,
    pub flows: Flows,
    /// Flows from launches to their work, for files without correlations.
    pub launch_flows: Flows,
    pub launches: Launches,
    /// Ids that are names; they are not names of the trace.
    ids: Names,
    /// What the names of the current batch are in the trace.
    merged: Vec<Merged>,
    /// The names of relevant fields in the current batch.
    known: kineto::Known,
    pub last_time: u64,
    pub is_ours: bool,
    /// The time origin in nanoseconds since 1970, as given by torch.profiler.
    pub base_nanos: Option<i64>,
    pub counts: Counts,
    /// The first members of the object around the events.
    pub members: Vec<String>,
    budget: Budget,
    /// Why no more events can be accepted.
    pub refused: Option<ReadError>,
}

impl Sink for Reader {
    fn is_full(&self) -> bool {
        self.refused.is_some()
    }

    fn events(&mut self, batch: &mut Batch) {
        if self.refused.is_none() {
            self.refused = self.budget.room_for(batch.rows.len(), self.tracks.bytes(), &mut self.builder).err();
        }
        if self.is_full() {
            return;
        }
        self.counts.damaged += batch.damaged;
        self.counts.strange += batch.not_events;
        self.counts.replaced += batch.replaced;
        self.merged = std::mem::take(&mut batch.merged);
        self.merged.resize(batch.names.len(), Merged::default());
        self.known = kineto::Known::of(&batch.names);
        // XProf ends its events with an empty object.
        for row in &batch.rows {
            match row.is_blank() {
                true => self.counts.blank += 1,
                false if self.event(batch, row).is_some() => self.counts.understood += 1,
                false => self.counts.strange += 1,
            }
        }
        batch.merged = std::mem::take(&mut self.merged);
    }

    fn member(&mut self, key: &[u8], json: &[u8]) {
        let (Ok(key), Ok(json)) = (serde_json::from_slice::<String>(key), std::str::from_utf8(json)) else { return };
        self.keep_member(&key);
        match key.as_str() {
            // The times are always in microseconds; the unit only says how to display them.
            "traceEvents" | "displayTimeUnit" => {}
            "baseTimeNanoseconds" => self.base_nanos = json.trim_matches('"').parse().ok(),
            _ => self.builder.metadata.set(&key, json),
        }
        if key == "schemaVersion" {
            self.builder.metadata.set_text(SOURCE, "torch.profiler");
        }
    }

    fn long_member(&mut self, key: &[u8]) {
        self.counts.long_members += 1;
        if let Ok(key) = serde_json::from_slice::<String>(key) {
            self.keep_member(&key);
        }
    }
}

impl Reader {
    fn keep_member(&mut self, key: &str) {
        const KEPT: usize = 16;
        const LONGEST: usize = 64;
        if self.members.len() < KEPT && key.len() <= LONGEST {
            self.members.push(key.to_owned());
        }
    }

    fn event(&mut self, batch: &Batch, row: &Row) -> Option<()> {
        let pid = self.tracks.number(row.pid, batch);
        let tid = self.tracks.number(row.tid, batch);
        let at = At { batch, row, pid, tid };
        match row.phase {
            b'X' => self.complete(at),
            b's' => self.flow(at, Step::Start),
            b't' => self.flow(at, Step::Middle),
            b'f' => self.flow(at, Step::Finish),
            b'i' | b'I' | b'R' | b'P' => self.instant(at),
            b'M' => self.metadata(at),
            b'B' => self.begin(at),
            b'E' => self.end(at),
            b'C' => self.counter(at),
            // Objects live from `N` to `D`, with snapshots between.
            b'b' | b'S' | b'N' => self.begin_async(at),
            b'e' | b'F' | b'D' => self.end_async(at),
            b'n' | b'T' | b'p' | b'O' => self.instant_async(at),
            0 => None,
            OTHER_PHASE => {
                self.counts.other_phases += 1;
                Some(())
            }
            letter => {
                *self.counts.phases.entry(letter).or_default() += 1;
                Some(())
            }
        }
    }

    /// The builder's id for a name of the batch.
    fn name(&mut self, batch: &Batch, name: NameId) -> NameId {
        let builder = &mut self.builder;
        *self.merged[name.index()].name.get_or_insert_with(|| builder.name(batch.names.name(name)))
    }

    fn class(&mut self, batch: &Batch, category: NameId) -> Class {
        *self.merged[category.index()].class.get_or_insert_with(|| Class::of(batch.names.name(category)))
    }

    /// The event's time; none, and counted, if it cannot be represented.
    fn time(&mut self, row: &Row) -> Option<u64> {
        match row.time {
            Time::At(time) => {
                self.last_time = self.last_time.max(time);
                Some(time)
            }
            _ => {
                self.counts.impossible_times += 1;
                None
            }
        }
    }

    /// Finds the track of an event: by its category that of a stream, otherwise that of a thread.
    fn track(&mut self, at: At<'_>, class: Class) -> TrackId {
        let is_device = !self.is_ours && class.is_device(at.batch, at.row, &self.known);
        self.tracks.track(Place { pid: at.pid, tid: at.tid, is_device }, &mut self.builder)
    }

    /// Stores the fields of an event, with the builder's names.
    fn kept_fields(&mut self, at: At<'_>) -> FieldBlock {
        let Self { builder, merged, .. } = self;
        builder.keep_foreign_fields(at.batch.fields(at.row), |names, name| {
            *merged[name.index()].name.get_or_insert_with(|| names.id(at.batch.names.name(name)))
        })
    }

    fn start_span(&mut self, at: At<'_>, track: TrackId, time: u64) -> SpanEntry {
        let (name, category) = (self.name(at.batch, at.row.name), self.name(at.batch, at.row.category));
        let fields = self.kept_fields(at);
        let entry = self.builder.span_named(track, Nanos(time), Nanos(0), name, category);
        self.builder.set_span_block(entry, fields);
        if at.row.is_open {
            self.builder.leave_open(entry);
        }
        entry
    }

    fn complete(&mut self, at: At<'_>) -> Option<()> {
        let Some(time) = self.time(at.row) else { return Some(()) };
        let class = self.class(at.batch, at.row.category);
        let track = self.track(at, class);
        let span = self.start_span(at, track, time);
        let duration = match at.row.duration {
            Time::Missing => Some(0),
            Time::Impossible => None,
            Time::At(duration) => Some(duration),
        };
        // Both are at most `i64::MAX`, so the sum does not wrap around.
        let Some(end) = duration.map(|duration| time + duration).filter(|&end| end <= Nanos::MAX.0) else {
            self.counts.impossible_times += 1;
            self.builder.discard_span(span);
            return Some(());
        };
        self.builder.end_span(span, Nanos(end));
        self.last_time = self.last_time.max(end);
        self.tie(at, span, time);
        if !self.is_ours {
            class.correlate(at.batch, at.row, &self.known, span, &mut self.launches);
        }
        Some(())
    }

    fn begin(&mut self, at: At<'_>) -> Option<()> {
        let Some(time) = self.time(at.row) else { return Some(()) };
        let track = self.tracks.thread(at.pid, at.tid, &mut self.builder);
        let span = self.start_span(at, track, time);
        self.tie(at, span, time);
        self.tracks.pairs.begin(track.0, time, span);
        Some(())
    }

    fn end(&mut self, at: At<'_>) -> Option<()> {
        let Some(time) = self.time(at.row) else { return Some(()) };
        let track = self.tracks.thread(at.pid, at.tid, &mut self.builder);
        let added = self.kept_fields(at);
        self.tracks.pairs.end(track.0, time, added, Ending::Usual);
        Some(())
    }

    /// The track of an asynchronous event, and the key that connects it with others.
    fn asynchronous(&mut self, at: At<'_>) -> Option<(TrackId, AsyncId)> {
        let id = self.id(at.batch, at.row.id)?;
        let category = self.name(at.batch, at.row.category);
        Some((self.tracks.asynchronous(at.pid, category, &mut self.builder), id))
    }

    fn begin_async(&mut self, at: At<'_>) -> Option<()> {
        let (track, id) = self.asynchronous(at)?;
        let Some(time) = self.time(at.row) else { return Some(()) };
        let span = self.start_span(at, track, time);
        let number = self.tracks.async_number(track, id);
        self.tracks.async_pairs.begin(number, time, span);
        Some(())
    }

    fn end_async(&mut self, at: At<'_>) -> Option<()> {
        let (track, id) = self.asynchronous(at)?;
        let Some(time) = self.time(at.row) else { return Some(()) };
        let added = self.kept_fields(at);
        let number = self.tracks.async_number(track, id);
        self.tracks.async_pairs.end(number, time, added, Ending::Usual);
        Some(())
    }

    fn instant_async(&mut self, at: At<'_>) -> Option<()> {
        let (track, _) = self.asynchronous(at)?;
        self.mark(at, track)
    }

    fn instant(&mut self, at: At<'_>) -> Option<()> {
        let track = self.tracks.thread(at.pid, at.tid, &mut self.builder);
        self.mark(at, track)?;
        if let (Time::At(time), false) = (at.row.time, self.is_ours) {
            for point in kineto::memory(at.batch, at.row, &self.known) {
                let track = self.tracks.memory(at.pid, &point.name, point.device, &mut self.builder);
                self.builder.value(track, Nanos(time), Number::Int(point.bytes));
            }
        }
        Some(())
    }

    fn mark(&mut self, at: At<'_>, track: TrackId) -> Option<()> {
        let Some(time) = self.time(at.row) else { return Some(()) };
        let (name, category) = (self.name(at.batch, at.row.name), self.name(at.batch, at.row.category));
        let fields = self.kept_fields(at);
        self.builder.mark_named(track, Nanos(time), name, category, fields);
        Some(())
    }

    fn counter(&mut self, at: At<'_>) -> Option<()> {
        let Some(time) = self.time(at.row) else { return Some(()) };
        if !at.row.has_fields {
            return None;
        }
        let (name, fields) = (at.batch.names.name(at.row.name), at.batch.fields(at.row));
        for &(key, value) in fields {
            let number = match value {
                StoredValue::Int(value) => Number::Int(value),
                StoredValue::Uint(value) => Number::Float(value as f64),
                StoredValue::Float(value) => Number::Float(value),
                _ => {
                    self.counts.strange += 1;
                    continue;
                }
            };
            let series = if fields.len() == 1 { name } else { &format!("{name} {}", at.batch.names.name(key)) };
            let track = self.tracks.counter(at.pid, at.tid, series, &mut self.builder);
            self.builder.value(track, Nanos(time), number);
        }
        Some(())
    }

    fn id(&mut self, batch: &Batch, id: Option<Numbered>) -> Option<AsyncId> {
        Some(match id? {
            Numbered::Plain(number) => AsyncId::Number(number),
            Numbered::Named(name) => AsyncId::Name(self.ids.id(batch.names.name(name))),
        })
    }

    /// Handles the flows in the fields of a span.
    fn tie(&mut self, at: At<'_>, span: SpanEntry, time: u64) {
        let Some(step) = at.row.flow_step() else { return };
        if let Some(id) = self.id(at.batch, at.row.bind) {
            self.flows.bound(BoundEnd { id, time, step, span });
        }
    }

    /// Handles one end of a flow. Our own flows say which span they belong to.
    fn flow(&mut self, at: At<'_>, step: Step) -> Option<()> {
        let is_launch = self.class(at.batch, at.row.category) == Class::LaunchFlow;
        if is_launch && self.launches.are_known() {
            // The correlations contain the same information, more exactly.
            return Some(());
        }
        let id = self.id(at.batch, at.row.id)?;
        let Some(time) = self.time(at.row) else { return Some(()) };
        let span = at.int(self.known.span).and_then(|span| u64::try_from(span).ok());
        if let (Some(span), true) = (span, self.is_ours) {
            let track = self.tracks.thread(at.pid, at.tid, &mut self.builder);
            self.flows.own(id, step == Step::Start, OwnEnd { span, track, time });
            return Some(());
        }
        let key =
            FlowKey { category: self.name(at.batch, at.row.category), name: self.name(at.batch, at.row.name), id };
        let is_next = step == Step::Finish && !at.row.binds_around;
        let flows = if is_launch { &mut self.launch_flows } else { &mut self.flows };
        flows.other(key, OtherEnd { time, step, pid: at.pid, tid: at.tid, is_next });
        Some(())
    }
}
