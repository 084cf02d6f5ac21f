//! How much one way costs over another, when both were taken in turns.
//!
//! Taken one right after the other, the two takes of a pair share the
//! machine's mood, so their ratio is steadier than either of them.

use crate::bootstrap::median_interval;
use crate::interval::Interval;
use crate::quantile::Sorted;
use crate::summary::LEVEL;

/// What one way costs over another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Cost {
    /// The median over the pairs of the first take over the second, less one:
    /// 0.01 is 1 % more.
    pub share: f64,
    /// Its 95 % interval; none of fewer than six pairs.
    pub interval: Option<Interval>,
    /// How many pairs there are.
    pub pairs: usize,
}

/// Returns what the first take of each pair costs over the second; `None` if
/// there is no pair, or a take that is not finite and above 0.
///
/// ```
/// let cost = laptime_stats::cost_of_first(&[(102.0, 100.0), (51.0, 50.0), (20.4, 20.0)], 0).unwrap();
/// assert!((cost.share - 0.02).abs() < 1e-12);
/// ```
pub fn cost_of_first(pairs: &[(f64, f64)], seed: u64) -> Option<Cost> {
    let is_time = |take: f64| take.is_finite() && take > 0.0;
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
    fn a_drift_that_both_takes_share_costs_nothing() {
        let pairs: Vec<(f64, f64)> = (1..40).map(|at| (f64::from(at), f64::from(at))).collect();
        let cost = cost_of_first(&pairs, 7).unwrap();
        assert_eq!((cost.share, cost.pairs), (0.0, 39));
        let interval = cost.interval.unwrap();
        assert_eq!((interval.low, interval.high), (0.0, 0.0));
    }

    #[test]
    fn one_disturbed_pair_among_many_does_not_move_it() {
        let mut pairs = vec![(1.01, 1.0); 30];
        pairs[4] = (9.0, 1.0);
        assert!((cost_of_first(&pairs, 7).unwrap().share - 0.01).abs() < 1e-12);
    }

    #[test]
    fn without_pairs_or_with_a_take_of_no_length_there_is_no_answer() {
        assert_eq!(cost_of_first(&[], 0), None);
        assert_eq!(cost_of_first(&[(1.0, 0.0)], 0), None);
        assert_eq!(cost_of_first(&[(f64::NAN, 1.0)], 0), None);
    }
}
