//! Device time: marking a stream without waiting for it, and asking later when the device got there.
//!
//! A device is not asked for the time; it is given marks to stamp as it works. [`DeviceClock`] is what a kind of
//! device must be able to do, [`Lane`] ties such a clock to a track, and [`SimulatedDevice`] is the clock for tests:
//! it moves only when told.

use std::{
    collections::VecDeque,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, RwLock,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use crate::clock::Ticks;

/// A mark that a device was given. Marks of one stream have rising numbers, in the order the device reaches them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Stamp(pub u64);

/// A moment known on the device and, within limits, on the host: taken where both were synchronised anyway.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceAnchor {
    /// Host clock before the device was asked.
    pub before: Ticks,
    /// Host clock after it had answered.
    pub after: Ticks,
}

impl DeviceAnchor {
    /// The host's best guess at the moment.
    pub fn middle(&self) -> Ticks {
        Ticks(self.before.0 + self.after.0.saturating_sub(self.before.0) / 2)
    }
}

/// A moment on the device, told from its nearest anchor: a short distance keeps its precision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceMoment {
    /// The anchor.
    pub anchor: DeviceAnchor,
    /// Nanoseconds after it; negative before it.
    pub nanos: i64,
}

/// What became of a mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolved {
    /// The device has not got there.
    Pending,
    /// The device got there at this moment.
    At(DeviceMoment),
    /// The device will never say (an error, or the clock is gone).
    Never,
}

/// The clock of one stream of a device.
///
/// No method synchronises: the instrument must not add the waits it is there to find.
pub trait DeviceClock: Send + Sync {
    /// Marks the stream's present end. None if no mark can be had; the stage then has no device time.
    fn mark(&self) -> Option<Stamp>;

    /// Asks what became of a mark. Each mark is asked for until the answer is final, and then no more.
    fn resolve(&self, stamp: Stamp) -> Resolved;

    /// Takes an anchor. Called by a pipeline where host and device have been synchronised anyway.
    fn anchor(&self);

    /// How far device times may be off against host times, in nanoseconds.
    fn uncertainty_nanos(&self) -> u64;
}

/// The number of a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LaneId(pub u32);

/// A track beside the threads': a device stream, or a logical track of the host.
#[derive(Debug, Clone)]
pub struct Lane(Arc<LaneState>);

/// What a lane is; shared by the lane, its open stages and the writer.
pub struct LaneState {
    id: LaneId,
    name: String,
    clock: Option<Arc<dyn DeviceClock>>,
}

/// Lanes by number. One that nobody holds stays known while anything records: its stages may still be in a buffer.
static LANES: RwLock<Vec<Arc<LaneState>>> = RwLock::new(Vec::new());
static LAST_LANE: AtomicU32 = AtomicU32::new(0);

impl Lane {
    /// A lane of the host: stages on it are timed by the host clock and drawn on a track of their own.
    pub fn host(name: &str) -> Self {
        Self::register(name, None)
    }

    /// A lane of a device: stages on it are timed by the host clock and by the device's.
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

    /// The device's clock, if the lane is a device's.
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
    /// Marks the stream; zero stands for no mark.
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

/// A device that exists in numbers alone, with one stream: for tests with exact times.
///
/// Work is put on the stream with [`SimulatedDevice::submit`] and done when [`SimulatedDevice::advance`] moves the
/// clock past it.
#[derive(Debug, Default)]
pub struct SimulatedDevice(Mutex<Simulation>);

#[derive(Debug, Default)]
struct Simulation {
    /// Device time, in nanoseconds.
    now: u64,
    /// When the work submitted so far will be done.
    busy_until: u64,
    last_stamp: u64,
    /// Marks and the device times at which they are reached.
    marks: VecDeque<(Stamp, u64)>,
    /// Anchors with the device time they were taken at.
    anchors: Vec<(DeviceAnchor, u64)>,
    uncertainty: u64,
}

impl SimulatedDevice {
    /// A device at time zero, anchored to the host time `host` with no uncertainty.
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

    /// Lets the device's time go on.
    pub fn advance(&self, nanos: u64) {
        self.state().now += nanos;
    }

    /// Lets the device finish everything submitted, and says at what time it does.
    pub fn synchronise(&self) -> u64 {
        let mut state = self.state();
        state.now = state.now.max(state.busy_until);
        state.now
    }

    /// When the work submitted so far will be done, or the present time if it is.
    pub fn busy_until(&self) -> u64 {
        let state = self.state();
        state.busy_until.max(state.now)
    }

    /// Takes an anchor of the present device time at given host times.
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
