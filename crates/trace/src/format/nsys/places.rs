//! Tracks of an export: threads and streams by process, device and number.

use std::collections::HashMap;

use crate::track::{Track, TrackId, TrackKind};
use crate::{builder::TraceBuilder, names::NameId};

/// A process and a thread in one number, as packed by Nsight Systems: 24 bits each, the thread in the lowest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct GlobalId(pub i64);

impl GlobalId {
    pub fn pid(self) -> i64 {
        self.0 >> 24 & 0xff_ffff
    }

    pub fn tid(self) -> i64 {
        self.0 & 0xff_ffff
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    Thread(i64, i64),
    Stream { pid: i64, device: i64, stream: Option<i64> },
    Ranges(i64),
}

#[derive(Debug, Default)]
pub struct Places {
    tracks: HashMap<Place, TrackId>,
    thread_names: HashMap<(i64, i64), NameId>,
    process_names: HashMap<i64, String>,
}

/// The stream number that Nsight Systems uses for a synchronisation of all streams.
const ALL_STREAMS: i64 = 0xffff_ffff;

impl Places {
    pub fn name_thread(&mut self, thread: GlobalId, name: NameId) {
        self.thread_names.insert((thread.pid(), thread.tid()), name);
    }

    pub fn name_process(&mut self, pid: i64, name: &str) {
        self.process_names.insert(pid, name.to_owned());
    }

    pub fn thread(&mut self, id: GlobalId, builder: &mut TraceBuilder) -> TrackId {
        let (pid, tid) = (id.pid(), id.tid());
        let name = self.thread_names.get(&(pid, tid)).copied();
        self.track(Place::Thread(pid, tid), pid, builder, |process, builder| Track {
            process,
            kind: TrackKind::Thread,
            name: name.unwrap_or_else(|| builder.name(&format!("thread {tid}"))),
            number: Some(tid),
            device: None,
            unit: NameId::EMPTY,
        })
    }

    pub fn stream(&mut self, pid: i64, device: i64, stream: i64, builder: &mut TraceBuilder) -> TrackId {
        let stream = Some(stream).filter(|&stream| stream != ALL_STREAMS && stream >= 0);
        self.track(Place::Stream { pid, device, stream }, pid, builder, |process, builder| Track {
            process,
            kind: TrackKind::Stream,
            name: builder.name(&stream.map_or_else(|| "all streams".to_owned(), |stream| format!("stream {stream}"))),
            number: stream,
            device: Some(device),
            unit: NameId::EMPTY,
        })
    }

    /// The track of ranges without a thread.
    pub fn ranges(&mut self, pid: i64, builder: &mut TraceBuilder) -> TrackId {
        self.track(Place::Ranges(pid), pid, builder, |process, builder| Track {
            process,
            kind: TrackKind::Lane,
            name: builder.name("NVTX ranges"),
            number: None,
            device: None,
            unit: NameId::EMPTY,
        })
    }

    fn track(
        &mut self,
        place: Place,
        pid: i64,
        builder: &mut TraceBuilder,
        make: impl FnOnce(crate::ProcessId, &mut TraceBuilder) -> Track,
    ) -> TrackId {
        if let Some(&known) = self.tracks.get(&place) {
            return known;
        }
        let process = builder.process(pid);
        if let Some(name) = self.process_names.get(&pid) {
            builder.name_process(process, name);
        }
        let track = make(process, builder);
        let track = builder.track(track);
        self.tracks.insert(place, track);
        track
    }
}
