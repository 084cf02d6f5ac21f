//! The tracks of a JSON trace while it is read: processes and threads by their numbers or names.

use std::collections::{HashMap, HashSet};

use crate::{
    builder::TraceBuilder,
    format::pairing::Pairs,
    names::NameId,
    track::{ProcessId, Track, TrackId, TrackKind},
};

#[derive(Debug, Default)]
pub struct Tracks {
    /// Numbers of processes and threads that have names instead.
    made_up: HashMap<String, i64>,
    threads: HashMap<(i64, i64), TrackId>,
    /// Thread numbers that stand for lanes of other tracks.
    lanes: HashSet<(i64, i64)>,
    counters: HashMap<(i64, String), TrackId>,
    /// Beginnings and ends that are events of their own, by track.
    pub pairs: HashMap<TrackId, Pairs>,
}

impl Tracks {
    /// The number behind a JSON value: itself, or one made up for a name.
    pub fn number(&mut self, json: Option<&str>) -> i64 {
        let Some(text) = json else { return 0 };
        if let Ok(number) = text.trim_matches('"').parse() {
            return number;
        }
        let next = -1 - self.made_up.len() as i64;
        *self.made_up.entry(text.trim_matches('"').to_owned()).or_insert(next)
    }

    /// Finds or makes the track of a thread.
    pub fn thread(&mut self, pid: i64, tid: i64, builder: &mut TraceBuilder) -> TrackId {
        *self.threads.entry((pid, tid)).or_insert_with(|| {
            let process = builder.process(pid);
            let name = builder.name(&format!("thread {tid}"));
            let kind = TrackKind::Thread;
            builder.track(Track { process, kind, name, number: Some(tid), unit: NameId::EMPTY })
        })
    }

    /// Takes the name of a thread; a lane's is made of its track's.
    pub fn name_thread(&mut self, pid: i64, tid: i64, name: &str, builder: &mut TraceBuilder) {
        if self.lanes.contains(&(pid, tid)) {
            return;
        }
        let track = self.thread(pid, tid, builder);
        let name = builder.name(name);
        builder.track_mut(track).name = name;
    }

    /// Takes one of our own descriptions of a track.
    pub fn describe(&mut self, pid: i64, tid: i64, track: OwnTrack<'_>, builder: &mut TraceBuilder) {
        let id = self.thread(pid, tid, builder);
        let (name, unit) = (builder.name(track.name), builder.name(track.unit));
        let process = builder.process(pid);
        *builder.track_mut(id) = Track { process, kind: track.kind, name, number: track.number, unit };
    }

    /// Says that a thread number stands for a lane of another's track.
    pub fn lane(&mut self, pid: i64, tid: i64, track_tid: i64, builder: &mut TraceBuilder) {
        let track = self.thread(pid, track_tid, builder);
        if tid != track_tid {
            self.lanes.insert((pid, tid));
            self.threads.insert((pid, tid), track);
        }
    }

    /// Finds or makes the track of a curve: our own by its thread number, others by name.
    pub fn counter(&mut self, pid: i64, tid: i64, name: &str, builder: &mut TraceBuilder) -> TrackId {
        if let Some(&track) = self.threads.get(&(pid, tid))
            && builder.track_mut(track).kind == TrackKind::Counter
        {
            return track;
        }
        *self.counters.entry((pid, name.to_owned())).or_insert_with(|| builder.counter(pid, name, ""))
    }

    /// Finds or makes a process.
    pub fn process(&mut self, pid: i64, builder: &mut TraceBuilder) -> ProcessId {
        builder.process(pid)
    }
}

/// A track as our own metadata describes it.
#[derive(Debug, Clone, Copy)]
pub struct OwnTrack<'a> {
    pub kind: TrackKind,
    pub name: &'a str,
    pub number: Option<i64>,
    pub unit: &'a str,
}
