//! Device time: marks on a stream that are resolved later, without waiting for the device.
//!
//! A device is not asked for the time; it stamps marks as it works. [`DeviceClock`] is the interface of a device's
//! clock, [`Lane`] attaches such a clock to a track, and [`SimulatedDevice`] is a clock for tests that only advances on
//! request.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError, RwLock,
    atomic::{AtomicU32, Ordering::Relaxed},
};
use std::{collections::VecDeque, fmt};

use crate::clock::Ticks;

/// A mark on a device's stream. Marks of one stream have increasing numbers, in the order in which the device reaches
/// them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// A moment known on the device and, within limits, on the host, taken when both were synchronised anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAnchor {
    /// Host clock before the device was queried.
    pub before: Ticks,
    /// Host clock after the device answered.
    pub after: Ticks,
}

impl DeviceAnchor {
    /// The host's best estimate of the moment.
    pub fn middle(&self) -> Ticks {
        Ticks(self.before.0 + self.after.0.saturating_sub(self.before.0) / 2)
    }
}

/// A moment on the device, relative to its nearest anchor: a short distance keeps its precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMoment {
    /// The anchor.
    pub anchor: DeviceAnchor,
    /// Nanoseconds after it; negative before it.
    pub nanos: i64,
}

/// The state of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The device has not reached it.
    Pending,
    /// The device reached it at this moment.
    At(DeviceMoment),
    /// It will never be resolved (an error, or the clock is gone).
    Never,
}

/// The clock of one stream of a device.
///
/// No method synchronises: the profiler must not add the syncs it is meant to find.
pub trait DeviceClock: Send + Sync {
    /// Marks the current end of the stream. None if no mark is available; the stage then has no device time.
    fn mark(&self) -> Option<Stamp>;

    /// Queries a mark. Each mark is queried until the answer is final, and not afterwards.
    fn resolve(&self, stamp: Stamp) -> Resolved;

    /// Takes an anchor. A pipeline calls this after it has synchronised host and device.
    fn anchor(&self);

    /// The maximum error of device times relative to host times, in nanoseconds.
    fn uncertainty_nanos(&self) -> u64;
}

/// The number of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// A track in addition to the threads: a device stream, or a logical track of the host.
#[derive(Debug, Clone)]
pub struct Lane(Arc<LaneState>);

/// The data of a lane, shared by the lane, its open stages and the writer.
pub struct LaneState {
    id: LaneId,
    name: String,
    clock: Option<Arc<dyn DeviceClock>>,
}

/// Lanes by number. A dropped lane stays registered while anything records: its stages may still be in a buffer.
static LANES: RwLock<Vec<Arc<LaneState>>> = RwLock::new(Vec::new());
static LAST_LANE: AtomicU32 = AtomicU32::new(0);

impl Lane {
    /// A host lane: its stages are timed by the host clock and drawn on a separate track.
    pub fn host(name: &str) -> Self {
        Self::register(name, None)
    }

    /// A device lane: its stages are timed by the host clock and the device clock.
    pub fn device(name: &str, clock: Arc<dyn DeviceClock>) -> Self {
        Self::register(name, Some(clock))
    }

    fn register(name: &str, clock: Option<Arc<dyn DeviceClock>>) -> Self {
        let id = LaneId(LAST_LANE.fetch_add(1, Relaxed) + 1);
        let state = Arc::new(LaneState { id, name: name.to_owned(), clock });
        let mut lanes = LANES.write().unwrap_or_else(PoisonError::into_inner);
        if !crate::recording() {
            lanes.retain(|known| Arc::strong_count(known) > 1);
        }
        lanes.push(Arc::clone(&state));
        Self(state)
    }

    /// The lane's number.
    pub fn id(&self) -> LaneId {
        self.0.id
    }

    /// The lane's name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The device clock, if it is a device lane.
    pub fn clock(&self) -> Option<&Arc<dyn DeviceClock>> {
        self.0.clock.as_ref()
    }

    pub(crate) fn state(&self) -> &Arc<LaneState> {
        &self.0
    }
}

/// Finds a lane by its number.
pub fn lane(id: LaneId) -> Option<Lane> {
    let lanes = LANES.read().unwrap_or_else(PoisonError::into_inner);
    lanes.iter().rev().find(|known| known.id == id).map(|state| Lane(Arc::clone(state)))
}

impl LaneState {
    /// Marks the stream; zero means no mark.
    pub(crate) fn mark(&self) -> u64 {
        self.clock.as_ref().and_then(|clock| clock.mark()).map_or(0, |stamp| stamp.0)
    }

    pub(crate) fn with_site(&self, site: u32) -> u64 {
        (u64::from(self.id.0) << 32) | u64::from(site)
    }
}

impl fmt::Debug for LaneState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaneState")
            .field("id", &self.id)
            .field("name", &self.name)
            .field("has_clock", &self.clock.is_some())
            .finish()
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn moment(host: u64, nanos: i64) -> Resolved {
        let anchor = DeviceAnchor { before: Ticks(host), after: Ticks(host) };
        Resolved::At(DeviceMoment { anchor, nanos })
    }

    #[test]
    fn a_mark_is_pending_until_the_device_gets_there() {
        let device = SimulatedDevice::anchored_at(Ticks(1_000));
        device.submit(500);
        let stamp = device.mark().unwrap();
        device.advance(499);
        assert_eq!(device.resolve(stamp), Resolved::Pending);
        device.advance(1);
        assert_eq!(device.resolve(stamp), moment(1_000, 500));
    }

    #[test]
    fn marks_around_work_measure_the_work_and_not_the_submitting() {
        let device = SimulatedDevice::anchored_at(Ticks(0));
        device.submit(100);
        let (begin, end) = (device.mark().unwrap(), {
            device.submit(40);
            device.mark().unwrap()
        });
        device.synchronise();
        assert_eq!((device.resolve(begin), device.resolve(end)), (moment(0, 100), moment(0, 140)));
    }

    #[test]
    fn a_time_is_reported_from_the_nearest_anchor() {
        let device = SimulatedDevice::anchored_at(Ticks(0));
        device.advance(1_000_000);
        device.anchor_between(Ticks(7_000), Ticks(7_000));
        device.submit(10);
        let stamp = device.mark().unwrap();
        device.synchronise();
        assert_eq!(device.resolve(stamp), moment(7_000, 10));
    }

    #[test]
    fn a_lane_is_found_by_its_number() {
        let lane_here = Lane::host("stream 7");
        assert_eq!(lane(lane_here.id()).unwrap().name(), "stream 7");
        assert!(lane(LaneId(u32::MAX)).is_none());
    }
}
