//! Stop rules: when a case has been measured long enough, and why.

use laptime_stats::{Sorted, median_interval};
use laptime_trace::run::{Stop, StopReason};

/// The maximum number of iterations per case, unless more were requested: every iteration is stored, and short ones
/// would fill the disk.
pub(crate) const MOST_ITERATIONS: usize = 100_000;

/// The seed of the intervals that a stop rule checks, so that the same samples always stop at the same iteration.
const SEED: u64 = 0x1a97_1ae5;

/// Returns whether the samples so far, in nanoseconds, are enough after this measuring time.
///
/// The interval is checked when the number of samples has grown by a tenth. A check costs a resampling, and frequent
/// checks would stop on a narrow interval by chance.
pub fn reason_to_stop(rule: &Stop, samples: &[u64], elapsed_ns: u64) -> Option<StopReason> {
    match *rule {
        Stop::Iterations(iterations) => (samples.len() >= iterations).then_some(StopReason::Iterations(samples.len())),
        Stop::Interval { within, at_least, least_ns, at_most_ns } => {
            if samples.len() >= MOST_ITERATIONS {
                return Some(StopReason::MaxIterations(samples.len()));
            }
            let is_up = elapsed_ns >= at_most_ns;
            let is_enough = samples.len() >= at_least && elapsed_ns >= least_ns;
            if !(is_up || is_enough && is_looked_at(samples.len(), at_least)) {
                return None;
            }
            match half_width(samples) {
                Some(half_width) if half_width <= within && is_enough => {
                    Some(StopReason::NarrowInterval { half_width })
                }
                half_width => is_up.then_some(StopReason::MaxTime { half_width }),
            }
        }
    }
}

/// Whether the interval is checked at this number of samples.
pub(crate) fn is_looked_at(count: usize, at_least: usize) -> bool {
    std::iter::successors(Some(at_least.max(1)), |&at| Some(at + at.div_ceil(10))).find(|&at| at >= count)
        == Some(count)
}

/// The longer side of the median's interval, as a share of the median.
pub(crate) fn half_width(samples: &[u64]) -> Option<f64> {
    let sorted = Sorted::<f64>::from_unsorted(samples.iter().map(|&nanos| nanos as f64).collect()).ok()?;
    let median = sorted.median()?;
    median_interval(&sorted, 0.95, SEED)?.half_width(median)
}

#[cfg(test)]
mod tests {
    use super::*;

    const RULE: Stop = Stop::Interval { within: 0.02, at_least: 10, least_ns: 500, at_most_ns: 1_000_000 };

    #[test]
    fn a_fixed_number_of_iterations_stops_there() {
        assert_eq!(reason_to_stop(&Stop::Iterations(3), &[1, 2], 3), None);
        assert_eq!(reason_to_stop(&Stop::Iterations(3), &[1, 2, 3], 6), Some(StopReason::Iterations(3)));
    }

    #[test]
    fn steady_samples_stop_at_the_minimum() {
        assert_eq!(reason_to_stop(&RULE, &[100; 9], 900), None);
        assert_eq!(reason_to_stop(&RULE, &[100; 10], 1000), Some(StopReason::NarrowInterval { half_width: 0.0 }));
    }

    #[test]
    fn a_narrow_interval_waits_for_the_minimum_time() {
        assert_eq!(reason_to_stop(&RULE, &[10; 10], 100), None);
        assert_eq!(reason_to_stop(&RULE, &[10; 51], 510), Some(StopReason::NarrowInterval { half_width: 0.0 }));
    }

    #[test]
    fn noisy_samples_continue_until_the_maximum_time() {
        let noisy: Vec<u64> = (0..10).map(|i| 100 + 37 * i % 101).collect();
        assert_eq!(reason_to_stop(&RULE, &noisy, 1500), None);
        let Some(StopReason::MaxTime { half_width: Some(half_width) }) = reason_to_stop(&RULE, &noisy, 1_000_000)
        else {
            panic!("time is up")
        };
        assert!(half_width > 0.02);
    }

    #[test]
    fn one_iteration_beyond_the_maximum_time_has_no_interval() {
        assert_eq!(reason_to_stop(&RULE, &[2_000_000], 2_000_000), Some(StopReason::MaxTime { half_width: None }));
    }

    #[test]
    fn iterations_of_zero_time_stop_at_the_maximum_number() {
        assert_eq!(reason_to_stop(&RULE, &vec![0; MOST_ITERATIONS - 1], 0), None);
        assert_eq!(
            reason_to_stop(&RULE, &vec![0; MOST_ITERATIONS], 0),
            Some(StopReason::MaxIterations(MOST_ITERATIONS))
        );
    }

    #[test]
    fn the_interval_is_checked_less_often_as_samples_grow() {
        let looked: Vec<usize> = (1..60).filter(|&count| is_looked_at(count, 10)).collect();
        assert_eq!(looked, [10, 11, 13, 15, 17, 19, 21, 24, 27, 30, 33, 37, 41, 46, 51, 57]);
    }
}
