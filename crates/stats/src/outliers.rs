//! Outliers. They are marked and never dropped.
//!
//! A sample is an outlier if it is further from the median than [`FAR`] robust standard deviations (Iglewicz and
//! Hoaglin's rule; one in two thousand normal samples is). Timings are skewed to the right, so most outliers are high.

use crate::quantile::NotFinite;
use crate::spread::{median, robust_std};

/// The number of robust standard deviations beyond which a sample is an outlier.
pub const FAR: f64 = 3.5;

/// With fewer samples nothing is marked: three of four could be the outliers.
pub const LEAST_SAMPLES: usize = 5;

/// How much slower than the median of the others a first sample must be to be reported as a slow start.
pub const SLOW_START: f64 = 0.05;

/// The position of a sample relative to the others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mark {
    /// Not an outlier.
    Typical,
    /// Far below.
    Low,
    /// Far above.
    High,
}

/// Leading samples that are slower than those after them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SlowStart {
    /// The number of slow samples.
    pub count: usize,
    /// The slowest of them.
    pub slowest: f64,
    /// The median of all samples after them.
    pub rest: f64,
}

/// Marks each sample, in the order given.
///
/// The spread is [`robust_std`], which also works if most samples are equal. If all are equal, there are no outliers.
pub fn marks(samples: &[f64]) -> Result<Vec<Mark>, NotFinite> {
    NotFinite::check(samples)?;
    let fence = Fence::around(samples).filter(|_| samples.len() >= LEAST_SAMPLES);
    Ok(samples.iter().map(|&sample| fence.map_or(Mark::Typical, |fence| fence.mark(sample))).collect())
}

/// Finds leading samples that are slow.
///
/// These are the samples before the first one within the fence of the second half, or within [`SLOW_START`] of its
/// median. `None` if there are none, or with fewer than [`LEAST_SAMPLES`] samples. At most half of the samples are
/// slow.
pub fn slow_start(samples: &[f64]) -> Result<Option<SlowStart>, NotFinite> {
    NotFinite::check(samples)?;
    let later = &samples[samples.len() / 2..];
    let Some(fence) = Fence::around(later).filter(|_| samples.len() >= LEAST_SAMPLES) else { return Ok(None) };
    let limit = (fence.centre + FAR * fence.std).max(fence.centre + SLOW_START * fence.centre.abs());
    let count = samples[..samples.len() / 2].iter().take_while(|&&sample| sample > limit).count();
    let (slow, rest) = samples.split_at(count);
    let slowest = slow.iter().copied().reduce(f64::max);
    Ok(slowest.zip(median(rest)).map(|(slowest, rest)| SlowStart { count, slowest, rest }))
}

#[derive(Debug, Clone, Copy)]
struct Fence {
    centre: f64,
    std: f64,
}

impl Fence {
    fn around(samples: &[f64]) -> Option<Self> {
        Some(Self { centre: median(samples)?, std: robust_std(samples)? })
    }

    fn mark(self, sample: f64) -> Mark {
        let distance = (sample - self.centre).abs();
        if distance <= FAR * self.std {
            return Mark::Typical;
        }
        if sample < self.centre { Mark::Low } else { Mark::High }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Median 13, MAD 1, so the fence is 13 ± 5.19.
    const AROUND_13: [f64; 8] = [12.0, 14.0, 13.0, 12.0, 14.0, 13.0, 12.0, 14.0];

    fn with(sample: f64) -> Mark {
        let samples: Vec<f64> = AROUND_13.into_iter().chain([sample]).collect();
        marks(&samples).unwrap()[8]
    }

    #[test]
    fn samples_are_marked_by_their_distance() {
        let expected =
            [(18.0, Mark::Typical), (19.0, Mark::High), (24.0, Mark::High), (7.0, Mark::Low), (2.0, Mark::Low)];
        for (sample, mark) in expected {
            assert_eq!(with(sample), mark, "{sample}");
        }
    }

    #[test]
    fn equal_samples_are_typical() {
        assert_eq!(marks(&[4.0; 9]).unwrap(), [Mark::Typical; 9]);
    }

    #[test]
    fn one_odd_sample_among_equal_ones_is_marked() {
        let mut samples = [4.0; 20];
        samples[6] = 9.0;
        let found = marks(&samples).unwrap();
        assert_eq!(found.iter().filter(|&&mark| mark != Mark::Typical).count(), 1);
        assert_eq!(found[6], Mark::High);
    }

    #[test]
    fn few_samples_are_never_marked() {
        assert_eq!(marks(&[1.0, 1.1, 1.0, 900.0]).unwrap(), [Mark::Typical; 4]);
        assert_eq!(marks(&[]).unwrap(), []);
    }

    #[test]
    fn an_infinite_sample_is_refused_with_its_index() {
        assert_eq!(marks(&[1.0, f64::INFINITY]), Err(NotFinite { index: 1, value: f64::INFINITY }));
    }

    #[test]
    fn a_slow_first_sample_is_a_slow_start() {
        let samples = [183.0, 12.5, 12.4, 12.3, 12.4, 12.6, 12.4];
        assert_eq!(slow_start(&samples).unwrap(), Some(SlowStart { count: 1, slowest: 183.0, rest: 12.4 }));
    }

    #[test]
    fn a_first_sample_less_than_five_per_cent_slower_is_not_a_slow_start() {
        assert_eq!(slow_start(&[104.0, 100.0, 100.1, 100.0, 100.1, 100.0, 100.1]).unwrap(), None);
    }

    #[test]
    fn a_slow_sample_in_the_middle_is_not_a_slow_start() {
        assert_eq!(slow_start(&[10.0, 90.0, 10.0, 10.0, 10.0, 10.0]).unwrap(), None);
    }

    #[test]
    fn a_start_is_never_longer_than_half() {
        let samples = [9.0, 9.0, 9.0, 9.0, 1.0, 1.0];
        assert_eq!(slow_start(&samples).unwrap().map(|start| start.count), None);
        assert_eq!(slow_start(&[9.0, 9.0, 9.0, 1.0, 1.0, 1.0]).unwrap().map(|start| start.count), Some(3));
    }
}
