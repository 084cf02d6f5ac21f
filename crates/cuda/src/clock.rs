//! The event clock: device times of stages from pooled CUDA events, without waiting.
//!
//! A mark is an event on the stream. The time of a reached mark is read relative to the *nearest anchor*: an event that
//! the host observed, with host ticks before and after. The driver returns the time between two events as a float of
//! milliseconds, which loses its microseconds after some seconds; relative to the nearest anchor the distance is short.
//! Marks use events of the trait [`Events`], so that the rules are tested without a device.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laptime_probe::{DeviceAnchor, DeviceClock, DeviceMoment, Resolved, Stamp, Ticks};

use crate::{error::CudaError, events::StreamEvents, stream::Stream};

/// The error of the time between two events: CUDA specifies about half a microsecond.
pub const EVENT_RESOLUTION_NANOS: u64 = 500;

/// The number of attempts for an anchor; the one with the shortest time between the host's two readings is kept.
const ANCHOR_TRIES: usize = 4;

/// A stream that is not idle after this time was not synchronised, and gets no anchor.
const LONGEST_ANCHOR_NANOS: u64 = 1_000_000;

/// The number of times that a new clock tries to get an anchor within that time.
const FIRST_TRIES: usize = 100;

/// The maximum drift between device clock and host clock: 20 parts per million, which the GPU tests verify.
pub const DRIFT_ONE_IN: u64 = 50_000;

