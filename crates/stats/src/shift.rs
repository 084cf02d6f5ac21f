//! The shift between two samples, for any distribution.
//!
//! The Hodges-Lehmann estimate: the median of all differences between a member of one sample and a member of the other.
//! Its interval contains the shifts that the Wilcoxon-Mann-Whitney rank sum test would not reject, and its ends are two
//! of the ordered differences. It is valid for any distribution, and each outlier moves it by at most one position.

use std::cell::RefCell;

use crate::interval::Interval;
use crate::student::{normal_quantile, normal_share};

/// Above this number of differences the normal approximation replaces the exact distribution, whose table would grow
/// with the fourth power of the sample size.
const MOST_EXACT: usize = 2500;

/// The shift of one sample relative to another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The median of all differences.
    pub estimate: f64,
    /// The interval; its coverage is at least its level.
    pub interval: Interval,
}

/// Returns how far `b` lies above `a`; `None` if the samples are too small for the level (at least three per side for
/// 95 %), or the level is not within 0 and 1.
///
/// ```
/// let shift = laptime_stats::shift(&[1.0, 1.1, 0.9, 1.05], &[2.0, 2.1, 1.9, 2.05], 0.95).unwrap();
/// assert!((shift.estimate - 1.0).abs() < 1e-9 && shift.interval.low > 0.7);
/// ```
pub fn shift(a: &[f64], b: &[f64], level: f64) -> Option<Shift> {
    let place = place(a.len(), b.len(), level)?;
    let mut differences: Vec<f64> = b.iter().flat_map(|b| a.iter().map(move |a| b - a)).collect();
    differences.sort_by(f64::total_cmp);
    let count = differences.len();
    let estimate = (differences[(count - 1) / 2] + differences[count / 2]) / 2.0;
    let interval = Interval { low: differences[place], high: differences[count - 1 - place], level };
    Some(Shift { estimate, interval })
}

/// Returns the two-sided probability that the ranks of equal samples of these sizes are at least as far apart as those
/// of `a` and `b`. Ties count against a difference. 1 if a sample is empty.
pub fn rank_probability(a: &[f64], b: &[f64]) -> f64 {
    let count = |is_so: fn(&f64, &f64) -> bool| b.iter().map(|b| a.iter().filter(|a| is_so(b, a)).count()).sum();
    let statistic: usize = usize::min(count(|b, a| b <= a), count(|b, a| b >= a));
    let (n, m) = (a.len(), b.len());
    let tail = if n * m > MOST_EXACT { normal_tail } else { exact_tail };
    (2.0 * tail(n, m, statistic)).min(1.0)
}

/// Returns the probability that the statistic is at most this if all orders are equally likely.
fn exact_tail(n: usize, m: usize, statistic: usize) -> f64 {
    with_chances(n, m, |chances| chances.iter().take(statistic + 1).sum())
}

fn normal_tail(n: usize, m: usize, statistic: usize) -> f64 {
    let below = ((n * m) as f64 / 2.0 - statistic as f64 - 0.5).max(0.0);
    0.5 * (1.0 - normal_share(below / deviation(n, m)))
}

/// Returns the index of the ordered difference at the lower end of the interval: the largest index below which the
/// statistic lies with at most half of the remaining probability.
fn place(n: usize, m: usize, level: f64) -> Option<usize> {
    if !(level > 0.0 && level < 1.0) || n == 0 || m == 0 {
        return None;
    }
    let tail = (1.0 - level) / 2.0;
    if n * m > MOST_EXACT { normal_place(n, m, level) } else { exact_place(n, m, tail) }
}

fn exact_place(n: usize, m: usize, tail: f64) -> Option<usize> {
    with_chances(n, m, |chances| {
        let mut below = 0.0;
        // Tolerates rounding in the sum of the probabilities.
        let is_within = |chance: &&f64| {
            below += **chance;
            below <= tail * (1.0 + 1e-12)
        };
        chances.iter().take_while(is_within).count().checked_sub(1)
    })
}

/// A table of probabilities and the sample sizes it applies to.
type Chances = ((usize, usize), Vec<f64>);

/// Uses the cached table of probabilities: a sweep compares many samples of the same sizes.
fn with_chances<T>(n: usize, m: usize, look: impl FnOnce(&[f64]) -> T) -> T {
    thread_local! {
        static KEPT: RefCell<Chances> = const { RefCell::new(((0, 0), Vec::new())) };
    }
    KEPT.with_borrow_mut(|(sizes, kept)| {
        if *sizes != (n, m) {
            (*sizes, *kept) = ((n, m), chances(n, m));
        }
        look(kept)
    })
}

