//! The tracks of a JSON trace while it is read: processes and threads by their numbers or names.

use hashbrown::HashMap;

use super::{batch::Batch, row::Number};
use crate::track::{Track, TrackId, TrackKind};
use crate::{builder::TraceBuilder, format::pairing::Pairs, names::NameId};

/// The ids of a thread or stream; device streams are numbered separately from host threads.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place {
    pub pid: i64,
    pub tid: i64,
    pub is_device: bool,
}

/// Generated ids count down from here, away from those that writers generate themselves, such as -1 for all streams.
const FIRST_MADE_UP: i64 = -1_000_001;

#[derive(Debug, Default)]
pub struct Tracks {
    /// Ids of processes and threads that have names instead.
    made_up: HashMap<String, i64>,
    made_up_names: Vec<String>,
    places: HashMap<Place, TrackId>,
    last: Option<(Place, TrackId)>,
    thread_names: HashMap<(i64, i64), NameId>,
    process_names: HashMap<i64, String>,
    process_labels: HashMap<i64, String>,
    /// Thread ids of the lanes of other tracks.
    lanes: HashMap<(i64, i64), TrackId>,
    counters: HashMap<(i64, String), TrackId>,
    asyncs: HashMap<(i64, NameId), TrackId>,
    /// Begin and end events, by track.
    pub pairs: Pairs,
    /// Begin and end events of asynchronous spans, by the number of their track and id.
    pub async_pairs: Pairs,
    async_numbers: HashMap<(TrackId, AsyncId), u32>,
}

/// The key that connects the events of one asynchronous span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AsyncId {
    Number(i64),
    Name(NameId),
}

impl Tracks {
    /// The number of an asynchronous span of a track.
    pub fn async_number(&mut self, track: TrackId, id: AsyncId) -> u32 {
        let next = self.async_numbers.len() as u32;
        *self.async_numbers.entry((track, id)).or_insert(next)
    }

    /// The size of the begin and end events in bytes.
    pub fn bytes(&self) -> u64 {
        let numbers = self.async_numbers.len() * size_of::<((TrackId, AsyncId), u32)>();
        self.pairs.bytes() + self.async_pairs.bytes() + numbers as u64
    }

    /// The id of a process or thread: given, or generated for a name.
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

    /// The name for which an id was generated.
    fn placeholder_name(&self, number: i64) -> Option<&str> {
        let at = usize::try_from(FIRST_MADE_UP.checked_sub(number)?).ok()?;
        let name = self.made_up_names.get(at)?;
        (self.made_up.get(name) == Some(&number)).then_some(name.as_str())
    }

    /// Finds or creates the track of a host thread or a device stream.
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

    /// The track with these ids, if there is one; a stream before a thread.
    pub fn seen(&self, pid: i64, tid: i64) -> Option<TrackId> {
        let find = |is_device| self.places.get(&Place { pid, tid, is_device }).copied();
        find(true).or_else(|| self.lanes.get(&(pid, tid)).copied()).or_else(|| find(false))
    }

    fn make(&mut self, place: Place, builder: &mut TraceBuilder) -> TrackId {
        let (kind, what) = if place.is_device { (TrackKind::Stream, "stream") } else { (TrackKind::Thread, "thread") };
        let known = self.thread_names.get(&(place.pid, place.tid)).map(|&name| builder.text(name).to_owned());
        let name = known.or_else(|| self.placeholder_name(place.tid).map(str::to_owned));
        let name = name.unwrap_or_else(|| format!("{what} {}", place.tid));
        // A synchronisation of all streams of a device has stream -1.
        let number = Some(place.tid).filter(|&tid| !place.is_device || tid >= 0);
        let track = builder.named_track(place.pid, kind, &name, number, place.is_device.then_some(place.pid));
        self.places.insert(place, track);
        track
    }

    /// Finds or creates the track of a thread.
    pub fn thread(&mut self, pid: i64, tid: i64, builder: &mut TraceBuilder) -> TrackId {
        self.track(Place { pid, tid, is_device: false }, builder)
    }

    /// Sets the name of a thread or stream, whether it was seen or not; the name of a lane is derived from its track.
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

    /// Sets the name of a process, whether it was seen or not.
    pub fn name_process(&mut self, pid: i64, name: &str) {
        self.process_names.insert(pid, name.to_owned());
    }

    /// Sets the label of a process: torch.profiler uses it to mark devices.
    pub fn label_process(&mut self, pid: i64, label: &str) {
        self.process_labels.insert(pid, label.to_owned());
    }

    /// The rows of host threads and of everything that looks like one, with the names from the file.
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
            if let Some(name) = name.or_else(|| self.placeholder_name(number)) {
                builder.name_process(process, name);
            }
        }
    }

    /// Handles one of our own track descriptions.
    pub fn describe(&mut self, pid: i64, tid: i64, track: OwnTrack<'_>, builder: &mut TraceBuilder) {
        let id = self.thread(pid, tid, builder);
        let (name, unit) = (builder.name(track.name), builder.name(track.unit));
        let process = builder.process(pid);
        let OwnTrack { kind, number, device, .. } = track;
        *builder.track_mut(id) = Track { process, kind, name, number, device, unit };
    }

    /// Marks a thread id as a lane of another track.
    pub fn lane(&mut self, pid: i64, tid: i64, track_tid: i64, builder: &mut TraceBuilder) {
        let track = self.thread(pid, track_tid, builder);
        if tid != track_tid {
            self.lanes.insert((pid, tid), track);
            self.last = None;
        }
    }

    /// Finds or creates the track of a curve: our own by thread id, others by name.
    pub fn counter(&mut self, pid: i64, tid: i64, name: &str, builder: &mut TraceBuilder) -> TrackId {
        if let Some(&track) = self.places.get(&Place { pid, tid, is_device: false })
            && builder.track_mut(track).kind == TrackKind::Counter
        {
            return track;
        }
        *self.counters.entry((pid, name.to_owned())).or_insert_with(|| builder.counter(pid, name, ""))
    }

    /// Finds or creates the curve of a device's memory.
    pub fn memory(&mut self, pid: i64, name: &str, device: Option<i64>, builder: &mut TraceBuilder) -> TrackId {
        *self.counters.entry((pid, name.to_owned())).or_insert_with(|| {
            let track = builder.counter(pid, name, "bytes");
            builder.track_mut(track).device = device;
            track
        })
    }

    /// Finds or creates the track of the asynchronous spans of one category.
    pub fn asynchronous(&mut self, pid: i64, category: NameId, builder: &mut TraceBuilder) -> TrackId {
        *self.asyncs.entry((pid, category)).or_insert_with(|| {
            let name = if category == NameId::EMPTY { "asynchronous" } else { builder.text(category) }.to_owned();
            builder.named_track(pid, TrackKind::Lane, &name, None, None)
        })
    }
}

/// A row of a file: its track, and the names of its process and thread.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    pub track: TrackId,
    pub process: String,
    pub thread: String,
}

/// A track as described by our own metadata.
#[derive(Debug, Clone, Copy)]
pub struct OwnTrack<'a> {
    pub kind: TrackKind,
    pub name: &'a str,
    pub number: Option<i64>,
    pub device: Option<i64>,
    pub unit: &'a str,
}
