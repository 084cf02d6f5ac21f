//! Reads packets from a stream, in memory bounded by the trace and one packet.

use std::{
    collections::HashMap,
    io::{self, BufRead, BufReader, Read},
};

use flate2::bufread::ZlibDecoder;
use prost::Message;

use super::{
    OPEN, PACKET_TAG, VOID,
    annotations::{AnnotationNames, intern, name_of},
    clock::{Clocks, SharedClocks},
    contents::Contents,
    meta,
    proto::{COUNTER, ChromeMetadata, INSTANT, SLICE_BEGIN, SLICE_END, TracePacket, TrackEvent},
    tracks::Tracks,
};
use crate::{
    builder::{SpanEntry, TraceBuilder},
    fields::FieldBlock,
    format::{NO_EVENTS, ReadError, budget::Budget, counted, filled, is_damage, pairing::Ending},
    names::NameId,
    time::{Nanos, Origin},
    trace::Trace,
    value::Number,
};

/// A longer packet counts as damage.
const LONGEST_PACKET: u64 = 64 << 20;

/// A block that inflates to more than this is cut there. Writers compress blocks of at most a megabyte.
const LONGEST_BLOCK: u64 = 2 * LONGEST_PACKET;

/// Reads a trace.
///
/// Its blocks are compressed, so its memory is bounded by its size.
pub fn read(input: impl BufRead) -> Result<Trace, ReadError> {
    read_within(input, Budget::default())
}

/// Reads a trace; `outer` is the budget of the file around it, if that is compressed too.
pub(crate) fn read_within(input: impl BufRead, outer: Budget) -> Result<Trace, ReadError> {
    let mut reader = Reader { outer, budget: Budget::of_packed(), ..Reader::default() };
    let end = reader.packets(input, 0)?;
    if let Some(error) = reader.why_no_trace() {
        return Err(error);
    }
    reader.finish(end)
}

/// How a sequence of packets ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    Whole,
    /// The last packet is incomplete.
    CutOff,
    /// Invalid data after this number of bytes.
    Damaged(u64),
}

/// The interned strings of one sequence, and its clock.
#[derive(Debug, Default)]
struct SequenceState {
    event_names: HashMap<u64, NameId>,
    categories: HashMap<u64, NameId>,
    annotations: AnnotationNames,
    default_track: Option<u64>,
    clocks: Clocks,
}

#[derive(Debug, Default)]
struct Reader {
    builder: TraceBuilder,
    sequences: HashMap<u32, SequenceState>,
    tracks: Tracks,
    /// The clocks of all sequences.
    clocks: SharedClocks,
    /// Spans by the flows that leave them, and spans by the flow that ends in them.
    flow_sources: HashMap<u64, Vec<(u64, SpanEntry)>>,
    flow_sinks: Vec<(u64, SpanEntry)>,
    schema: Option<i64>,
    understood: u64,
    damaged_packets: u64,
    impossible_times: u64,
    misplaced: u64,
    other_kinds: u64,
    /// The memory budget of its blocks and of the file around them.
    budget: Budget,
    outer: Budget,
    /// Counts of the packets without readable data.
    contents: Contents,
    /// A block could not be read: what follows depends on it.
    is_broken: bool,
}

impl Reader {
    /// Why there is no trace in the file; none if there is one.
    fn why_no_trace(&self) -> Option<ReadError> {
        if self.understood == 0 && self.contents.words().is_none() {
            let found = "it begins like a Perfetto trace, but has no complete packet".to_owned();
            return Some(ReadError::NotATrace { found });
        }
        let has_tracks = self.builder.has_events() || !self.tracks.is_empty() || self.schema.is_some();
        let contents = self.contents.words().filter(|_| !has_tracks)?;
        Some(ReadError::NoTrackEvents { contents })
    }