/// Returns the probability of each value of the statistic if all orders are equally likely, adding one member of the
/// first sample at a time.
fn chances(n: usize, m: usize) -> Vec<f64> {
    // The probabilities of a statistic with i members of the first sample and j of the second: the largest of all i + j
    // is from the first sample with probability i / (i + j), and is then above all j.
    let mut rows: Vec<Vec<f64>> = (0..=m).map(|_| vec![1.0]).collect();
    for i in 1..=n {
        let mut next: Vec<Vec<f64>> = vec![vec![1.0]];
        for j in 1..=m {
            let first = i as f64 / (i + j) as f64;
            let mut chances = vec![0.0; i * j + 1];
            for (at, chance) in rows[j].iter().enumerate() {
                chances[at + j] += first * chance;
            }
            for (at, chance) in next[j - 1].iter().enumerate() {
                chances[at] += (1.0 - first) * chance;
            }
            next.push(chances);
        }
        rows = next;
    }
    rows.swap_remove(m)
}

fn normal_place(n: usize, m: usize, level: f64) -> Option<usize> {
    let place = (n * m) as f64 / 2.0 - normal_quantile(level)? * deviation(n, m) - 0.5;
    (place >= 1.0).then(|| place as usize - 1)
}

/// Returns the standard deviation of the statistic if all orders are equally likely.
fn deviation(n: usize, m: usize) -> f64 {
    let (n, m) = (n as f64, m as f64);
    (n * m * (n + m + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn probabilities_of_small_samples_agree_with_counting() {
        assert_eq!(chances(1, 1), [0.5, 0.5]);
        let two: Vec<f64> = chances(2, 2).iter().map(|chance| (chance * 6.0 * 1e9).round() / 1e9).collect();
        assert_eq!(two, [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert!((chances(10, 10).iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_ends_agree_with_published_tables() {
        // Critical values of the rank sum test, two-sided 5 %, one less: the largest value that rejects.
        for ((n, m), critical) in [((4, 4), 0), ((5, 5), 2), ((6, 6), 5), ((8, 8), 13), ((10, 10), 23), ((20, 20), 127)]
        {
            assert_eq!(place(n, m, 0.95), Some(critical), "{n} {m}");
        }
        assert_eq!(place(3, 3, 0.95), None);
        assert_eq!(place(3, 3, 0.9), Some(0));
    }

    #[test]
    fn ranks_that_reject_are_those_whose_interval_excludes_zero() {
        let a: Vec<f64> = (0..10).map(f64::from).collect();
        for by in 0..20 {
            let b: Vec<f64> = a.iter().map(|value| value + 0.5 * f64::from(by)).collect();
            let is_outside = shift(&a, &b, 0.95).unwrap().interval.low > 0.0;
            assert_eq!(rank_probability(&a, &b) <= 0.05, is_outside, "{by}");
            assert_eq!(rank_probability(&a, &b), rank_probability(&b, &a));
        }
        // All ten above all ten: two of the 184,756 orders.
        let b: Vec<f64> = a.iter().map(|value| value + 10.0).collect();
        assert!((rank_probability(&a, &b) - 2.0 / 184_756.0).abs() < 1e-12);
        assert_eq!(rank_probability(&[1.0; 5], &[1.0; 5]), 1.0);
    }

    #[test]
    fn the_normal_approximation_is_close_to_counting_for_large_samples() {
        for statistic in [900, 1000, 1200] {
            let (exact, normal) = (exact_tail(50, 50, statistic), normal_tail(50, 50, statistic));
            assert!((exact / normal - 1.0).abs() < 0.1, "{statistic}: {exact} {normal}");
        }
    }

    #[test]
    fn the_normal_ends_are_close_to_the_exact_ones_for_large_samples() {
        let (exact, normal) = (exact_place(50, 50, 0.025).unwrap(), normal_place(50, 50, 0.95).unwrap());
        assert!(exact.abs_diff(normal) <= 3, "{exact} {normal}");
    }

    #[test]
    fn an_outlier_hardly_moves_the_interval() {
        let a: Vec<f64> = (0..10).map(f64::from).collect();
        let b: Vec<f64> = a.iter().map(|value| value + 20.0).collect();
        let mut odd = b.clone();
        odd[3] = 1e6;
        let (shift, moved) = (shift(&a, &b, 0.95).unwrap(), super::shift(&a, &odd, 0.95).unwrap());
        assert_eq!(shift.estimate, 20.0);
        assert!((moved.interval.high - shift.interval.high).abs() <= 2.0, "{moved:?} {shift:?}");
    }

    #[test]
    fn swapping_the_samples_mirrors_the_shift() {
        let (a, b) = ([1.0, 2.5, 3.0, 4.5, 9.0], [2.0, 2.25, 7.0, 8.0]);
        let (there, back) = (shift(&a, &b, 0.95).unwrap(), shift(&b, &a, 0.95).unwrap());
        assert_eq!(
            (there.estimate, there.interval.low, there.interval.high),
            (-back.estimate, -back.interval.high, -back.interval.low)
        );
    }
}
