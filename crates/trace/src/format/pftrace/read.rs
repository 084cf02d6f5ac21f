//! Reads packets from a stream, in memory bounded by the trace and a few packets.

use std::io::{self, BufRead, BufReader, Read};

use flate2::bufread::ZlibDecoder;
use hashbrown::HashMap;
use prost::Message;

use super::ahead::{self, AHEAD, Ahead, Block, COMPRESSED};
use super::annotations::{AnnotationNames, Interned, intern, name_of};
use super::clock::{Clocks, SharedClocks};
use super::packet::{Event, Packet};
use super::proto::{COUNTER, ChromeMetadata, INSTANT, SLICE_BEGIN, SLICE_END, TracePacket};
use super::wire::{self, Damaged};
use super::{OPEN, PACKET_TAG, VOID, contents::Contents, meta, tracks::Tracks};
use crate::builder::{SpanEntry, TraceBuilder};
use crate::fields::{FieldBlock, StoredValue};
use crate::format::{End, NEWER, ReadError, budget::Budget, filled, is_damage, pairing::Ending};
use crate::time::{Nanos, Origin};
use crate::{names::NameId, trace::Trace};

/// A longer packet counts as damage.
const LONGEST_PACKET: u64 = 64 << 20;

/// A block that inflates to more than this counts as damage.
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
    let end = reader.packets(input, false)?;
    if let Some(error) = reader.why_no_trace() {
        return Err(error);
    }
    reader.finish(end)
}

/// The sequence flag of a packet that forgets the state of its sequence.
const CLEARED: u32 = 1;

/// The interned strings of one sequence, and its clock.
#[derive(Debug, Default)]
struct SequenceState {
    event_names: Interned,
    categories: Interned,
    annotations: AnnotationNames,
    default_track: Option<u64>,
    clocks: Clocks,
}

/// The states of all sequences.
#[derive(Debug, Default)]
struct Sequences {
    by_number: HashMap<u32, usize>,
    /// The sequence that was looked up last: packets of one sequence mostly follow each other.
    last: Option<(u32, usize)>,
    states: Vec<SequenceState>,
}

impl Sequences {
    #[inline]
    fn state(&mut self, number: u32) -> &mut SequenceState {
        let at = match self.last {
            Some((last, at)) if last == number => at,
            _ => {
                let next = self.states.len();
                let at = *self.by_number.entry(number).or_insert(next);
                if at == next {
                    self.states.push(SequenceState::default());
                }
                self.last = Some((number, at));
                at
            }
        };
        &mut self.states[at]
    }
}

#[derive(Debug, Default)]
struct Reader {
    builder: TraceBuilder,
    sequences: Sequences,
    tracks: Tracks,
    /// The clocks of all sequences.
    clocks: SharedClocks,
    /// The flows that leave spans, with the time of the span; the flows that end in spans.
    flow_sources: Vec<(u64, u64, SpanEntry)>,
    flow_sinks: Vec<(u64, SpanEntry)>,
    /// The fields of the current event.
    fields: Vec<(NameId, StoredValue)>,
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
    /// The error of a file without a trace.
    fn why_no_trace(&self) -> Option<ReadError> {
        if self.understood == 0 && self.contents.words().is_none() {
            let found = "it begins like a Perfetto trace, but has no complete packet".to_owned();
            return Some(ReadError::NotATrace { found });
        }
        let has_tracks = self.builder.has_events() || !self.tracks.is_empty() || self.schema.is_some();
        let contents = self.contents.words().filter(|_| !has_tracks)?;
        Some(ReadError::NoTrackEvents { contents })
    }

    fn packets(&mut self, mut input: impl BufRead, is_in_block: bool) -> Result<End, ReadError> {
        let mut packet = Vec::new();
        let mut offset = 0;
        let mut ahead = Ahead::default();
        let end = loop {
            let Some(tag) = byte(&mut input)? else { break End::Whole };
            if tag != PACKET_TAG {
                break End::Damaged(offset);
            }
            let Some((length, length_bytes)) = varint(&mut input)? else { break End::CutOff };
            if length > LONGEST_PACKET {
                break End::Damaged(offset);
            }
            packet.clear();
            // Grows with the actual data: an absurd length in a short file allocates no memory.
            (&mut input).take(length).read_to_end(&mut packet).or_else(pass_damage)?;
            if (packet.len() as u64) < length {
                break End::CutOff;
            }
            let whole = 1 + length_bytes + length;
            if !is_in_block && packet.starts_with(&COMPRESSED) {
                ahead.push(std::mem::take(&mut packet), offset, whole);
            } else {
                // What follows a block depends on it.
                if let Some(end) = self.blocks(&mut ahead, 0)? {
                    return Ok(end);
                }
                self.packet(&packet, is_in_block)?;
                if self.is_broken {
                    return Ok(End::Damaged(offset));
                }
                if !is_in_block {
                    self.account_for(whole)?;
                }
            }
            offset += whole;
            if let Some(end) = self.blocks(&mut ahead, AHEAD)? {
                return Ok(end);
            }
        };
        Ok(self.blocks(&mut ahead, 0)?.unwrap_or(end))
    }

