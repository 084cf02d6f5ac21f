//! The tracks of a JSON trace while it is read: processes and threads by their numbers or names.

use std::collections::HashMap;

use super::{batch::Batch, row::Number};
use crate::{
    builder::TraceBuilder,
    format::pairing::Pairs,
    names::NameId,
    track::{Track, TrackId, TrackKind},
};

/// The numbers of a thread or stream; a device's streams are numbered apart from the host's threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    pub pid: i64,
    pub tid: i64,
    pub is_device: bool,
}

/// Made-up numbers go down from here, away from those that writers make up themselves, such as -1 for all streams.
const FIRST_MADE_UP: i64 = -1_000_001;

#[derive(Debug, Default)]
pub struct Tracks {
    /// Numbers of processes and threads that have names instead.
    made_up: HashMap<String, i64>,
    made_up_names: Vec<String>,
    places: HashMap<Place, TrackId>,
    last: Option<(Place, TrackId)>,
    thread_names: HashMap<(i64, i64), NameId>,
    process_names: HashMap<i64, String>,
    process_labels: HashMap<i64, String>,
    /// Thread numbers that stand for lanes of other tracks.
    lanes: HashMap<(i64, i64), TrackId>,
    counters: HashMap<(i64, String), TrackId>,
    asyncs: HashMap<(i64, NameId), TrackId>,
    /// Beginnings and ends that are events of their own, by track.
    pub pairs: HashMap<TrackId, Pairs>,
    /// Beginnings and ends of asynchronous spans, by track and id.
    pub async_pairs: HashMap<(TrackId, AsyncId), Pairs>,
}

/// What ties the events of one asynchronous span together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AsyncId {
    Number(i64),
    Name(NameId),
}

impl Tracks {
    /// The number behind a process or thread: itself, or one made up for a name.
    pub fn number(&mut self, number: Number, batch: &Batch) -> i64 {
        let name = match number {
            Number::Plain(number) => return number,
            Number::Named(name) => batch.names.name(name),
        };
        if let Some(&known) = self.made_up.get(name) {
            return known;
        }
        let next = FIRST_MADE_UP - self.made_up_names.len() as i64;
        self.made_up_names.push(name.to_owned());
        self.made_up.insert(name.to_owned(), next);
        next
    }

    /// The name that a made-up number stands for.
    fn made_up_name(&self, number: i64) -> Option<&str> {
        let at = usize::try_from(FIRST_MADE_UP.checked_sub(number)?).ok()?;
        let name = self.made_up_names.get(at)?;
        (self.made_up.get(name) == Some(&number)).then_some(name.as_str())
    }

    /// Finds or makes the track of a thread of the host or a stream of a device.
    pub fn track(&mut self, place: Place, builder: &mut TraceBuilder) -> TrackId {
        if let Some((last, track)) = self.last
            && last == place
        {
            return track;
        }
        let known = match place.is_device {
            true => self.places.get(&place),
            false => self.lanes.get(&(place.pid, place.tid)).or_else(|| self.places.get(&place)),
        };
        let track = known.copied().unwrap_or_else(|| self.make(place, builder));
        self.last = Some((place, track));
        track
    }

    /// The track of these numbers if there is one; a stream before a thread.
    pub fn seen(&self, pid: i64, tid: i64) -> Option<TrackId> {
        let find = |is_device| self.places.get(&Place { pid, tid, is_device }).copied();
        find(true).or_else(|| self.lanes.get(&(pid, tid)).copied()).or_else(|| find(false))
    }

    fn make(&mut self, place: Place, builder: &mut TraceBuilder) -> TrackId {
        let process = builder.process(place.pid);
        let known = self.thread_names.get(&(place.pid, place.tid)).copied();
        let name = known.unwrap_or_else(|| {
            let what = if place.is_device { "stream" } else { "thread" };
            let made_up = self.made_up_name(place.tid).map(str::to_owned);
            builder.name(&made_up.unwrap_or_else(|| format!("{what} {}", place.tid)))
        });
        let kind = if place.is_device { TrackKind::Stream } else { TrackKind::Thread };
        // A synchronisation of all streams of a device has stream -1.
        let number = Some(place.tid).filter(|&tid| !place.is_device || tid >= 0);
        let device = place.is_device.then_some(place.pid);
        let track = builder.track(Track { process, kind, name, number, device, unit: NameId::EMPTY });
        self.places.insert(place, track);
        track
    }

    /// Finds or makes the track of a thread.
    pub fn thread(&mut self, pid: i64, tid: i64, builder: &mut TraceBuilder) -> TrackId {
        self.track(Place { pid, tid, is_device: false }, builder)
    }

