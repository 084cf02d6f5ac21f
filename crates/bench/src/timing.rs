//! The timings a device supports, and a clock that can be switched between them.

use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use laptime_probe::{Anchor, DeviceClock, Resolved, Stamp, TickMap};
use laptime_trace::run::{L2, Timing};

use crate::workload::Device;

/// A timing that a device does not support.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device `{device}` does not support timing `{asked}`")]
pub struct TimingError {
    /// The device.
    pub device: String,
    /// The requested timing.
    pub asked: Timing,
    /// The supported timings.
    pub known: Vec<Timing>,
}

/// The requested timing if the device supports it, or the device's default.
pub fn settle_timing(device: &dyn Device, asked: Option<Timing>) -> Result<Timing, TimingError> {
    let known = device.timings();
    match asked {
        None => Ok(known.first().copied().unwrap_or_default()),
        Some(asked) if known.contains(&asked) => Ok(asked),
        Some(asked) => Err(TimingError { device: device.name().to_owned(), asked, known: known.to_vec() }),
    }
}

/// The requested state of the device's L2 cache, or cold; none if the device cannot empty its cache and no state was
/// requested.
pub fn settle_l2(device: &dyn Device, asked: Option<L2>) -> Result<Option<L2>, L2Error> {
    match asked {
        _ if device.has_l2() => Ok(Some(asked.unwrap_or(L2::Cold))),
        None => Ok(None),
        Some(_) => Err(L2Error { device: device.name().to_owned() }),
    }
}

/// A device that cannot empty its cache.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device `{device}` cannot empty its L2 cache, so `--l2` does not apply")]
pub struct L2Error {
    device: String,
}

/// A stream's clock for every timing: `events` marks the stream, `sync` waits for it, `host` and `kernels` do neither.
/// A device with such a clock uses the same lane for every timing.
pub struct SwitchableClock {
    timing: AtomicU8,
    clock: Arc<dyn DeviceClock>,
    synchronise: Box<dyn Fn() + Send + Sync>,
    iteration: Mutex<(Option<Stamp>, Option<Stamp>)>,
}

impl SwitchableClock {
    /// Switches the marks of a clock on and off; `synchronise` waits for its stream.
    pub fn new(clock: Arc<dyn DeviceClock>, synchronise: impl Fn() + Send + Sync + 'static) -> Self {
        let (timing, synchronise) = (AtomicU8::new(0), Box::new(synchronise));
        Self { timing, clock, synchronise, iteration: Mutex::default() }
    }

    /// Sets how stages are timed from here on.
    pub fn set(&self, timing: Timing) {
        let at = Timing::ALL.iter().position(|known| *known == timing).unwrap_or(0);
        self.timing.store(at as u8, Relaxed);
    }

    /// How stages are timed.
    pub fn timing(&self) -> Timing {
        Timing::ALL.get(usize::from(self.timing.load(Relaxed))).copied().unwrap_or_default()
    }

    /// Marks the start of an iteration if the timing is `events`.
    pub fn begin_iteration(&self) {
        if self.timing() == Timing::Events {
            *self.iteration() = (self.mark(), None);
        }
    }

    /// Marks the end of the iteration.
    pub fn end_iteration(&self) {
        if self.timing() == Timing::Events {
            self.iteration().1 = self.mark();
        }
    }

    /// Nanoseconds on the device between the marks of the last iteration.
    pub fn last_iteration(&self) -> Option<u64> {
        let (begin, end) = std::mem::take(&mut *self.iteration());
        nanos_between(self, begin?, end?)
    }

    fn iteration(&self) -> MutexGuard<'_, (Option<Stamp>, Option<Stamp>)> {
        self.iteration.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for SwitchableClock {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SwitchableClock").field("timing", &self.timing()).finish_non_exhaustive()
    }
}

/// With `sync`, it waits when a mark is requested. This is the purpose of that timing, and the reason it is not the
/// default.
impl DeviceClock for SwitchableClock {
    fn mark(&self) -> Option<Stamp> {
        match self.timing() {
            Timing::Events => self.clock.mark(),
            Timing::Sync => {
                (self.synchronise)();
                None
            }
            Timing::Host | Timing::Kernels => None,
        }
    }

