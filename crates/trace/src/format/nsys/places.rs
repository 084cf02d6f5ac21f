//! Tracks of an export: threads and streams by process, device and number.

use std::collections::HashMap;

use crate::builder::TraceBuilder;
use crate::track::{TrackId, TrackKind};

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
    thread_names: HashMap<(i64, i64), String>,
    process_names: HashMap<i64, String>,
}

/// The stream number that Nsight Systems uses for a synchronisation of all streams.
const ALL_STREAMS: i64 = 0xffff_ffff;

impl Places {
    pub fn name_thread(&mut self, thread: GlobalId, name: &str) {
        self.thread_names.insert((thread.pid(), thread.tid()), name.to_owned());
    }

    pub fn name_process(&mut self, pid: i64, name: &str) {
        self.process_names.insert(pid, name.to_owned());
    }

    pub fn thread(&mut self, id: GlobalId, builder: &mut TraceBuilder) -> TrackId {
        self.track(Place::Thread(id.pid(), id.tid()), builder)
    }

    pub fn stream(&mut self, pid: i64, device: i64, stream: i64, builder: &mut TraceBuilder) -> TrackId {
        let stream = Some(stream).filter(|&stream| stream != ALL_STREAMS && stream >= 0);
        self.track(Place::Stream { pid, device, stream }, builder)
    }

    /// The track of ranges without a thread.
    pub fn ranges(&mut self, pid: i64, builder: &mut TraceBuilder) -> TrackId {
        self.track(Place::Ranges(pid), builder)
    }

    fn track(&mut self, place: Place, builder: &mut TraceBuilder) -> TrackId {
        let Self { tracks, thread_names, process_names } = self;
        *tracks.entry(place).or_insert_with(|| {
            let (pid, kind, name, number, device) = match place {
                Place::Thread(pid, tid) => {
                    (pid, TrackKind::Thread, thread_names.get(&(pid, tid)).cloned(), Some(tid), None)
                }
                Place::Stream { pid, device, stream } => (pid, TrackKind::Stream, None, stream, Some(device)),
                Place::Ranges(pid) => (pid, TrackKind::Lane, Some("NVTX ranges".to_owned()), None, None),
            };
            let name = name.unwrap_or_else(|| match number {
                Some(number) if kind == TrackKind::Thread => format!("thread {number}"),
                Some(number) => format!("stream {number}"),
                None => "all streams".to_owned(),
            });
            let process = builder.process(pid);
            if let Some(name) = process_names.get(&pid) {
                builder.name_process(process, name);
            }
            builder.named_track(pid, kind, &name, number, device)
        })
    }
}
