//! Device time: marks on a stream that are resolved later, without waiting for the device.
//!
//! The device stamps marks as it works and is never asked for the time. [`DeviceClock`] is the interface of a device's
//! clock, and [`Lane`] attaches such a clock to a track.

use std::fmt;
use std::sync::{
    Arc, PoisonError, RwLock,
    atomic::{AtomicU32, Ordering::Relaxed},
};

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SimulatedDevice;

    fn moment(host: u64, nanos: i64) -> Resolved {
        let anchor = DeviceAnchor { before: Ticks(host), after: Ticks(host) };
        Resolved::At(DeviceMoment { anchor, nanos })
    }

    #[test]
    fn a_mark_is_pending_until_the_device_reaches_it() {
        let device = SimulatedDevice::anchored_at(Ticks(1_000));
        device.submit(500);
        let stamp = device.mark().unwrap();
        device.advance(499);
        assert_eq!(device.resolve(stamp), Resolved::Pending);
        device.advance(1);
        assert_eq!(device.resolve(stamp), moment(1_000, 500));
    }

    #[test]
    fn marks_around_work_measure_the_work_and_not_the_submission() {
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
