//! The recording modes over time, on CUPTI's clock: records arrive up to a second late.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use crate::control::RecordingMode;

/// Switches that are remembered; records are never as late as the oldest.
const MOST: usize = 64;

/// The last switches: each mode with its beginning.
#[derive(Debug, Default)]
pub struct Modes(Mutex<VecDeque<(u64, RecordingMode)>>);

impl Modes {
    /// Adds a switch.
    pub fn add(&self, since: u64, mode: RecordingMode) {
        let mut modes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if modes.len() == MOST {
            modes.pop_front();
        }
        modes.push_back((since, mode));
    }

    /// The mode at a time. Before the first switch nothing is recorded.
    pub fn at(&self, nanos: u64) -> RecordingMode {
        let modes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let last = modes.iter().rev().find(|(since, _)| *since <= nanos).map(|(_, mode)| *mode);
        last.unwrap_or_else(|| if modes.len() == MOST { modes[0].1 } else { RecordingMode::Nothing })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_that_comes_late_has_the_mode_of_its_own_time() {
        let modes = Modes::default();
        assert_eq!(modes.at(5), RecordingMode::Nothing);
        modes.add(10, RecordingMode::Everything);
        modes.add(20, RecordingMode::Nothing);
        modes.add(30, RecordingMode::Light);
        let found = [9, 10, 19, 20, 30, 1000].map(|nanos| modes.at(nanos));
        use RecordingMode::{Everything, Light, Nothing};
        assert_eq!(found, [Nothing, Everything, Everything, Nothing, Light, Light]);
        (0..2 * MOST as u64).for_each(|at| modes.add(100 + at, Everything));
        assert_eq!(modes.at(5), Everything);
        assert_eq!(modes.0.into_inner().unwrap().len(), MOST);
    }
}
