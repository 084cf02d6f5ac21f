//! The parts of laps, for comparing one lap with the others.
//!
//! The time of a lap is split twice: by what its host thread did, and by what devices did. Each split adds up to the
//! length of the lap.

use hashbrown::HashMap;

use laptime_trace::{NameId, SpanId, Trace, TrackId};

use crate::devices::{Devices, Work, launches_of};
use crate::host::Host;
use crate::lap_unit::{LapSource, LapUnit};

/// How many differences are listed per lap.
const LISTED: usize = 3;

/// The share of a lap's excess that a listed difference must explain.
const LEAST_SHARE: f64 = 0.05;

/// For laps on the device, host activity is listed if the device was idle for this share of the lap's
/// excess.
const IDLE_SHARE: f64 = 0.5;

/// A part of a lap's time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LapPart {
    /// The self time of the lap on the host.
    Own,
    /// The self time of something on the lap's thread.
    Host(String),
    /// Nothing was recorded on the lap's thread.
    Unrecorded,
    /// A kernel or copy; if several run at once, the one that started first.
    Device(String),
    /// All devices were idle.
    Idle,
}

/// What took longer than in the median lap.
#[derive(Debug, Clone, PartialEq)]
pub struct PartDifference {
    /// The part.
    pub part: LapPart,
    /// How much more time, in nanoseconds.
    pub more: f64,
    /// How often it occurred in the lap.
    pub count: u64,
    /// How often it occurs in the median lap.
    pub usual_count: f64,
}

/// A part by numbers, while laps are collected; among equal differences, the most useful comes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Key {
    Host(NameId),
    Own,
    Device(NameId),
    Idle,
    Unrecorded,
}

impl Key {
    fn is_on_device(self) -> bool {
        matches!(self, Self::Idle | Self::Device(_))
    }
}

#[derive(Debug, Clone, Copy, Default)]
struct Spent {
    time: u64,
    count: u64,
}

/// The parts of each lap.
#[derive(Debug)]
pub struct Parts<'a> {
    trace: &'a Trace,
    /// Laps are on the device: the host is ahead, and matters only while the device waits for it.
    is_of_device: bool,
    laps: Vec<HashMap<Key, Spent>>,
}

impl<'a> Parts<'a> {
    /// Splits the time of each lap.
    pub fn of(trace: &'a Trace, devices: &Devices, unit: &LapUnit) -> Self {
        let is_of_device = unit.source == LapSource::Kernels;
        let mut parts = Self { trace, is_of_device, laps: vec![HashMap::new(); unit.laps.len()] };
        parts.add_host(devices, unit);
        parts.add_devices(devices, unit);
        parts
    }

    fn add(&mut self, at: usize, key: Key, time: u64, is_first: bool) {
        let spent = self.laps[at].entry(key).or_default();
        spent.time += time;
        spent.count += u64::from(is_first);
    }

    fn add_host(&mut self, devices: &Devices, unit: &LapUnit) {
        let launching = launching_thread(self.trace, devices);
        let track = |span: Option<SpanId>| span.map(|id| self.trace.span(id).track).or(launching);
        let tracks: Vec<Option<TrackId>> = unit.laps.iter().map(|lap| track(lap.span)).collect();
        let host = Host::of(self.trace, tracks.iter().flatten().copied());
        for (at, (lap, track)) in unit.laps.iter().zip(tracks).enumerate() {
            let Some(track) = track else { continue };
            for (id, from, to) in host.doing_within(track, lap.start, lap.end) {
                let key = match id {
                    None => Key::Unrecorded,
                    Some(id) if Some(id) == lap.span => Key::Own,
                    Some(id) => Key::Host(self.trace.span_name(id)),
                };
                let is_first = id.is_some_and(|id| self.trace.span(id).start.0 == from);
                self.add(at, key, to - from, is_first);
            }
        }
    }

    fn add_devices(&mut self, devices: &Devices, unit: &LapUnit) {
        let mut work: Vec<&Work> = devices.work().collect();
        if work.is_empty() {
            return;
        }
        work.sort_by_key(|work| (work.start, work.end, work.id));
        let mut idle: Vec<u64> = unit.laps.iter().map(|lap| lap.end.saturating_sub(lap.start)).collect();
        let mut reached = 0;
        for work in work {
            let key = Key::Device(self.trace.span_name(work.id));
            if let Some(at) = unit.at(work.start) {
                self.add(at, key, 0, true);
            }
            // Time of an earlier start belongs to that work.
            let from = work.start.max(reached);
            reached = reached.max(work.end);
            let first = unit.laps.partition_point(|lap| lap.end <= from);
            let within = unit.laps.iter().enumerate().skip(first).take_while(|(_, lap)| lap.start < reached);
            for (at, lap) in within {
                let time = reached.min(lap.end).saturating_sub(from.max(lap.start));
                idle[at] = idle[at].saturating_sub(time);
                self.add(at, key, time, false);
            }
        }
        for (at, idle) in idle.into_iter().enumerate() {
            self.add(at, Key::Idle, idle, false);
        }
    }