    fn packets(&mut self, mut input: impl BufRead, depth: u32) -> Result<End, ReadError> {
        let mut packet = Vec::new();
        let mut offset = 0;
        loop {
            let Some(tag) = byte(&mut input)? else { return Ok(End::Whole) };
            if tag != PACKET_TAG {
                return Ok(End::Damaged(offset));
            }
            let Some((length, length_bytes)) = varint(&mut input)? else { return Ok(End::CutOff) };
            if length > LONGEST_PACKET {
                return Ok(End::Damaged(offset));
            }
            packet.clear();
            // Grows with the actual data: an absurd length in a short file allocates no memory.
            (&mut input).take(length).read_to_end(&mut packet).or_else(pass_damage)?;
            if (packet.len() as u64) < length {
                return Ok(End::CutOff);
            }
            match TracePacket::decode(packet.as_slice()) {
                Ok(decoded) => {
                    if decoded.is_of_no_use() {
                        self.contents.count(&packet);
                    }
                    self.packet(decoded, depth)?;
                }
                // In our own files times are differences: without this packet the following times would be wrong.
                Err(_) if self.schema.is_some() => self.is_broken = true,
                Err(_) => self.damaged_packets += 1,
            }
            if self.is_broken {
                return Ok(End::Damaged(offset));
            }
            offset += 1 + length_bytes + length;
            if depth == 0 {
                self.budget.read(1 + length_bytes + length);
                self.budget.room_for(0, self.tracks.bytes(), &mut self.builder)?;
                self.outer.room_for(0, self.tracks.bytes(), &mut self.builder)?;
            }
        }
    }

    fn packet(&mut self, mut packet: TracePacket, depth: u32) -> Result<(), ReadError> {
        if let Some(compressed) = packet.compressed_packets.take() {
            return self.compressed(&compressed, depth);
        }
        let before = self.understood;
        let sequence = packet.sequence.unwrap_or(0);
        if let Some(events) = &packet.chrome_events {
            self.understood += 1;
            events.metadata.iter().for_each(|entry| self.metadata(entry));
        }
        if let Some(descriptor) = packet.track_descriptor.take() {
            self.understood += 1;
            self.tracks.describe(descriptor, &mut self.builder);
        }
        self.sequence_state(sequence, &packet);
        if let Some(event) = &packet.track_event {
            self.understood += 1;
            self.event(sequence, &packet, event);
        }
        if self.understood == before && packet.clock_snapshot.is_some() {
            self.understood += 1;
        }
        // Our own files contain nothing unknown.
        self.is_broken |= self.understood == before && self.schema.is_some();
        Ok(())
    }

    /// Reads a block of packets, unless it is damaged. Only the checksum at the end shows whether the content is
    /// correct, so the block is inflated once to check and once to read.
    ///
    /// After a damaged block the following names and times would be wrong, so reading stops there.
    fn compressed(&mut self, bytes: &[u8], depth: u32) -> Result<(), ReadError> {
        let inflated = || ZlibDecoder::new(bytes).take(LONGEST_BLOCK + 1);
        let is_whole = io::copy(&mut inflated(), &mut io::sink()).is_ok_and(|length| length <= LONGEST_BLOCK);
        // Perfetto compresses once; deeper nesting is an attack.
        if depth > 0 || !is_whole {
            self.is_broken = true;
            return Ok(());
        }
        let end = self.packets(BufReader::with_capacity(1 << 16, inflated()), depth + 1)?;
        self.is_broken |= end != End::Whole;
        Ok(())
    }

    fn metadata(&mut self, entry: &ChromeMetadata) {
        let name = lossy(entry.name.as_deref().unwrap_or_default());
        match (name.as_str(), entry.int_value) {
            (meta::SCHEMA, Some(schema)) => self.schema = Some(schema),
            (meta::ORIGIN, _) => self.builder.origin.name = lossy(entry.string_value.as_deref().unwrap_or_default()),
            (meta::ORIGIN_UNIX_NS, nanos) => self.builder.origin.unix_nanos = nanos,
            (meta::UNCERTAINTY_NS, Some(nanos)) => self.builder.clock_uncertainty = Some(Nanos(nanos.max(0) as u64)),
            (meta::LOST, Some(lost)) => self.builder.lost = lost.max(0) as u64,
            (other, _) => {
                if let Some(key) = other.strip_prefix(meta::ABOUT) {
                    self.builder.metadata.set(key, &lossy(entry.string_value.as_deref().unwrap_or_default()));
                }
            }
        }
    }

