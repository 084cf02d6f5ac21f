//! The summary of a case's samples.

use crate::bootstrap::median_interval;
use crate::interval::Interval;
use crate::quantile::Sorted;

/// The default confidence level.
pub const LEVEL: f64 = 0.95;

/// The figures that describe a set of samples.
///
/// ```
/// use laptime_stats::{Sorted, Summary};
///
/// let laps = Sorted::<f64>::from_unsorted(vec![10.0, 12.0, 11.0]).unwrap();
/// let summary = Summary::of(&laps, 7).unwrap();
/// assert_eq!((summary.median, summary.std), (11.0, Some(1.0)));
/// assert_eq!(summary.p99, None);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    /// The number of samples.
    pub n: usize,
    /// The middle sample.
    pub median: f64,
    /// The 95 % interval of the median; `None` with fewer than six samples.
    pub median_interval: Option<Interval>,
    /// The mean.
    pub mean: f64,
    /// The sample standard deviation (n - 1); `None` for one sample.
    pub std: Option<f64>,
    /// The standard deviation as a share of the mean; `None` if the mean is 0.
    pub variation: Option<f64>,
    /// The smallest sample.
    pub min: f64,
    /// The largest sample.
    pub max: f64,
    /// The quantile 0.05, with 20 samples or more.
    pub p5: Option<f64>,
    /// The quantile 0.95, with 20 samples or more.
    pub p95: Option<f64>,
    /// The quantile 0.99, with 100 samples or more.
    pub p99: Option<f64>,
}

impl Summary {
    /// Summarises the samples; `None` if there are none.
    ///
    /// A tail quantile is given only if at least one sample is expected beyond it. With fewer samples it would just be
    /// the largest one.
    pub fn of(samples: &Sorted<f64>, seed: u64) -> Option<Self> {
        let mean = mean(samples.as_slice());
        let std = std(samples.as_slice(), mean);
        Some(Self {
            n: samples.len(),
            median: samples.median()?,
            median_interval: median_interval(samples, LEVEL, seed),
            mean,
            std,
            variation: std.filter(|_| mean != 0.0).map(|std| std / mean.abs()),
            min: samples.min()?,
            max: samples.max()?,
            p5: tail(samples, 5),
            p95: tail(samples, 95),
            p99: tail(samples, 99),
        })
    }
}

fn tail(samples: &Sorted<f64>, percent: u8) -> Option<f64> {
    let beyond = usize::from(percent.min(100 - percent));
    if samples.len() * beyond < 100 { None } else { samples.p(percent) }
}

fn mean(samples: &[f64]) -> f64 {
    samples.iter().sum::<f64>() / samples.len() as f64
}

fn std(samples: &[f64], mean: f64) -> Option<f64> {
    if samples.len() < 2 {
        return None;
    }
    let squares: f64 = samples.iter().map(|sample| (sample - mean).powi(2)).sum();
    Some((squares / (samples.len() - 1) as f64).sqrt())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(samples: impl IntoIterator<Item = f64>) -> Option<Summary> {
        Summary::of(&Sorted::<f64>::from_unsorted(samples.into_iter().collect()).unwrap(), 1)
    }

    fn counting_to(n: u32) -> Summary {
        summary((1..=n).map(f64::from)).unwrap()
    }

    #[test]
    fn no_samples_have_no_summary() {
        assert_eq!(summary([]), None);
    }

    #[test]
    fn one_sample_has_a_median_and_no_spread() {
        let one = summary([4.0]).unwrap();
        assert_eq!((one.n, one.median, one.mean, one.min, one.max), (1, 4.0, 4.0, 4.0, 4.0));
        assert_eq!((one.std, one.variation, one.median_interval), (None, None, None));
    }

    #[test]
    fn the_standard_deviation_divides_by_one_less_than_the_count() {
        assert_eq!(summary([1.0, 3.0]).unwrap().std, Some(2_f64.sqrt()));
    }

    #[test]
    fn samples_around_zero_have_no_variation() {
        assert_eq!(summary([-1.0, 1.0]).unwrap().variation, None);
    }

    #[test]
    fn the_fifth_percentiles_need_twenty_samples() {
        assert_eq!((counting_to(19).p5, counting_to(19).p95), (None, None));
        assert!(counting_to(20).p5.is_some() && counting_to(20).p95.is_some());
    }

    #[test]
    fn the_ninety_ninth_percentile_needs_a_hundred_samples() {
        assert_eq!(counting_to(99).p99, None);
        assert_eq!(counting_to(101).p99, Some(100.0));
    }

    #[test]
    fn fewer_than_six_samples_have_no_interval() {
        assert_eq!(counting_to(5).median_interval, None);
        assert_eq!(counting_to(6).median_interval.map(|i| i.level), Some(0.95));
    }
}
