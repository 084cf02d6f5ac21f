//! Change points: where the level of a series changes.
//!
//! The series is cut so that the squared distances from the mean of each segment, in units of the noise, plus a penalty
//! for each cut, are minimal (optimal partitioning, Jackson and others 2005). Three rules avoid false cuts in benchmark
//! timings: the noise is measured between neighbours with a robust estimate, single spikes are clipped first, and a
//! level must last [`LEAST_SEGMENT`] samples.

use crate::quantile::NotFinite;
use crate::spread::{mad, median, median_in_place, robust_std};

/// The minimum number of samples in a level.
pub const LEAST_SEGMENT: usize = 5;

/// The cost of a cut, times the logarithm of the number of samples. Textbooks use 2 or 3 for independent noise;
/// consecutive iterations are too strongly correlated for that.
pub const PENALTY: f64 = 4.0;

/// Longer series are reduced to this number of medians of neighbours.
pub const MOST_POINTS: usize = 2000;

/// The number of neighbours on either side that decide whether a sample is a spike.
const NEIGHBOURS: usize = 3;

/// The distance at which samples are no longer correlated.
const APART: usize = 4;

/// The strongest correlation between neighbours that is corrected for; a level that changes constantly looks like a
/// stronger one.
const MOST_TOGETHER: f64 = 0.6;

/// The number of standard deviations of the noise beyond which a sample is clipped.
const SPIKE: f64 = 3.5;

/// Returns where each new level begins, ascending, without the first level at 0. Empty if the level never changes.
///
/// In a series longer than [`MOST_POINTS`], positions are exact to the number of samples that share a median. The cost
/// is quadratic up to that length.
pub fn change_points(samples: &[f64]) -> Result<Vec<usize>, NotFinite> {
    NotFinite::check(samples)?;
    let block = samples.len().div_ceil(MOST_POINTS).max(1);
    let points: Vec<f64> = samples.chunks(block).filter_map(median).collect();
    let Some(noise) = noise(&points) else { return Ok(Vec::new()) };
    let cuts = least_cost_cuts(&clipped(&points, noise), noise);
    Ok(cuts.into_iter().map(|cut| cut * block).collect())
}

/// Returns the standard deviation of the noise around the level, corrected for correlation as it applies to a mean.
/// `None` if all values are equal or there are too few for two levels.
///
/// Consecutive iterations are correlated. With a correlation of φ, neighbours differ by √(1 - φ) less than samples that
/// are [`APART`], and the mean of many samples varies by √((1 + φ) / (1 - φ)) more than with independent ones.
fn noise(points: &[f64]) -> Option<f64> {
    let (min, max) = points.iter().fold((f64::INFINITY, f64::NEG_INFINITY), |(min, max), &p| (p.min(min), p.max(max)));
    if points.len() < 2 * LEAST_SEGMENT || min == max {
        return None;
    }
    let neighbours = steps(points, 1);
    let (near, far) = (mad(&neighbours)?, mad(&steps(points, APART))?);
    let together = if near > 0.0 { (1.0 - (near / far).powi(2)).clamp(0.0, MOST_TOGETHER) } else { 0.0 };
    let counted = (1.0 + together).sqrt() / (1.0 - together);
    let noise = counted * robust_std(&neighbours)? / 2_f64.sqrt();
    // A ramp without noise has steps without spread.
    Some(noise.max(1e-9 * (max - min)))
}

fn steps(points: &[f64], apart: usize) -> Vec<f64> {
    points.iter().zip(&points[apart..]).map(|(early, late)| late - early).collect()
}

fn clipped(points: &[f64], noise: f64) -> Vec<f64> {
    let clip = |at: usize| {
        let window = at.saturating_sub(NEIGHBOURS)..(at + NEIGHBOURS + 1).min(points.len());
        let local = median_in_place(&mut points[window].to_vec()).unwrap_or(points[at]);
        points[at].clamp(local - SPIKE * noise, local + SPIKE * noise)
    };
    (0..points.len()).map(clip).collect()
}

fn least_cost_cuts(points: &[f64], noise: f64) -> Vec<usize> {
    let n = points.len();
    let (cost, penalty) = (Cost::new(points, noise), PENALTY * (n as f64).ln());
    let mut least = vec![f64::INFINITY; n + 1];
    let mut last_cut = vec![0; n + 1];
    least[0] = 0.0;
    for end in LEAST_SEGMENT..=n {
        for start in 0..=end - LEAST_SEGMENT {
            let total = least[start] + penalty + cost.of(start, end);
            if total < least[end] {
                (least[end], last_cut[end]) = (total, start);
            }
        }
    }
    cuts_back_from(n, &last_cut)
}

fn cuts_back_from(end: usize, last_cut: &[usize]) -> Vec<usize> {
    let mut cuts: Vec<usize> = std::iter::successors(Some(last_cut[end]), |&cut| (cut > 0).then(|| last_cut[cut]))
        .filter(|&cut| cut > 0)
        .collect();
    cuts.reverse();
    cuts
}

/// Squared distances from the mean of any range, from running sums.
struct Cost {
    sums: Vec<f64>,
    squares: Vec<f64>,
}

impl Cost {
    fn new(points: &[f64], noise: f64) -> Self {
        let centre = median(points).unwrap_or(0.0);
        let (mut sums, mut squares) = (vec![0.0], vec![0.0]);
        for (at, point) in points.iter().enumerate() {
            let distance = (point - centre) / noise;
            sums.push(sums[at] + distance);
            squares.push(squares[at] + distance * distance);
        }
        Self { sums, squares }
    }

    fn of(&self, start: usize, end: usize) -> f64 {
        let sum = self.sums[end] - self.sums[start];
        self.squares[end] - self.squares[start] - sum * sum / (end - start) as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn levels(levels: &[(f64, usize)]) -> Vec<f64> {
        levels.iter().flat_map(|&(level, times)| std::iter::repeat_n(level, times)).collect()
    }

    fn cuts(series: &[(f64, usize)]) -> Vec<usize> {
        change_points(&levels(series)).unwrap()
    }

    #[test]
    fn a_level_that_never_changes_has_no_change_points() {
        assert_eq!(cuts(&[(5.0, 50)]), []);
        assert_eq!(cuts(&[]), []);
    }

    #[test]
    fn each_new_level_begins_at_a_change_point() {
        assert_eq!(cuts(&[(20.0, 12), (10.0, 20), (13.0, 9)]), [12, 32]);
    }

    #[test]
    fn a_spike_is_not_a_level() {
        assert_eq!(cuts(&[(10.0, 20), (90.0, 1), (10.0, 20)]), []);
    }

    #[test]
    fn a_series_too_short_for_two_levels_has_no_change_points() {
        assert_eq!(cuts(&[(20.0, 4), (10.0, 5)]), []);
        assert_eq!(cuts(&[(20.0, 5), (10.0, 5)]), [5]);
    }

    #[test]
    fn a_long_series_is_cut_between_blocks() {
        assert_eq!(cuts(&[(20.0, 30_000), (10.0, 70_000)]), [30_000]);
    }

    #[test]
    fn a_nan_is_refused() {
        assert!(change_points(&[1.0, f64::NAN]).is_err());
    }
}
