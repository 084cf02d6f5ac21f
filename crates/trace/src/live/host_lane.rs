//! A host lane: a track on which several threads may have stages at once.
//!
//! Batches arrive per thread, so stages of one thread may be written after later ones of another. Each thread in a
//! stage has a separate timeline; an idle timeline goes to the next thread whose time is not earlier.

use std::io::{self, Write};

use super::thread::Key;
use super::timeline::{Opening, Timeline};
use crate::format::pftrace::{TrackPlace, Writer};
use crate::time::Nanos;

pub struct HostLane {
    place: TrackPlace,
    name: String,
    timelines: Vec<Owned>,
}

/// A timeline, and the thread that has a stage on it.
struct Owned {
    owner: Option<u32>,
    timeline: Timeline,
}

impl HostLane {
    pub fn new(place: TrackPlace, name: &str) -> Self {
        Self { place, name: name.to_owned(), timelines: Vec::new() }
    }

    pub fn enter<W: Write>(
        &mut self,
        source: u32,
        time: Nanos,
        opening: Opening,
        writer: &mut Writer<W>,
    ) -> io::Result<()> {
        let owned = self.timelines.iter().position(|owned| owned.owner == Some(source));
        let is_free = |owned: &Owned| owned.owner.is_none() && owned.timeline.last() < time;
        let at = match owned.or_else(|| self.timelines.iter().position(is_free)) {
            Some(at) => at,
            None => self.add(writer)?,
        };
        self.timelines[at].owner = Some(source);
        self.timelines[at].timeline.enter(time, opening, None, writer)
    }

    fn add<W: Write>(&mut self, writer: &mut Writer<W>) -> io::Result<usize> {
        let place = match self.timelines.len() {
            0 => self.place,
            number => writer.lane(self.place, &format!("{} (lane {number})", self.name))?,
        };
        let timeline = Timeline::begin(place, &self.name, writer)?;
        self.timelines.push(Owned { owner: None, timeline });
        Ok(self.timelines.len() - 1)
    }

    pub fn exit<W: Write>(&mut self, source: u32, time: Nanos, key: Key, writer: &mut Writer<W>) -> io::Result<()> {
        let Some(owned) = self.timelines.iter_mut().find(|owned| owned.owner == Some(source)) else { return Ok(()) };
        owned.timeline.exit(time, key, writer)?;
        if owned.timeline.is_idle() {
            owned.owner = None;
        }
        Ok(())
    }

    /// Closes and flags the open spans of one thread, or of all threads.
    pub fn close<W: Write>(&mut self, source: Option<u32>, time: Nanos, writer: &mut Writer<W>) -> io::Result<()> {
        let is_meant = |owned: &&mut Owned| owned.owner.is_some() && (source.is_none() || owned.owner == source);
        for owned in self.timelines.iter_mut().filter(is_meant) {
            owned.timeline.close(time, writer)?;
            owned.owner = None;
        }
        Ok(())
    }
}