    fn resolve(&self, stamp: Stamp) -> Resolved {
        self.clock.resolve(stamp)
    }

    fn anchor(&self) {
        self.clock.anchor();
    }

    fn uncertainty_nanos(&self) -> u64 {
        self.clock.uncertainty_nanos()
    }
}

/// Nanoseconds on the device between two marks; none if unknown. Both marks are resolved, so the clock can forget them.
fn nanos_between(clock: &dyn DeviceClock, from: Stamp, to: Stamp) -> Option<u64> {
    let (Resolved::At(from), Resolved::At(to)) = (clock.resolve(from), clock.resolve(to)) else { return None };
    // Host time passes between two anchors.
    let apart = to.anchor.middle().0 as i64 - from.anchor.middle().0 as i64;
    let apart = if apart == 0 { 0 } else { (apart as f64 * nanos_per_tick()?).round() as i64 };
    u64::try_from(apart.saturating_add(to.nanos).saturating_sub(from.nanos)).ok()
}

/// The duration of a tick of the host's clock; none in the first millisecond.
fn nanos_per_tick() -> Option<f64> {
    static FIRST: OnceLock<Anchor> = OnceLock::new();
    let first = *FIRST.get_or_init(Anchor::take);
    TickMap::new(first, Anchor::take()).map(|map| map.nanos_per_tick())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulated::Simulated;
    use laptime_probe::{SimulatedDevice, Ticks};
    use std::sync::atomic::AtomicU32;

    #[test]
    fn a_device_without_a_clock_is_timed_by_the_host_alone() {
        let device = Simulated::new();
        assert_eq!(settle_timing(&device, None), Ok(Timing::Host));
        let error = settle_timing(&device, Some(Timing::Events)).unwrap_err();
        assert_eq!(error.to_string(), "device `simulated` does not support timing `events`");
        assert_eq!(error.known, [Timing::Host]);
    }

    #[test]
    fn a_device_with_a_clock_is_timed_by_events_unless_asked_otherwise() {
        let device = Simulated::with_clock();
        assert_eq!(settle_timing(&device, None), Ok(Timing::Events));
        assert_eq!(settle_timing(&device, Some(Timing::Sync)), Ok(Timing::Sync));
    }

    #[test]
    fn a_cache_that_can_be_emptied_is_cold_unless_asked_otherwise() {
        let (cpu, gpu) = (Simulated::new(), Simulated::with_clock());
        assert_eq!((settle_l2(&cpu, None), settle_l2(&gpu, None)), (Ok(None), Ok(Some(L2::Cold))));
        assert_eq!(settle_l2(&gpu, Some(L2::Warm)), Ok(Some(L2::Warm)));
        let message = settle_l2(&cpu, Some(L2::Cold)).unwrap_err().to_string();
        assert!(message.starts_with("device `simulated` cannot empty its L2 cache"), "{message}");
    }

    #[test]
    fn only_events_mark_the_stream_and_only_sync_waits_for_it() {
        let (stream, waits) = (Arc::new(SimulatedDevice::anchored_at(Ticks(0))), Arc::new(AtomicU32::new(0)));
        let counted = Arc::clone(&waits);
        let clock = SwitchableClock::new(stream, move || _ = counted.fetch_add(1, Relaxed));
        let marked = Timing::ALL.map(|timing| {
            clock.set(timing);
            clock.mark().is_some()
        });
        assert_eq!((marked, waits.load(Relaxed)), ([false, true, false, false], 1));
    }

    #[test]
    fn the_time_between_marks_is_device_time() {
        let stream = SimulatedDevice::anchored_at(Ticks(0));
        let from = stream.mark().unwrap();
        stream.submit(70);
        let to = stream.mark().unwrap();
        stream.synchronise();
        assert_eq!(nanos_between(&stream, from, to), Some(70));
        assert_eq!(nanos_between(&stream, from, to), None, "a mark is resolved once");
    }
}