    /// What took longer than in the median lap that is not cold, largest first.
    pub fn more_than_median(&self, at: usize, cold: usize) -> Vec<PartDifference> {
        let warm = &self.laps[cold..];
        let mut more: Vec<(Key, f64, Spent, f64)> = self.laps[at]
            .iter()
            .map(|(&key, &spent)| {
                let time = median(warm, |lap| lap.get(&key).map_or(0, |spent| spent.time));
                let count = median(warm, |lap| lap.get(&key).map_or(0, |spent| spent.count));
                (key, spent.time as f64 - time, spent, count)
            })
            .collect();
        more.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
        let excess: f64 = self.length(at) as f64 - median(warm, length);
        let idle = more.iter().find(|(key, ..)| *key == Key::Idle).map_or(0.0, |(_, more, ..)| *more);
        let may_blame_host = !self.is_of_device || idle >= IDLE_SHARE * excess;
        more.retain(|(key, more, ..)| {
            (may_blame_host || key.is_on_device()) && *more > 0.0 && *more >= LEAST_SHARE * excess
        });
        more.truncate(LISTED);
        let difference = |(key, more, spent, usual_count): (Key, f64, Spent, f64)| PartDifference {
            part: self.part(key),
            more,
            count: spent.count,
            usual_count,
        };
        more.into_iter().map(difference).collect()
    }

    fn length(&self, at: usize) -> u64 {
        length(&self.laps[at])
    }

    fn part(&self, key: Key) -> LapPart {
        let name = |id| self.trace.name(id).to_owned();
        match key {
            Key::Own => LapPart::Own,
            Key::Unrecorded => LapPart::Unrecorded,
            Key::Idle => LapPart::Idle,
            Key::Host(id) => LapPart::Host(name(id)),
            Key::Device(id) => LapPart::Device(name(id)),
        }
    }
}

/// The length of a lap: the sum of either split.
fn length(parts: &HashMap<Key, Spent>) -> u64 {
    let sum = |on_device: bool| {
        let wanted = parts.iter().filter(|(key, _)| key.is_on_device() == on_device);
        wanted.map(|(_, spent)| spent.time).sum::<u64>()
    };
    sum(true).max(sum(false))
}

fn median(laps: &[HashMap<Key, Spent>], value: impl Fn(&HashMap<Key, Spent>) -> u64) -> f64 {
    laptime_stats::Sorted::<u64>::from_unsorted(laps.iter().map(value).collect()).median().unwrap_or(0.0)
}

/// The thread that launched the most work.
fn launching_thread(trace: &Trace, devices: &Devices) -> Option<TrackId> {
    let counts = launches_of(trace, devices.work());
    counts.into_iter().max_by_key(|(track, count)| (*count, std::cmp::Reverse(*track))).map(|(track, _)| track)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{devices::devices, lap_unit::lap_unit};
    use laptime_trace::{LAP, Nanos, TraceBuilder, activity::category};
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn both_divisions_of_a_lap_add_up_to_its_length(
            laps in prop::collection::vec((0_u64..20, 1_u64..60), 2..5),
            spans in prop::collection::vec((0_u64..250, 0_u64..40, 0_usize..3), 0..20),
            kernels in prop::collection::vec((0_u64..250, 0_u64..60, 0_usize..3, 0_i64..2), 1..20),
        ) {
            let mut builder = TraceBuilder::default();
            let main = builder.thread(1, 1, "main");
            let streams = [builder.stream(1, 7, "stream 7"), builder.stream(1, 8, "stream 8")];
            let mut at = 0;
            for (pause, length) in laps {
                builder.span(main, Nanos(at + pause), Nanos(length), "token", LAP);
                at += pause + length;
            }
            for (start, length, name) in spans {
                builder.span(main, Nanos(start), Nanos(length), ["a", "b", "c"][name], category::OPERATION);
            }
            for (start, length, name, stream) in kernels {
                let stream = streams[stream as usize];
                builder.span(stream, Nanos(start), Nanos(length), ["k", "l", "m"][name], category::KERNEL);
            }
            let trace = builder.build().unwrap();
            let devices = devices(&trace);
            let unit = lap_unit(&trace, &devices, None).unwrap();
            let parts = Parts::of(&trace, &devices, &unit);
            for (lap, parts) in unit.laps.iter().zip(&parts.laps) {
                let sum = |device: bool| {
                    parts.iter().filter(|(key, _)| key.is_on_device() == device).map(|(_, spent)| spent.time).sum::<u64>()
                };
                prop_assert_eq!((sum(false), sum(true)), (lap.end - lap.start, lap.end - lap.start));
            }
        }
    }
}
