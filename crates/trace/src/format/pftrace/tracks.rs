//! The tracks of a file while it is read, and the pairing of begin and end events.
//!
//! Descriptions may follow events, so events refer to placeholders, and tracks are resolved at the end.

use hashbrown::HashMap;

use super::proto::{CounterDescriptor, TrackDescriptor};
use super::{LANE, ON_DEVICE};
use crate::builder::{SpanEntry, TraceBuilder};
use crate::format::pairing::{Ending, Pairs, Unpaired};
use crate::track::{Track, TrackId, TrackKind};
use crate::{fields::FieldBlock, names::NameId};

/// The placeholder of a track without events.
const NOWHERE: TrackId = TrackId(u32::MAX);

#[derive(Debug, Default)]
pub struct Tracks {
    by_uuid: HashMap<u64, usize>,
    /// The track that was looked up last: events of one track mostly follow each other.
    last: Option<(u64, usize)>,
    seen: Vec<Seen>,
    last_time: u64,
    pairs: Pairs,
}

#[derive(Debug, Default)]
struct Seen {
    uuid: u64,
    descriptor: Option<TrackDescriptor>,
    has_events: bool,
    has_values: bool,
}

impl Tracks {
    /// Whether no track was described or used.
    pub fn is_empty(&self) -> bool {
        self.seen.is_empty()
    }

    /// The size of the begin and end events in bytes.
    pub fn bytes(&self) -> u64 {
        self.pairs.bytes()
    }

    #[inline]
    pub fn seen(&mut self, uuid: u64) -> usize {
        if let Some((last, at)) = self.last
            && last == uuid
        {
            return at;
        }
        let at = *self.by_uuid.entry(uuid).or_insert_with(|| {
            self.seen.push(Seen { uuid, ..Seen::default() });
            self.seen.len() - 1
        });
        self.last = Some((uuid, at));
        at
    }

    /// Reads a description. A process is registered immediately, so that processes keep their order.
    pub fn describe(&mut self, descriptor: TrackDescriptor, builder: &mut TraceBuilder) {
        if let Some(process) = &descriptor.process {
            let id = builder.process(process.pid.unwrap_or(0));
            if let Some(name) = &process.process_name {
                builder.name_process(id, &String::from_utf8_lossy(name));
            }
        }
        let at = self.seen(descriptor.uuid.unwrap_or(0));
        self.seen[at].descriptor = Some(descriptor);
    }

    pub fn placeholder(&mut self, track: usize) -> TrackId {
        self.seen[track].has_events = true;
        TrackId(2 * track as u32)
    }

    /// Values have separate placeholders: another writer may put spans and values on one track.
    pub fn counter_placeholder(&mut self, track: usize) -> TrackId {
        self.seen[track].has_values = true;
        TrackId(2 * track as u32 + 1)
    }

    pub fn begin(&mut self, track: usize, time: u64, span: SpanEntry) {
        self.last_time = self.last_time.max(time);
        self.pairs.begin(track as u32, time, span);
    }

    pub fn end(&mut self, track: usize, time: u64, fields: FieldBlock, ending: Ending) {
        self.last_time = self.last_time.max(time);
        self.pairs.end(track as u32, time, fields, ending);
    }

    /// Pairs begin and end events and replaces the placeholders by tracks.
    pub fn finish(&mut self, builder: &mut TraceBuilder) -> Unpaired {
        let mut unpaired = Unpaired::default();
        std::mem::take(&mut self.pairs).settle(self.last_time, builder, &mut unpaired);
        let settled = self.settle(builder);
        builder.replace_tracks(&settled);
        unpaired
    }

    /// Creates the tracks in order of first occurrence; lanes are mapped to their track.
    fn settle(&self, builder: &mut TraceBuilder) -> Vec<TrackId> {
        let mut settled = vec![NOWHERE; 2 * self.seen.len()];
        for (at, seen) in self.seen.iter().enumerate() {
            let is_process = seen.descriptor.as_ref().is_some_and(|descriptor| descriptor.process.is_some());
            if self.is_lane(seen) || (is_process && !seen.has_events && !seen.has_values) {
                continue;
            }
            let is_counter = seen.descriptor.as_ref().is_some_and(|descriptor| descriptor.counter.is_some());
            if !is_counter || seen.has_events {
                settled[2 * at] = self.make_track(seen, builder, false);
            }
            if is_counter || seen.has_values {
                settled[2 * at + 1] = self.make_track(seen, builder, true);
            }
        }
        for (at, seen) in self.seen.iter().enumerate() {
            let Some(track) = self.track_of_lane(seen) else { continue };
            for (counter, is_used) in [(0, seen.has_events), (1, seen.has_values)] {
                settled[2 * at + counter] = match settled[2 * track + counter] {
                    // In a damaged file, a lane of something without events is a track itself.
                    NOWHERE if is_used => self.make_track(seen, builder, counter == 1),
                    known => known,
                };
            }
        }
        settled
    }

