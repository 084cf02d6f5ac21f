//! The cost of one variant relative to another, from alternating iterations.
//!
//! The two iterations of a pair run back to back under the same conditions, so their ratio is more stable than either.

use crate::bootstrap::median_interval;
use crate::interval::Interval;
use crate::quantile::Sorted;
use crate::summary::LEVEL;

/// The cost of one variant relative to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The median over the pairs of the first iteration divided by the second, minus one: 0.01 is 1 % more.
    pub share: f64,
    /// Its 95 % interval; none with fewer than six pairs.
    pub interval: Option<Interval>,
    /// The number of pairs.
    pub pairs: usize,
}

/// Returns the cost of the first iteration of each pair relative to the second; `None` without pairs, or if an
/// iteration is not finite and above 0.
///
/// ```
/// let cost = laptime_stats::cost_of_first(&[(102.0, 100.0), (51.0, 50.0), (20.4, 20.0)], 0).unwrap();
/// assert!((cost.share - 0.02).abs() < 1e-12);
/// ```
pub fn cost_of_first(pairs: &[(f64, f64)], seed: u64) -> Option<Cost> {
    let is_time = |iteration: f64| iteration.is_finite() && iteration > 0.0;
    if !pairs.iter().all(|&(first, second)| is_time(first) && is_time(second)) {
        return None;
    }
    let ratios = pairs.iter().map(|(first, second)| first / second - 1.0).collect();
    let ratios = Sorted::<f64>::from_unsorted(ratios).ok()?;
    Some(Cost { share: ratios.median()?, interval: median_interval(&ratios, LEVEL, seed), pairs: pairs.len() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_drift_of_both_iterations_costs_nothing() {
        let pairs: Vec<(f64, f64)> = (1..40).map(|at| (f64::from(at), f64::from(at))).collect();
        let cost = cost_of_first(&pairs, 7).unwrap();
        assert_eq!((cost.share, cost.pairs), (0.0, 39));
        let interval = cost.interval.unwrap();
        assert_eq!((interval.low, interval.high), (0.0, 0.0));
    }

    #[test]
    fn one_disturbed_pair_does_not_change_the_cost() {
        let mut pairs = vec![(1.01, 1.0); 30];
        pairs[4] = (9.0, 1.0);
        assert!((cost_of_first(&pairs, 7).unwrap().share - 0.01).abs() < 1e-12);
    }

    #[test]
    fn without_pairs_or_with_an_iteration_of_zero_there_is_no_cost() {
        assert_eq!(cost_of_first(&[], 0), None);
        assert_eq!(cost_of_first(&[(1.0, 0.0)], 0), None);
        assert_eq!(cost_of_first(&[(f64::NAN, 1.0)], 0), None);
    }
}