    /// Takes the name of a thread or stream, whether it was seen or not; a lane's is made of its track's.
    pub fn name_thread(&mut self, pid: i64, tid: i64, name: &str, builder: &mut TraceBuilder) {
        if self.lanes.contains_key(&(pid, tid)) {
            return;
        }
        let name = builder.name(name);
        self.thread_names.insert((pid, tid), name);
        for is_device in [false, true] {
            if let Some(&track) = self.places.get(&Place { pid, tid, is_device }) {
                builder.track_mut(track).name = name;
            }
        }
    }

    /// Takes the name of a process, whether it was seen or not.
    pub fn name_process(&mut self, pid: i64, name: &str) {
        self.process_names.insert(pid, name.to_owned());
    }

    /// Takes the label of a process: torch.profiler says there which of its processes are devices.
    pub fn label_process(&mut self, pid: i64, label: &str) {
        self.process_labels.insert(pid, label.to_owned());
    }

    /// The lines of the host's threads and of all that looks like one, with the names that the file gives them.
    pub fn lines(&self, builder: &TraceBuilder) -> Vec<Line> {
        let threads = self.places.iter().filter(|(place, _)| !place.is_device);
        let line = |(place, &track): (&Place, &TrackId)| Line {
            track,
            process: self.process_names.get(&place.pid).cloned().unwrap_or_default(),
            thread: builder.text(builder.track_at(track).name).to_owned(),
        };
        threads.map(line).collect()
    }

    /// Names the processes that were seen.
    pub fn name_processes(&self, builder: &mut TraceBuilder) {
        for (number, process) in builder.processes() {
            let label = self.process_labels.get(&number).filter(|label| label.starts_with("GPU"));
            let name = label.or_else(|| self.process_names.get(&number)).map(String::as_str);
            if let Some(name) = name.or_else(|| self.made_up_name(number)) {
                builder.name_process(process, name);
            }
        }
    }

    /// Takes one of our own descriptions of a track.
    pub fn describe(&mut self, pid: i64, tid: i64, track: OwnTrack<'_>, builder: &mut TraceBuilder) {
        let id = self.thread(pid, tid, builder);
        let (name, unit) = (builder.name(track.name), builder.name(track.unit));
        let process = builder.process(pid);
        let OwnTrack { kind, number, device, .. } = track;
        *builder.track_mut(id) = Track { process, kind, name, number, device, unit };
    }

    /// Says that a thread number stands for a lane of another's track.
    pub fn lane(&mut self, pid: i64, tid: i64, track_tid: i64, builder: &mut TraceBuilder) {
        let track = self.thread(pid, track_tid, builder);
        if tid != track_tid {
            self.lanes.insert((pid, tid), track);
            self.last = None;
        }
    }

    /// Finds or makes the track of a curve: our own by its thread number, others by name.
    pub fn counter(&mut self, pid: i64, tid: i64, name: &str, builder: &mut TraceBuilder) -> TrackId {
        if let Some(&track) = self.places.get(&Place { pid, tid, is_device: false })
            && builder.track_mut(track).kind == TrackKind::Counter
        {
            return track;
        }
        *self.counters.entry((pid, name.to_owned())).or_insert_with(|| builder.counter(pid, name, ""))
    }

    /// Finds or makes the curve of a device's memory.
    pub fn memory(&mut self, pid: i64, name: &str, device: Option<i64>, builder: &mut TraceBuilder) -> TrackId {
        *self.counters.entry((pid, name.to_owned())).or_insert_with(|| {
            let track = builder.counter(pid, name, "bytes");
            builder.track_mut(track).device = device;
            track
        })
    }

    /// Finds or makes the track of the asynchronous spans of one category.
    pub fn asynchronous(&mut self, pid: i64, category: NameId, builder: &mut TraceBuilder) -> TrackId {
        *self.asyncs.entry((pid, category)).or_insert_with(|| {
            let process = builder.process(pid);
            let name = if category == NameId::EMPTY { builder.name("asynchronous") } else { category };
            let kind = TrackKind::Lane;
            builder.track(Track { process, kind, name, number: None, device: None, unit: NameId::EMPTY })
        })
    }
}

/// A line of a file: its track, and the names of its process and thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub track: TrackId,
    pub process: String,
    pub thread: String,
}

/// A track as our own metadata describes it.
#[derive(Debug, Clone, Copy)]
pub struct OwnTrack<'a> {
    pub kind: TrackKind,
    pub name: &'a str,
    pub number: Option<i64>,
    pub device: Option<i64>,
    pub unit: &'a str,
}