    fn sequence_state(&mut self, sequence: u32, packet: &TracePacket) {
        const CLEARED: u32 = 1;
        if packet.sequence_flags.unwrap_or(0) & CLEARED != 0 {
            let clocks = self.sequences.remove(&sequence).map(|state| state.clocks.cleared()).unwrap_or_default();
            self.sequences.insert(sequence, SequenceState { clocks, ..SequenceState::default() });
        }
        if packet.defaults.is_none() && packet.interned_data.is_none() && packet.clock_snapshot.is_none() {
            return;
        }
        let state = self.sequences.entry(sequence).or_default();
        if let Some(defaults) = &packet.defaults {
            state.clocks.default = defaults.timestamp_clock_id;
            state.default_track = defaults.track_event_defaults.as_ref().and_then(|defaults| defaults.track_uuid);
        }
        if let Some(data) = &packet.interned_data {
            let builder = &mut self.builder;
            intern(&data.event_names, &mut state.event_names, builder);
            intern(&data.event_categories, &mut state.categories, builder);
            state.annotations.take(&data.annotation_names, &data.annotation_strings, builder);
        }
        if let Some(snapshot) = &packet.clock_snapshot {
            state.clocks.take(snapshot);
            self.clocks.take(snapshot);
        }
    }

    fn event(&mut self, sequence: u32, packet: &TracePacket, event: &TrackEvent) {
        let state = self.sequences.entry(sequence).or_default();
        let time = packet.timestamp.and_then(|stamp| state.clocks.time(packet.timestamp_clock_id, stamp, &self.clocks));
        let Some(time) = time.filter(|&time| time <= Nanos::MAX.0) else {
            self.impossible_times += 1;
            return;
        };
        // The packet that defined this name was lost.
        if event.name_iid.is_some_and(|iid| event.name.is_none() && !state.event_names.contains_key(&iid)) {
            self.damaged_packets += 1;
            return;
        }
        let track = self.tracks.seen(event.track_uuid.or(state.default_track).unwrap_or(0));
        let names = EventNames::of(event, state, &mut self.builder);
        let fields = state.annotations.fields(&event.annotations, &mut self.builder);
        let builder = &mut self.builder;
        match event.kind.unwrap_or(0) {
            SLICE_BEGIN => {
                let place = self.tracks.placeholder(track);
                let span = builder.span_named(place, Nanos(time), Nanos(0), names.name, names.category);
                builder.set_span_fields(span, &fields);
                self.tracks.begin(track, time, span);
                for &flow in &event.flow_ids {
                    self.flow_sources.entry(flow).or_default().push((time, span));
                }
                self.flow_sinks.extend(event.terminating_flow_ids.iter().map(|&flow| (flow, span)));
            }
            SLICE_END => {
                let is = |what: &str| {
                    let id = builder.known_name(what);
                    id.is_some_and(|id| fields.iter().any(|(name, _)| *name == id))
                };
                let ending = match (is(OPEN), is(VOID)) {
                    (_, true) => Ending::Void,
                    (true, _) => Ending::Open,
                    _ => Ending::Usual,
                };
                let added = if ending == Ending::Usual { builder.keep_fields(&fields) } else { FieldBlock::NONE };
                self.tracks.end(track, time, added, ending);
            }
            INSTANT => {
                let place = self.tracks.placeholder(track);
                builder.mark_named(place, Nanos(time), names.name, names.category, &fields);
            }
            COUNTER => {
                let whole = event.counter_value.map(Number::Int);
                if let Some(number) = whole.or(event.double_counter_value.map(Number::Float)) {
                    let place = self.tracks.counter_placeholder(track);
                    builder.value(place, Nanos(time), number);
                }
            }
            _ => self.other_kinds += 1,
        }
    }