    /// Reads blocks until this many are left. Returns the end of the file if one is damaged.
    fn blocks(&mut self, ahead: &mut Ahead, left: usize) -> Result<Option<End>, ReadError> {
        while let Some(Block { packet, inflated, offset, whole }) = ahead.next(left) {
            match inflated {
                Ok(Some(block)) => {
                    self.is_broken |= self.kept(&block)? != End::Whole;
                    ahead.reuse(block);
                }
                Ok(None) => self.packet(&packet, false)?,
                Err(Damaged) => self.is_broken = true,
            }
            if self.is_broken {
                return Ok(Some(End::Damaged(offset)));
            }
            self.account_for(whole)?;
        }
        Ok(None)
    }

    /// Checks that the memory is in proportion to the bytes that were read.
    fn account_for(&mut self, bytes: u64) -> Result<(), ReadError> {
        self.budget.read(bytes);
        self.budget.room_for(0, self.tracks.bytes(), &mut self.builder)?;
        self.outer.room_for(0, self.tracks.bytes(), &mut self.builder)
    }

    fn packet(&mut self, bytes: &[u8], is_in_block: bool) -> Result<(), ReadError> {
        let read = Packet::of(bytes).and_then(|packet| match packet.compressed {
            Some(compressed) => Ok(Some(compressed)),
            None => self.read_packet(bytes, &packet).map(|()| None),
        });
        match read {
            Ok(None) => {}
            // Perfetto compresses once; deeper nesting is an attack.
            Ok(Some(_)) if is_in_block => self.is_broken = true,
            Ok(Some(compressed)) => self.is_broken |= self.compressed(compressed)? != End::Whole,
            // In our own files times are differences: without this packet the following times would be wrong.
            Err(Damaged) if self.schema.is_some() => self.is_broken = true,
            Err(Damaged) => self.damaged_packets += 1,
        }
        Ok(())
    }

    fn read_packet(&mut self, bytes: &[u8], packet: &Packet<'_>) -> Result<(), Damaged> {
        let event = packet.event.map(Event::of).transpose()?;
        if packet.sequence_flags & CLEARED != 0 {
            self.clear(packet.sequence);
        }
        let mut is_understood = event.is_some();
        if packet.has_messages {
            let messages = TracePacket::decode(bytes).map_err(|_| Damaged)?;
            is_understood |= messages.chrome_events.is_some() || messages.track_descriptor.is_some();
            if !is_understood {
                self.contents.count(bytes);
            }
            is_understood |= messages.clock_snapshot.is_some();
            self.messages(packet.sequence, messages);
        } else if !is_understood {
            self.contents.count(bytes);
        }
        self.understood += u64::from(is_understood);
        // Our own files contain nothing unknown.
        self.is_broken |= !is_understood && self.schema.is_some();
        event.map_or(Ok(()), |event| self.event(packet, &event))
    }

    /// Reads a block of packets. Only the checksum at its end shows whether the content is correct, so the whole block is
    /// inflated before anything of it is read; a large one twice, because it is not kept in memory.
    ///
    /// After a damaged block the following names and times would be wrong, so reading stops there.
    fn compressed(&mut self, bytes: &[u8]) -> Result<End, ReadError> {
        match ahead::inflate(bytes, Vec::new()) {
            Ok(Some(block)) => self.kept(&block),
            Ok(None) => {
                let inflated = || ZlibDecoder::new(bytes);
                match io::copy(&mut inflated().take(LONGEST_BLOCK + 1), &mut io::sink()) {
                    Ok(..=LONGEST_BLOCK) => self.packets(BufReader::with_capacity(1 << 16, inflated()), true),
                    _ => Ok(End::CutOff),
                }
            }
            Err(Damaged) => Ok(End::CutOff),
        }
    }

    fn kept(&mut self, mut block: &[u8]) -> Result<End, ReadError> {
        while let Some((&PACKET_TAG, rest)) = block.split_first() {
            block = rest;
            let length = wire::varint(&mut block).and_then(|length| usize::try_from(length).ok());
            let Some((packet, rest)) = length.and_then(|length| block.split_at_checked(length)) else {
                return Ok(End::CutOff);
            };
            self.packet(packet, true)?;
            block = rest;
            if self.is_broken {
                break;
            }
        }
        Ok(if block.is_empty() { End::Whole } else { End::CutOff })
    }

    /// Reads the parts of a packet besides its event.
    fn messages(&mut self, sequence: u32, messages: TracePacket) {
        if let Some(events) = &messages.chrome_events {
            events.metadata.iter().for_each(|entry| self.metadata(entry));
        }
        self.sequence_state(sequence, &messages);
        if let Some(descriptor) = messages.track_descriptor {
            self.tracks.describe(descriptor, &mut self.builder);
        }
    }

