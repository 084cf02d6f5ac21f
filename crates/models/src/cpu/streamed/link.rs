//! The link that a file stands behind: how long a copy takes at least.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::ModelError;

/// A sleep ends late by about this much, so that the last bit is waited out awake.
const AWAKE: Duration = Duration::from_micros(100);

/// A link with this bandwidth in GB/s, or as fast as the file if none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link(Option<f64>);

impl Link {
    pub fn new(gbps: Option<f64>) -> Result<Self, ModelError> {
        match gbps {
            Some(speed) if !(speed.is_finite() && speed > 0.0) => {
                let reason = format!("`{speed}` GB/s is no speed of a link: it must be above 0");
                Err(ModelError::Refused(reason))
            }
            _ => Ok(Self(gbps)),
        }
    }

    /// What is left of the least time of a copy when so much of it has passed.
    pub fn rest(self, bytes: u64, passed: Duration) -> Duration {
        let Some(gbps) = self.0 else { return Duration::ZERO };
        let least = Duration::try_from_secs_f64(bytes as f64 / (gbps * 1e9)).unwrap_or(Duration::MAX);
        least.saturating_sub(passed)
    }

    /// Waits until a copy that began then has taken its least time, or until it is no longer wanted.
    pub fn hold(self, bytes: u64, began: Instant, is_over: &AtomicBool) {
        loop {
            let rest = self.rest(bytes, began.elapsed());
            if rest.is_zero() || is_over.load(Relaxed) {
                return;
            }
            match rest.checked_sub(AWAKE).filter(|sleep| !sleep.is_zero()) {
                // Whoever says that it is over wakes this thread.
                Some(sleep) => thread::park_timeout(sleep),
                None => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_takes_its_bytes_by_the_speed_of_the_link() {
        let link = Link::new(Some(2.0)).unwrap();
        let nanos = |bytes, passed| link.rest(bytes, Duration::from_nanos(passed)).as_nanos();
        assert_eq!((nanos(4000, 0), nanos(4000, 500), nanos(4000, 2000), nanos(4000, 9000)), (2000, 1500, 0, 0));
        assert_eq!(Link::new(None).unwrap().rest(u64::MAX, Duration::ZERO), Duration::ZERO);
        let slowest = Link::new(Some(f64::MIN_POSITIVE)).unwrap();
        assert_eq!(slowest.rest(u64::MAX, Duration::ZERO), Duration::MAX);
    }

    #[test]
    fn what_is_no_speed_is_refused() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Link::new(Some(speed)).unwrap_err().to_string();
            assert_eq!(error, format!("`{speed}` GB/s is no speed of a link: it must be above 0"));
        }
    }

    #[test]
    fn a_copy_that_is_no_longer_wanted_is_not_waited_for() {
        let slowest = Link::new(Some(1e-9)).unwrap();
        slowest.hold(u64::MAX, Instant::now(), &AtomicBool::new(true));
    }
}