/// A float has 24 binary digits.
const ROUNDING_ONE_IN: u64 = 1 << 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reached {
    Yes,
    NotYet,
    Never,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostTime {
    pub ticks: Ticks,
    pub nanos: u64,
}

pub trait Events: Send + Sync {
    /// Destroyed when it is dropped.
    type Event: Clone + Send;

    /// Records an event on the stream, reusing an old one if possible. None if the stream accepts none.
    fn record(&self, reused: Option<Self::Event>) -> Option<Self::Event>;
    fn reached(&self, event: &Self::Event) -> Reached;
    fn nanos_between(&self, from: &Self::Event, to: &Self::Event) -> Option<i64>;
    fn is_idle(&self) -> bool;
    fn host_time(&self) -> HostTime;
}

/// The clock of one CUDA stream.
pub type EventClock = Clock<StreamEvents>;

impl EventClock {
    /// Creates the clock of a stream. Synchronises the stream once, to take the first anchor.
    pub fn new(stream: Arc<Stream>) -> Result<Self, CudaError> {
        stream.synchronise()?;
        let clock = Self::over(StreamEvents::new(stream));
        if !clock.first_anchor() {
            return Err(CudaError::refused("taking the first anchor", 0, "the stream accepts no events"));
        }
        Ok(clock)
    }
}

#[derive(Debug)]
pub struct Clock<E: Events> {
    events: E,
    state: Mutex<State<E::Event>>,
}

#[derive(Debug)]
struct State<Event> {
    free: Vec<Event>,
    /// Marks from number `first_mark` on; none for one that was resolved out of order.
    marks: VecDeque<Option<Mark<Event>>>,
    first_mark: u64,
    /// Anchors from number `first_anchor` on; no mark needs the older ones.
    anchors: VecDeque<Anchored<Event>>,
    first_anchor: u64,
    worst_window: u64,
    farthest: u64,
}

#[derive(Debug, Clone)]
struct Mark<Event> {
    event: Event,
    /// The number of anchors so far, which is the number of the next one.
    anchors_before: u64,
}

/// The anchor before a mark, and the one after it.
type Around<Event> = [Option<Anchored<Event>>; 2];

/// A reached event, its anchor, and the time between the host's readings.
type Observed<Event> = (Event, DeviceAnchor, u64);

#[derive(Debug, Clone)]
struct Anchored<Event> {
    event: Event,
    anchor: DeviceAnchor,
}

impl<E: Events> Clock<E> {
    fn over(events: E) -> Self {
        let state = State {
            free: Vec::new(),
            marks: VecDeque::new(),
            // Zero means no mark.
            first_mark: 1,
            anchors: VecDeque::new(),
            first_anchor: 0,
            worst_window: 0,
            farthest: 0,
        };
        Self { events, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State<E::Event>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self, event: &E::Event, anchors: Around<E::Event>) -> Option<DeviceMoment> {
        let moments = anchors.into_iter().flatten().filter_map(|from| {
            let nanos = self.events.nanos_between(&from.event, event)?;
            Some(DeviceMoment { anchor: from.anchor, nanos })
        });
        moments.min_by_key(|moment| moment.nanos.unsigned_abs())
    }

    /// Takes the first anchor of a synchronised stream; false if the stream is unusable.
    ///
    /// Without an anchor no mark has a time, so this waits for one. If the host is slow because other programs run, a poor
    /// anchor is only used if many tries find no better one.
    fn first_anchor(&self) -> bool {
        for _ in 0..FIRST_TRIES {
            self.anchor();
            if !self.state().anchors.is_empty() {
                return true;
            }
        }
        let found = self.try_anchor(u64::MAX);
        found.map(|found| self.keep_anchor(found)).is_some()
    }

    fn keep_anchor(&self, (event, anchor, window): Observed<E::Event>) {
        let mut state = self.state();
        state.worst_window = state.worst_window.max(window);
        state.anchors.push_back(Anchored { event, anchor });
        let spare = state.drop_old_anchors();
        state.free.extend(spare);
    }

    /// Observes one event on an idle stream, for at most this time.
    fn try_anchor(&self, longest: u64) -> Option<Observed<E::Event>> {
        let reused = self.state().free.pop();
        let before = self.events.host_time();
        let event = self.events.record(reused)?;
        loop {
            let reached = self.events.reached(&event);
            let after = self.events.host_time();
            let window = after.nanos.saturating_sub(before.nanos);
            match reached {
                Reached::Yes => {
                    return Some((event, DeviceAnchor { before: before.ticks, after: after.ticks }, window));
                }
                Reached::NotYet if window < longest => std::hint::spin_loop(),
                _ => return None,
            }
        }
    }
}

impl<E: Events> DeviceClock for Clock<E> {
    fn mark(&self) -> Option<Stamp> {
        let mut state = self.state();
        let reused = state.free.pop();
        let event = self.events.record(reused)?;
        let anchors_before = state.first_anchor + state.anchors.len() as u64;
        state.marks.push_back(Some(Mark { event, anchors_before }));
        Some(Stamp(state.first_mark + state.marks.len() as u64 - 1))
    }

    fn resolve(&self, stamp: Stamp) -> Resolved {
        // The driver is called without the lock: marking must not wait for it. The data of a mark stays while it is in
        // the list.
        let Some((mark, anchors)) = self.state().find(stamp) else { return Resolved::Never };
        let resolved = match self.events.reached(&mark.event) {
            Reached::NotYet => return Resolved::Pending,
            Reached::Yes => self.moment(&mark.event, anchors),
            Reached::Never => None,
        };
        self.state().finish(stamp, resolved);
        resolved.map_or(Resolved::Never, Resolved::At)
    }

    fn anchor(&self) {
        if !self.events.is_idle() {
            return;
        }
        let mut best: Option<Observed<E::Event>> = None;
        for _ in 0..ANCHOR_TRIES {
            let Some((event, anchor, window)) = self.try_anchor(LONGEST_ANCHOR_NANOS) else { break };
            let spare = match &best {
                Some((_, _, narrowest)) if *narrowest <= window => Some(event),
                _ => best.replace((event, anchor, window)).map(|(event, ..)| event),
            };
            self.state().free.extend(spare);
        }
        if let Some(best) = best {
            self.keep_anchor(best);
        }
    }

    fn uncertainty_nanos(&self) -> u64 {
        let state = self.state();
        let far = state.farthest / DRIFT_ONE_IN + state.farthest / ROUNDING_ONE_IN;
        (state.worst_window / 2).saturating_add(EVENT_RESOLUTION_NANOS).saturating_add(far)
    }
}

impl<Event: Clone> State<Event> {
    fn find(&self, stamp: Stamp) -> Option<(Mark<Event>, Around<Event>)> {
        let at = stamp.0.checked_sub(self.first_mark)?;
        let mark = self.marks.get(usize::try_from(at).ok()?)?.clone()?;
        let anchor = |number: Option<u64>| {
            let at = number?.checked_sub(self.first_anchor)?;
            self.anchors.get(usize::try_from(at).ok()?).cloned()
        };
        let around = [anchor(mark.anchors_before.checked_sub(1)), anchor(Some(mark.anchors_before))];
        Some((mark, around))
    }

    fn finish(&mut self, stamp: Stamp, resolved: Option<DeviceMoment>) {
        let Some(at) = stamp.0.checked_sub(self.first_mark).and_then(|at| usize::try_from(at).ok()) else { return };
        if let Some(mark) = self.marks.get_mut(at).and_then(Option::take) {
            self.free.push(mark.event);
        }
        while let Some(None) = self.marks.front() {
            self.marks.pop_front();
            self.first_mark += 1;
        }
        self.farthest = self.farthest.max(resolved.map_or(0, |moment| moment.nanos.unsigned_abs()));
        let spare = self.drop_old_anchors();
        self.free.extend(spare);
    }

    /// Removes the anchors before those that the oldest mark needs. The last one stays.
    fn drop_old_anchors(&mut self) -> Vec<Event> {
        let next = self.first_anchor + self.anchors.len() as u64;
        let oldest = self.marks.iter().flatten().next().map_or(next, |mark| mark.anchors_before).saturating_sub(1);
        let mut dropped = Vec::new();
        while self.first_anchor < oldest {
            dropped.extend(self.anchors.pop_front().map(|anchored| anchored.event));
            self.first_anchor += 1;
        }
        dropped
    }
}

#[cfg(test)]
mod tests;
