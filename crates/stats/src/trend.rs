//! Trends: whether values rise or fall, and how fast.
//!
//! Used on a series that seems steady: a slow drift has no change point.

use crate::spread::median;

/// The maximum number of medians of neighbours through which a line is fitted, since the cost is quadratic.
const MOST_POINTS: usize = 200;

/// Returns the median slope between all pairs of values at unit distance. `None` for fewer than two. The cost is
/// quadratic.
pub fn theil_sen(values: &[f64]) -> Option<f64> {
    let slopes: Vec<f64> = pairs(values).map(|(steps, rise)| rise / steps as f64).collect();
    median(&slopes)
}

/// Returns the Mann-Kendall statistic for a trend, in standard deviations of its value without a trend; above 0 if
/// values rise. Corrected for ties and continuity. 0 for equal values. The cost is quadratic.
pub fn mann_kendall(values: &[f64]) -> f64 {
    let score: f64 = pairs(values).map(|(_, rise)| if rise == 0.0 { 0.0 } else { rise.signum() }).sum();
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let weight = |n: usize| (n * n.saturating_sub(1) * (2 * n + 5)) as f64;
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| weight(tied.len())).sum();
    let variance = (weight(values.len()) - ties) / 18.0;
    if variance > 0.0 && score != 0.0 { (score - score.signum()) / variance.sqrt() } else { 0.0 }
}

/// Returns the distance and the rise for every pair of values.
fn pairs(values: &[f64]) -> impl Iterator<Item = (usize, f64)> + '_ {
    let from = move |at: usize| {
        let later = values[at + 1..].iter().zip(1..);
        later.map(move |(value, steps)| (steps, value - values[at]))
    };
    (0..values.len()).flat_map(from)
}

/// A straight line that is robust against outliers.
///
/// It is fitted to medians of neighbours, at most [`MOST_POINTS`], and runs from the first sample to the last.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Line {
    points: Vec<f64>,
    start: f64,
    rise: f64,
}

impl Line {
    pub(crate) fn through(part: &[f64]) -> Self {
        let block = part.len().div_ceil(MOST_POINTS).max(1);
        let points: Vec<f64> = part.chunks_exact(block).filter_map(median).collect();
        let slope = theil_sen(&points).unwrap_or(0.0);
        let level: Vec<f64> = points.iter().zip(0..).map(|(point, at)| point - slope * f64::from(at)).collect();
        let rise = slope * points.len().saturating_sub(1) as f64;
        Self { start: median(&level).unwrap_or(0.0), rise, points }
    }

    /// Returns the medians of neighbours to which the line was fitted.
    pub(crate) fn points(&self) -> &[f64] {
        &self.points
    }

    /// Returns how much higher the line ends than it begins.
    pub(crate) fn rise(&self) -> f64 {
        self.rise
    }

    /// Returns the sum of the distances of the samples from the line.
    pub(crate) fn distance(&self, part: &[f64]) -> f64 {
        let step = self.rise / part.len().saturating_sub(1).max(1) as f64;
        part.iter().enumerate().map(|(at, sample)| (sample - self.start - step * at as f64).abs()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_straight_line_has_its_own_slope() {
        assert_eq!(theil_sen(&[1.0, 3.0, 5.0, 7.0]), Some(2.0));
    }

    #[test]
    fn an_outlier_does_not_change_the_slope() {
        assert_eq!(theil_sen(&[1.0, 2.0, 3.0, 4.0, 900.0, 6.0, 7.0]), Some(1.0));
    }

    #[test]
    fn one_value_has_no_slope_and_no_trend() {
        assert_eq!((theil_sen(&[1.0]), mann_kendall(&[1.0])), (None, 0.0));
    }

    #[test]
    fn equal_values_have_no_trend() {
        assert_eq!(mann_kendall(&[4.0; 10]), 0.0);
    }

    // Score 10, variance 5 · 4 · 15 / 18.
    #[test]
    fn five_rising_values_are_two_deviations_from_none() {
        assert!((mann_kendall(&[1.0, 2.0, 3.0, 4.0, 5.0]) - 9.0 / (300.0_f64 / 18.0).sqrt()).abs() < 1e-12);
    }

    #[test]
    fn a_line_lies_on_samples_that_lie_on_a_line() {
        let samples: Vec<f64> = (0..1000).map(f64::from).collect();
        let line = Line::through(&samples[..150]);
        assert_eq!((line.rise(), line.distance(&samples[..150])), (149.0, 0.0));
    }
}
