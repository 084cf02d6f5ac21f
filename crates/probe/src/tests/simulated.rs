//! A simulated device for tests with exact times; its clock only advances on request.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::clock::Ticks;
use crate::device::{DeviceAnchor, DeviceClock, DeviceMoment, Resolved, Stamp};

/// A simulated device with one stream, for tests with exact times.
///
/// [`SimulatedDevice::submit`] puts work on the stream; it is done when [`SimulatedDevice::advance`] moves the clock
/// past it.
#[derive(Debug, Default)]
pub struct SimulatedDevice(Mutex<Simulation>);

#[derive(Debug, Default)]
struct Simulation {
    /// Device time, in nanoseconds.
    now: u64,
    /// When the submitted work will be done.
    busy_until: u64,
    last_stamp: u64,
    /// Marks and the device times at which they are reached.
    marks: VecDeque<(Stamp, u64)>,
    /// Anchors with the device time they were taken at.
    anchors: Vec<(DeviceAnchor, u64)>,
    uncertainty: u64,
}

impl SimulatedDevice {
    /// A device at time zero, anchored to the host time `host` without uncertainty.
    pub fn anchored_at(host: Ticks) -> Self {
        let device = Self::default();
        device.state().anchors.push((DeviceAnchor { before: host, after: host }, 0));
        device
    }

    /// Puts work of this length on the stream.
    pub fn submit(&self, nanos: u64) {
        let mut state = self.state();
        state.busy_until = state.busy_until.max(state.now) + nanos;
    }

    /// Advances the device time.
    pub fn advance(&self, nanos: u64) {
        self.state().now += nanos;
    }

    /// Finishes all submitted work and returns the device time.
    pub fn synchronise(&self) -> u64 {
        let mut state = self.state();
        state.now = state.now.max(state.busy_until);
        state.now
    }

    /// When the submitted work will be done, or the current time if it is done.
    pub fn busy_until(&self) -> u64 {
        let state = self.state();
        state.busy_until.max(state.now)
    }

    /// Takes an anchor of the current device time at given host times.
    pub fn anchor_between(&self, before: Ticks, after: Ticks) {
        let mut state = self.state();
        let now = state.now;
        state.anchors.push((DeviceAnchor { before, after }, now));
        state.uncertainty = state.uncertainty.max(after.0.saturating_sub(before.0) / 2);
    }

    fn state(&self) -> MutexGuard<'_, Simulation> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl DeviceClock for SimulatedDevice {
    fn mark(&self) -> Option<Stamp> {
        let mut state = self.state();
        state.last_stamp += 1;
        let stamp = Stamp(state.last_stamp);
        let reached = state.busy_until.max(state.now);
        state.marks.push_back((stamp, reached));
        Some(stamp)
    }

    fn resolve(&self, stamp: Stamp) -> Resolved {
        let mut state = self.state();
        let Some(at) = state.marks.iter().position(|(known, _)| *known == stamp) else { return Resolved::Never };
        let (_, reached) = state.marks[at];
        if reached > state.now {
            return Resolved::Pending;
        }
        state.marks.remove(at);
        let nearest = state.anchors.iter().min_by_key(|(_, taken)| taken.abs_diff(reached));
        nearest.map_or(Resolved::Never, |&(anchor, taken)| {
            Resolved::At(DeviceMoment { anchor, nanos: reached as i64 - taken as i64 })
        })
    }

    fn anchor(&self) {
        let before = crate::clock::now();
        self.anchor_between(before, crate::clock::now());
    }

    fn uncertainty_nanos(&self) -> u64 {
        self.state().uncertainty
    }
}