    fn finish(mut self, end: End) -> Result<Trace, ReadError> {
        if self.schema.is_none() {
            self.builder.origin = Origin::named("boot of the machine");
        }
        let unpaired = self.tracks.finish(&mut self.builder);
        self.connect_flows();
        self.misplaced = self.builder.discard_misplaced();
        self.warn(&end);
        self.builder.warnings.extend(unpaired.warnings());
        self.builder.is_cut_off = end != End::Whole;
        if !self.builder.has_events() {
            self.builder.warnings.push(NO_EVENTS.to_owned());
        }
        Ok(self.builder.build()?)
    }

    /// Connects the end of each flow with its last source, and sources with each other in order of time.
    fn connect_flows(&mut self) {
        for sources in self.flow_sources.values_mut() {
            sources.retain(|(_, span)| !self.builder.is_discarded(*span));
            sources.sort_unstable();
            for pair in sources.windows(2) {
                self.builder.flow(pair[0].1, pair[1].1);
            }
        }
        for (flow, sink) in std::mem::take(&mut self.flow_sinks) {
            if let Some(&(_, source)) = self.flow_sources.get(&flow).and_then(|sources| sources.last()) {
                self.builder.flow(source, sink);
            }
        }
    }

    fn warn(&mut self, end: &End) {
        let mut warn = |count: u64, what: &str| {
            if count > 0 {
                self.builder.warnings.push(counted(count, what));
            }
        };
        warn(self.damaged_packets, "damaged packets were skipped");
        warn(self.impossible_times, "events without a valid time were skipped");
        warn(self.other_kinds, "events of other kinds were skipped");
        warn(self.misplaced, "events do not fit their track and were skipped");
        match end {
            End::Whole => {}
            End::CutOff => {
                self.builder.warnings.push("the file is cut off; only the packets before the cut were read".to_owned())
            }
            End::Damaged(offset) => self
                .builder
                .warnings
                .push(format!("the file is damaged after {offset} bytes; everything before that was read")),
        }
        if self.schema.is_some_and(|schema| schema > super::SCHEMA) {
            self.builder
                .warnings
                .push("the trace was written by a newer laptime; some of it may be missing".to_owned());
        }
    }
}

struct EventNames {
    name: NameId,
    category: NameId,
}

impl EventNames {
    fn of(event: &TrackEvent, state: &SequenceState, builder: &mut TraceBuilder) -> Self {
        let interned = event.name_iid.and_then(|iid| state.event_names.get(&iid).copied());
        let name = interned.unwrap_or_else(|| name_of(event.name.as_deref(), builder));
        let interned = event.category_iids.first().and_then(|iid| state.categories.get(iid).copied());
        let category = interned.unwrap_or_else(|| name_of(event.categories.first().map(Vec::as_slice), builder));
        Self { name, category }
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A damaged compressed stream ends there.
fn pass_damage(error: io::Error) -> io::Result<usize> {
    if is_damage(&error) { Ok(0) } else { Err(error) }
}

fn byte(input: &mut impl BufRead) -> io::Result<Option<u8>> {
    let first = filled(input)?.first().copied();
    if first.is_some() {
        input.consume(1);
    }
    Ok(first)
}

/// A number and its length in bytes; none if the input ends or the number does not.
fn varint(input: &mut impl BufRead) -> io::Result<Option<(u64, u64)>> {
    let mut value = 0;
    for at in 0..10 {
        let Some(next) = byte(input)? else { return Ok(None) };
        value |= u64::from(next & 0x7f) << (7 * at).min(63);
        if next & 0x80 == 0 {
            return Ok(Some((value, at + 1)));
        }
    }
    Ok(Some((u64::MAX, 10)))
}