    fn is_lane(&self, seen: &Seen) -> bool {
        self.track_of_lane(seen).is_some()
    }

    /// The track of a lane; a lane of a lane, or of an unknown track, is a track itself.
    fn track_of_lane(&self, seen: &Seen) -> Option<usize> {
        let parent = *self.by_uuid.get(&seen.lane_parent()?)?;
        let is_plain = self.seen[parent].lane_parent().is_none() && self.seen[parent].descriptor.is_some();
        is_plain.then_some(parent)
    }

    fn make_track(&self, seen: &Seen, builder: &mut TraceBuilder, is_counter: bool) -> TrackId {
        let descriptor = seen.descriptor.clone().unwrap_or_default();
        let process = builder.process(self.process_number(&descriptor));
        let mut track = Track {
            process,
            kind: TrackKind::Lane,
            name: NameId::EMPTY,
            number: None,
            device: None,
            unit: NameId::EMPTY,
        };
        let mut name = descriptor.name.or(descriptor.static_name);
        if let Some(thread) = descriptor.thread {
            track.kind = TrackKind::Thread;
            track.number = thread.tid;
            name = thread.thread_name.or(name);
        } else if let Some(process) = descriptor.process {
            name = process.process_name.or(name);
        } else if let Some(described) = described(descriptor.description.as_deref()) {
            (track.kind, track.number, track.device) = (described.kind, described.number, described.device);
        }
        if is_counter {
            track.kind = TrackKind::Counter;
            let unit = descriptor.counter.map(unit_of).unwrap_or_default();
            track.unit = builder.name(&String::from_utf8_lossy(&unit));
        }
        let name = name.unwrap_or_else(|| format!("track {}", seen.uuid).into());
        track.name = builder.name(&String::from_utf8_lossy(&name));
        builder.track(track)
    }

    fn process_number(&self, descriptor: &TrackDescriptor) -> i64 {
        if let Some(pid) = descriptor.thread.as_ref().and_then(|thread| thread.pid) {
            return pid;
        }
        let mut current = Some(descriptor);
        // The maximum depth of track trees; a cycle of parents ends here too.
        for _ in 0..16 {
            let Some(descriptor) = current else { return 0 };
            if let Some(pid) = descriptor.process.as_ref().and_then(|process| process.pid) {
                return pid;
            }
            if let Some(pid) = descriptor.thread.as_ref().and_then(|thread| thread.pid) {
                return pid;
            }
            let parent = descriptor.parent_uuid.and_then(|uuid| self.by_uuid.get(&uuid));
            current = parent.and_then(|&at| self.seen[at].descriptor.as_ref());
        }
        0
    }
}

impl Seen {
    fn lane_parent(&self) -> Option<u64> {
        let descriptor = self.descriptor.as_ref()?;
        (descriptor.description.as_deref() == Some(LANE.as_bytes())).then_some(descriptor.parent_uuid)?
    }
}

/// The unit of a curve: its name, or Perfetto's number.
fn unit_of(counter: CounterDescriptor) -> Vec<u8> {
    counter.unit_name.unwrap_or_else(|| match counter.unit {
        Some(1) => b"ns".to_vec(),
        Some(3) => b"bytes".to_vec(),
        _ => Vec::new(),
    })
}

/// What our writer stores in the description of a track.
struct Described {
    kind: TrackKind,
    number: Option<i64>,
    device: Option<i64>,
}

/// Parses our writer's description of a track: `device stream 7 on device 0`.
fn described(description: Option<&[u8]>) -> Option<Described> {
    let text = std::str::from_utf8(description?).ok()?;
    let (text, device) = match text.split_once(ON_DEVICE) {
        Some((text, device)) => (text, Some(device.parse().ok()?)),
        None => (text, None),
    };
    if let Some(kind) = TrackKind::from_words(text) {
        return Some(Described { kind, number: None, device });
    }
    let (words, number) = text.rsplit_once(' ')?;
    Some(Described { kind: TrackKind::from_words(words)?, number: Some(number.parse().ok()?), device })
}
