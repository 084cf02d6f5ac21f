//! How far one sample lies above another, whatever their distribution.
//!
//! The estimate is that of Hodges and Lehmann: the median of all differences
//! between a member of the one and a member of the other. Its interval is made
//! of the shifts that the rank sum test of Wilcoxon, Mann and Whitney would not
//! reject: two of the ordered differences. It holds for any distribution, and
//! a few members far off move it by no more than one place each.

use std::cell::RefCell;

use crate::interval::Interval;
use crate::student::{normal_quantile, normal_share};

/// Beyond this many differences the normal distribution stands in for the
/// exact one, whose table would grow with the fourth power of the samples.
const MOST_EXACT: usize = 2500;

/// How far one sample lies above another.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Shift {
    /// The median of all differences.
    pub estimate: f64,
    /// The interval; it holds the true shift at least as often as its level says.
    pub interval: Interval,
}

/// Returns how far `b` lies above `a`; `None` if the samples are too small
/// for the level (three a side for 95 %), or the level is not within 0 and 1.
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

/// Returns how often the ranks of samples of these sizes are at least as far
/// apart as those of `a` and `b` if nothing differs, to either side. Equal
/// members count against a difference. 1 if a sample is empty.
pub fn rank_probability(a: &[f64], b: &[f64]) -> f64 {
    let count = |is_so: fn(&f64, &f64) -> bool| b.iter().map(|b| a.iter().filter(|a| is_so(b, a)).count()).sum();
    let statistic: usize = usize::min(count(|b, a| b <= a), count(|b, a| b >= a));
    let (n, m) = (a.len(), b.len());
    let tail = if n * m > MOST_EXACT { normal_tail } else { exact_tail };
    (2.0 * tail(n, m, statistic)).min(1.0)
}

/// Returns how often the statistic is at most this when all orders are alike.
fn exact_tail(n: usize, m: usize, statistic: usize) -> f64 {
    with_chances(n, m, |chances| chances.iter().take(statistic + 1).sum())
}

fn normal_tail(n: usize, m: usize, statistic: usize) -> f64 {
    let below = ((n * m) as f64 / 2.0 - statistic as f64 - 0.5).max(0.0);
    0.5 * (1.0 - normal_share(below / deviation(n, m)))
}

/// Returns which of the ordered differences, counted from 0, is the lower end:
/// the largest place below which the statistic lies with at most half of what
/// the level leaves over.
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
        // Against rounding in the sum of the chances.
        let is_within = |chance: &&f64| {
            below += **chance;
            below <= tail * (1.0 + 1e-12)
        };
        chances.iter().take_while(is_within).count().checked_sub(1)
    })
}

/// A table of chances, with the sizes of the samples that it is of.
type Chances = ((usize, usize), Vec<f64>);

/// Looks into the table of chances, which is kept: a sweep compares many samples of the same sizes.
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

/// Returns the chance of each value of the statistic when all orders are
/// alike: member by member of the first sample, each of which is above some of
/// the second.
fn chances(n: usize, m: usize) -> Vec<f64> {
    // The ways to reach a statistic with i of the first and j of the second, as chances: the largest of all i + j
    // is of the first with chance i / (i + j), and is then above all j.
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

/// Returns the standard deviation of the statistic when all orders are alike.
fn deviation(n: usize, m: usize) -> f64 {
    let (n, m) = (n as f64, m as f64);
    (n * m * (n + m + 1.0) / 12.0).sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_chances_of_small_samples_are_those_of_counting() {
        assert_eq!(chances(1, 1), [0.5, 0.5]);
        let two: Vec<f64> = chances(2, 2).iter().map(|chance| (chance * 6.0 * 1e9).round() / 1e9).collect();
        assert_eq!(two, [1.0, 1.0, 2.0, 1.0, 1.0]);
        assert!((chances(10, 10).iter().sum::<f64>() - 1.0).abs() < 1e-12);
    }

    #[test]
    fn the_ends_are_those_of_the_published_tables() {
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
    fn large_samples_have_about_the_probability_of_counting() {
        for statistic in [900, 1000, 1200] {
            let (exact, normal) = (exact_tail(50, 50, statistic), normal_tail(50, 50, statistic));
            assert!((exact / normal - 1.0).abs() < 0.1, "{statistic}: {exact} {normal}");
        }
    }

    #[test]
    fn large_samples_come_near_the_exact_ends() {
        let (exact, normal) = (exact_place(50, 50, 0.025).unwrap(), normal_place(50, 50, 0.95).unwrap());
        assert!(exact.abs_diff(normal) <= 3, "{exact} {normal}");
    }

    #[test]
    fn a_member_far_off_hardly_moves_the_interval() {
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