    /// Forgets the interned strings and the defaults of a sequence.
    fn clear(&mut self, sequence: u32) {
        let state = self.sequences.state(sequence);
        let clocks = std::mem::take(&mut state.clocks).cleared();
        *state = SequenceState { clocks, ..SequenceState::default() };
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
        if packet.defaults.is_none() && packet.interned_data.is_none() && packet.clock_snapshot.is_none() {
            return;
        }
        let state = self.sequences.state(sequence);
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

    fn event(&mut self, packet: &Packet<'_>, event: &Event<'_>) -> Result<(), Damaged> {
        let state = self.sequences.state(packet.sequence);
        let time = packet.timestamp.and_then(|stamp| state.clocks.time(packet.clock, stamp, &self.clocks));
        let Some(time) = time.filter(|&time| time <= Nanos::MAX.0) else {
            self.impossible_times += 1;
            return Ok(());
        };
        // The packet that defined this name was lost.
        if event.name_iid.is_some_and(|iid| event.name.is_none() && state.event_names.get(iid).is_none()) {
            self.damaged_packets += 1;
            return Ok(());
        }
        let builder = &mut self.builder;
        state.annotations.read(event, &mut self.fields, builder)?;
        let track = self.tracks.seen(event.track.or(state.default_track).unwrap_or(0));
        let fields = &mut self.fields;
        match event.kind {
            SLICE_BEGIN => {
                let (place, (name, category)) = (self.tracks.placeholder(track), names_of(event, state, builder));
                let span = builder.span_named(place, Nanos(time), Nanos(0), name, category);
                builder.set_span_fields(span, fields);
                self.tracks.begin(track, time, span);
                if event.has_flows() {
                    self.flow_sources.extend(event.flows().map(|flow| (flow, time, span)));
                    self.flow_sinks.extend(event.terminating_flows().map(|flow| (flow, span)));
                }
            }
            SLICE_END => {
                let ending = if fields.is_empty() { Ending::Usual } else { ending(fields, builder) };
                let added = if ending == Ending::Usual { builder.keep_fields(fields) } else { FieldBlock::NONE };
                self.tracks.end(track, time, added, ending);
            }
            INSTANT => {
                let (place, (name, category)) = (self.tracks.placeholder(track), names_of(event, state, builder));
                let fields = builder.keep_fields(fields);
                builder.mark_named(place, Nanos(time), name, category, fields);
            }
            COUNTER => {
                if let Some(number) = event.counter {
                    builder.value(self.tracks.counter_placeholder(track), Nanos(time), number);
                }
            }
            _ => self.other_kinds += 1,
        }
        Ok(())
    }

    fn finish(mut self, end: End) -> Result<Trace, ReadError> {
        if self.schema.is_none() {
            self.builder.origin = Origin::named("boot of the machine");
        }
        let unpaired = self.tracks.finish(&mut self.builder);
        self.connect_flows();
        self.misplaced = self.builder.discard_misplaced();
        self.warn();
        self.builder.end_file(end, "packets", &unpaired);
        Ok(self.builder.build()?)
    }

    /// Connects the end of each flow with its last source, and sources with each other in order of time.
    fn connect_flows(&mut self) {
        let (mut sources, builder) = (std::mem::take(&mut self.flow_sources), &mut self.builder);
        sources.retain(|(_, _, span)| !builder.is_discarded(*span));
        sources.sort_unstable();
        for pair in sources.windows(2).filter(|pair| pair[0].0 == pair[1].0) {
            builder.flow(pair[0].2, pair[1].2);
        }
        for (flow, sink) in std::mem::take(&mut self.flow_sinks) {
            let after = sources.partition_point(|source| source.0 <= flow);
            if let Some(&(_, _, source)) = sources[..after].last().filter(|source| source.0 == flow) {
                builder.flow(source, sink);
            }
        }
    }

    fn warn(&mut self) {
        let builder = &mut self.builder;
        builder.warn(self.damaged_packets, "damaged packets were skipped");
        builder.warn(self.impossible_times, "events without a valid time were skipped");
        builder.warn(self.other_kinds, "events of other kinds were skipped");
        builder.warn(self.misplaced, "events do not fit their track and were skipped");
        if self.schema.is_some_and(|schema| schema > super::SCHEMA) {
            builder.warnings.push(NEWER.to_owned());
        }
    }
}

/// The name and the category of an event.
fn names_of(event: &Event<'_>, state: &SequenceState, builder: &mut TraceBuilder) -> (NameId, NameId) {
    let interned = event.name_iid.and_then(|iid| state.event_names.get(iid));
    let name = interned.unwrap_or_else(|| name_of(event.name, builder));
    let interned = event.category_iid.and_then(|iid| state.categories.get(iid));
    (name, interned.unwrap_or_else(|| name_of(event.category, builder)))
}

/// How a span with these fields on its end event ended.
fn ending(fields: &[(NameId, StoredValue)], builder: &TraceBuilder) -> Ending {
    let has = |what| builder.known_name(what).is_some_and(|id| fields.iter().any(|(name, _)| *name == id));
    match (has(OPEN), has(VOID)) {
        (_, true) => Ending::Void,
        (true, _) => Ending::Open,
        _ => Ending::Usual,
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
