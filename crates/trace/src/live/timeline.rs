//! The open spans of one track, written as they begin and end.
//!
//! A packet sequence contains properly nested begin and end events. Spans of one thread usually nest, but guards can be
//! dropped in any order. Then the spans that outlast the ended one are discarded and written again, completely, on
//! separate lanes.

use std::io::{self, Write};
use std::slice;

use laptime_probe::FieldValue;

use super::{OwnFields, shown, thread::Key};
use crate::format::pftrace::{Begin, Sequence, TrackPlace, Writer};
use crate::time::Nanos;

/// The start of a span.
#[derive(Debug, Clone)]
pub struct Opening {
    pub key: Key,
    pub name: &'static str,
    pub category: &'static str,
    pub fields: OwnFields,
}

/// The flow that leaves a span or ends in it.
#[derive(Debug, Clone, Copy)]
pub enum FlowEnd {
    Out(u64),
    In(u64),
}

#[derive(Debug)]
struct Open {
    opening: Opening,
    start: Nanos,
    flow: Option<FlowEnd>,
    /// Fields that were added after the start was written.
    late: OwnFields,
}

#[derive(Debug)]
struct SideLane {
    sequence: Sequence,
    free_from: Nanos,
    open: Option<Open>,
}

#[derive(Debug)]
pub struct Timeline {
    place: TrackPlace,
    name: String,
    sequence: Sequence,
    last: Nanos,
    /// The minimum distance between two events.
    step: u64,
    open: Vec<Open>,
    side_lanes: Vec<SideLane>,
    /// Reusable field buffers of ended spans.
    spare: Vec<OwnFields>,
}

impl Timeline {
    /// The timeline of a thread or a host lane.
    ///
    /// A thread does one thing at a time, but a coarse clock may give two events the same time; they are written a
    /// nanosecond apart, so that the nesting stays clear.
    pub fn begin<W: Write>(place: TrackPlace, name: &str, writer: &mut Writer<W>) -> io::Result<Self> {
        let sequence = writer.sequence(place)?;
        let name = name.to_owned();
        let (open, side_lanes, spare) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self { place, name, sequence, last: Nanos(0), step: 1, open, side_lanes, spare })
    }

    /// The timeline of a device, whose times are not changed.
    pub fn begin_exact<W: Write>(place: TrackPlace, name: &str, writer: &mut Writer<W>) -> io::Result<Self> {
        Ok(Self { step: 0, ..Self::begin(place, name, writer)? })
    }

    /// The time of the last event.
    pub fn last(&self) -> Nanos {
        self.last
    }

    /// Whether no span is open.
    pub fn is_idle(&self) -> bool {
        self.open.is_empty() && self.side_lanes.iter().all(|lane| lane.open.is_none())
    }

    pub fn sequence(&self) -> Sequence {
        self.sequence
    }

    /// A buffer for the fields of a new span.
    pub fn empty_fields(&mut self) -> OwnFields {
        self.spare.pop().unwrap_or_default()
    }

    /// Times of one track are monotone: cores may disagree by a few ticks.
    fn at(&mut self, time: Nanos) -> Nanos {
        self.last = time.max(self.last.saturating_add(Nanos(self.step)));
        self.last
    }

    pub fn enter<W: Write>(
        &mut self,
        time: Nanos,
        opening: Opening,
        flow: Option<FlowEnd>,
        writer: &mut Writer<W>,
    ) -> io::Result<()> {
        let open = Open { opening, start: self.at(time), flow, late: Vec::new() };
        write_begin(&open, self.sequence, writer)?;
        self.open.push(open);
        Ok(())
    }

    pub fn exit<W: Write>(&mut self, time: Nanos, key: Key, writer: &mut Writer<W>) -> io::Result<()> {
        let time = self.at(time);
        let Some(at) = self.open.iter().rposition(|open| open.opening.key == key) else {
            return self.exit_side_lane(time, key, writer);
        };
        let outlasting = self.open.split_off(at + 1);
        for _ in &outlasting {
            writer.end_void(self.sequence, time)?;
        }
        if let Some(ended) = self.open.pop() {
            writer.end(self.sequence, time, shown(&ended.late))?;
            self.keep_spare(ended.opening.fields);
        }
        for open in outlasting {
            self.move_to_side_lane(open, writer)?;
        }
        Ok(())
    }

    fn keep_spare(&mut self, mut fields: OwnFields) {
        if fields.capacity() > 0 && self.spare.len() < 16 {
            fields.clear();
            self.spare.push(fields);
        }
    }

    fn move_to_side_lane<W: Write>(&mut self, open: Open, writer: &mut Writer<W>) -> io::Result<()> {
        let is_free = |lane: &SideLane| lane.open.is_none() && lane.free_from <= open.start;
        let at = match self.side_lanes.iter().position(is_free) {
            Some(at) => at,
            None => {
                let number = self.side_lanes.len() + 1;
                let place = writer.lane(self.place, &format!("{} (lane {number})", self.name))?;
                let sequence = writer.sequence(place)?;
                self.side_lanes.push(SideLane { sequence, free_from: Nanos(0), open: None });
                number - 1
            }
        };
        let lane = &mut self.side_lanes[at];
        write_begin(&open, lane.sequence, writer)?;
        lane.open = Some(open);
        Ok(())
    }

    fn exit_side_lane<W: Write>(&mut self, time: Nanos, key: Key, writer: &mut Writer<W>) -> io::Result<()> {
        let holds = |lane: &&mut SideLane| lane.open.as_ref().is_some_and(|open| open.opening.key == key);
        let Some(lane) = self.side_lanes.iter_mut().rev().find(holds) else { return Ok(()) };
        if let Some(ended) = lane.open.take() {
            lane.free_from = time;
            writer.end(lane.sequence, time, shown(&ended.late))?;
        }
        Ok(())
    }

    /// Adds fields to the innermost open span of a site; they are written at its end.
    pub fn add_fields(&mut self, key: Key, fields: impl Iterator<Item = (&'static str, FieldValue)>) {
        if let Some(open) = self.open.iter_mut().rfind(|open| open.opening.key == key) {
            open.late.extend(fields);
        }
    }

    /// Closes and flags the open spans.
    pub fn close<W: Write>(&mut self, time: Nanos, writer: &mut Writer<W>) -> io::Result<()> {
        let time = self.at(time);
        for _ in self.open.drain(..) {
            writer.end_open(self.sequence, time)?;
        }
        for lane in self.side_lanes.iter_mut().filter(|lane| lane.open.is_some()) {
            lane.open = None;
            writer.end_open(lane.sequence, time)?;
        }
        Ok(())
    }
}

fn write_begin<W: Write>(open: &Open, sequence: Sequence, writer: &mut Writer<W>) -> io::Result<()> {
    let (flow_out, flow_in) = match &open.flow {
        None => (&[][..], &[][..]),
        Some(FlowEnd::Out(flow)) => (slice::from_ref(flow), &[][..]),
        Some(FlowEnd::In(flow)) => (&[][..], slice::from_ref(flow)),
    };
    let begin = Begin { name: open.opening.name, category: open.opening.category, flow_out, flow_in };
    writer.begin(sequence, open.start, begin, shown(&open.opening.fields))
}
