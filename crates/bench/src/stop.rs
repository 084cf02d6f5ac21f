//! Stop rules: when a case has been measured enough, and why.

use std::fmt;

use laptime_stats::{Sorted, median_interval};
use laptime_trace::Nanos;
use serde::{Deserialize, Serialize};

/// When sampling stops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// After so many takes.
    Takes(usize),
    /// When the 95 % interval of the median lies within this share of the median, or when time is up.
    Interval {
        /// The share: 0.02 for 2 %.
        within: f64,
        /// The takes without which an interval is not believed.
        at_least: usize,
        /// The time after which sampling stops anyway.
        at_most: Nanos,
    },
}

/// Why sampling stopped; it stands in the result.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The takes asked for were taken.
    Takes(usize),
    /// The interval was narrow enough: it reached this share of the median.
    Narrow {
        /// How far the interval reached.
        reach: f64,
    },
    /// Time was up; the interval still reached this share, if there was one.
    TimeUp {
        /// How far the interval reached.
        reach: Option<f64>,
    },
    /// Somebody asked to stop.
    Interrupted,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Takes(takes) => write!(f, "{takes} takes were asked for"),
            Self::Narrow { reach } => write!(f, "the median is known within {:.1} %", 100.0 * reach),
            Self::TimeUp { reach: Some(reach) } => {
                write!(f, "time was up; the median is known within {:.1} %", 100.0 * reach)
            }
            Self::TimeUp { reach: None } => write!(f, "time was up before there was an interval"),
            Self::Interrupted => write!(f, "it was interrupted"),
        }
    }
}

/// The seed of the intervals that a stop rule looks at; the same samples stop at the same take.
const SEED: u64 = 0x1a97_1ae5;

impl Stop {
    /// Says whether the samples taken so far, in nanoseconds, are enough.
    ///
    /// The interval is looked at when the number of samples has grown by a tenth: looking costs a resampling, and
    /// looking too often finds a narrow one by luck.
    pub fn reason(&self, samples: &[u64], elapsed: Nanos) -> Option<StopReason> {
        match *self {
            Self::Takes(takes) => (samples.len() >= takes).then_some(StopReason::Takes(samples.len())),
            Self::Interval { within, at_least, at_most } => {
                let is_up = elapsed >= at_most;
                if !is_up && (samples.len() < at_least || !is_looked_at(samples.len(), at_least)) {
                    return None;
                }
                match reach(samples) {
                    Some(reach) if reach <= within && samples.len() >= at_least => Some(StopReason::Narrow { reach }),
                    reach => is_up.then_some(StopReason::TimeUp { reach }),
                }
            }
        }
    }
}

/// Whether a number of samples is one of those at which the interval is looked at.
fn is_looked_at(count: usize, at_least: usize) -> bool {
    std::iter::successors(Some(at_least.max(1)), |&at| Some(at + at.div_ceil(10))).find(|&at| at >= count)
        == Some(count)
}

fn reach(samples: &[u64]) -> Option<f64> {
    let sorted = Sorted::<f64>::from_unsorted(samples.iter().map(|&nanos| nanos as f64).collect()).ok()?;
    let median = sorted.median()?;
    median_interval(&sorted, 0.95, SEED)?.reach(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Stop = Stop::Interval { within: 0.02, at_least: 10, at_most: Nanos(1_000_000) };

    #[test]
    fn a_count_stops_at_its_count() {
        assert_eq!(Stop::Takes(3).reason(&[1, 2], Nanos(0)), None);
        assert_eq!(Stop::Takes(3).reason(&[1, 2, 3], Nanos(0)), Some(StopReason::Takes(3)));
    }

    #[test]
    fn steady_samples_stop_as_soon_as_enough_are_there() {
        assert_eq!(RULE.reason(&[100; 9], Nanos(5)), None);
        assert_eq!(RULE.reason(&[100; 10], Nanos(5)), Some(StopReason::Narrow { reach: 0.0 }));
    }

    #[test]
    fn noisy_samples_go_on_until_time_is_up() {
        let noisy: Vec<u64> = (0..10).map(|i| 100 + 37 * i % 101).collect();
        assert_eq!(RULE.reason(&noisy, Nanos(5)), None);
        let Some(StopReason::TimeUp { reach: Some(reach) }) = RULE.reason(&noisy, Nanos(1_000_000)) else {
            panic!("time is up")
        };
        assert!(reach > 0.02);
    }

    #[test]
    fn one_slow_take_that_outlasts_the_time_is_told_without_an_interval() {
        assert_eq!(RULE.reason(&[2_000_000], Nanos(2_000_000)), Some(StopReason::TimeUp { reach: None }));
    }

    #[test]
    fn the_interval_is_looked_at_less_often_as_samples_grow() {
        let looked: Vec<usize> = (1..60).filter(|&count| is_looked_at(count, 10)).collect();
        assert_eq!(looked, [10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37, 41, 46, 51, 57]);
    }
}
