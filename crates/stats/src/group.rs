//! The iterations of one case, measured in several processes.
//!
//! Iterations within a process share its conditions (memory layout, clock, other load), so the process is the unit of
//! replication and is resampled first.

use std::cmp::Ordering;

use crate::bootstrap::{
    can_carry, percentile_interval, resampled_median, small_sample_stretch, student_stretch, variance_stretch,
};
use crate::interval::Interval;
use crate::quantile::Sorted;
use crate::random::Rng;
use crate::spread::{MAD_TO_STD, hodges_lehmann, hodges_lehmann_with, mad, median};

/// The number of resamples for one interval.
pub const RESAMPLES: usize = 2000;

/// Iterations per process, in an order that does not depend on the input order.
///
/// The **typical value** of a group is the Hodges-Lehmann centre of its process medians on a log scale. For a single
/// process it is the median.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub struct Group {
    processes: Vec<Sorted<f64>>,
    medians: Vec<f64>,
}

impl Group {
    /// Sorts the iterations of each process, and the processes.
    ///
    /// Every process needs an iteration, and every iteration must be finite and above 0, since only ratios of
    /// iterations are used.
    pub fn new(iterations: &[Vec<f64>]) -> Result<Self, Unfit> {
        if iterations.is_empty() {
            return Err(Unfit::NoProcess);
        }
        let processes = iterations.iter().enumerate().map(|(at, iterations)| sorted(at, iterations));
        let mut processes = processes.collect::<Result<Vec<_>, _>>()?;
        processes.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        let medians = processes.iter().filter_map(Sorted::median).collect();
        Ok(Self { processes, medians })
    }

    /// Returns the number of processes: at least one.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Returns the number of iterations in all processes.
    pub fn iterations(&self) -> usize {
        self.processes.iter().map(Sorted::len).sum()
    }

    /// Returns the median of each process, in no particular order.
    pub fn medians(&self) -> &[f64] {
        &self.medians
    }

    /// Returns the typical value.
    pub fn typical(&self) -> f64 {
        self.log_typical().exp()
    }

    /// Returns the spread between processes: the median absolute deviation of the process medians, scaled to a standard
    /// deviation, as a share of their median. `None` for one process.
    pub fn between(&self) -> Option<f64> {
        if self.processes.len() < 2 { None } else { relative_spread(&self.medians) }
    }

    /// Returns the same spread between the iterations of a process; the median over processes. `None` if no process has
    /// two iterations.
    pub fn within(&self) -> Option<f64> {
        let several = self.processes.iter().filter(|iterations| iterations.len() > 1);
        let spreads: Vec<f64> = several.filter_map(|iterations| relative_spread(iterations.as_slice())).collect();
        median(&spreads)
    }

    /// Returns whether the group supports an interval of this level. Six processes are the minimum for 95 %; a single
    /// process needs six iterations, and its interval says nothing about other processes.
    pub fn carries(&self, level: f64) -> bool {
        let count = match self.processes.as_slice() {
            [only] => only.len(),
            several => several.len(),
        };
        can_carry(count, level)
    }

    /// Returns the bootstrap interval of the typical value over processes and iterations, widened for small numbers;
    /// `None` if the group does not [support](Self::carries) the level.
    pub fn interval(&self, level: f64, seed: u64) -> Option<Interval> {
        let draws = self.resampled_logs(RESAMPLES, level, seed);
        Some(percentile_interval(draws, level)?.map(f64::exp))
    }

    /// Draws logarithms of the typical value as if processes and iterations were measured again, widened for small
    /// numbers. The middle `level` of them is an interval of that level, and draws of several groups give an interval
    /// of anything computed from them. Empty if the group does not [support](Self::carries) the level.
    pub fn resampled_logs(&self, resamples: usize, level: f64, seed: u64) -> Vec<f64> {
        let stretch = match self.processes.as_slice() {
            [only] => small_sample_stretch(only.len(), level),
            several => student_stretch(level, several.len() - 1),
        };
        let Some(stretch) = stretch.filter(|_| self.carries(level)) else { return Vec::new() };
        let centre = self.log_typical();
        self.draws(resamples, &mut Rng::new(seed)).into_iter().map(|draw| centre + stretch * draw).collect()
    }

    pub(crate) fn log_typical(&self) -> f64 {
        hodges_lehmann(&self.log_medians()).unwrap_or(f64::NAN)
    }

    /// Resamples processes, and the iterations within each; returns the changes of the logarithm of the typical value.
    ///
    /// The variance is corrected twice. The medians of the processes already contain the noise of their iterations, so
    /// resampling all iterations would count it twice; with `n` processes it counts for one n-th, which resampling
    /// processes leaves out. The total is then stretched, since resampling `n` processes shows (n - 1) / n of the
    /// variance between them.
    fn draws(&self, resamples: usize, rng: &mut Rng) -> Vec<f64> {
        let n = self.processes.len();
        let medians = self.log_medians();
        let iteration_share = 1.0 / (n as f64).sqrt();
        let (centre, stretch) = (self.log_typical(), variance_stretch(n));
        let (mut drawn, mut pairs) = (vec![0.0; n], Vec::new());
        let mut draw = || {
            for slot in &mut drawn {
                let process = rng.below(n);
                let moved = resampled_median(self.processes[process].as_slice(), rng).ln();
                *slot = medians[process] + iteration_share * (moved - medians[process]);
            }
            stretch * (hodges_lehmann_with(&drawn, &mut pairs).unwrap_or(f64::NAN) - centre)
        };
        (0..resamples).map(|_| draw()).collect()
    }

    pub(crate) fn log_medians(&self) -> Vec<f64> {
        self.medians.iter().map(|median| median.ln()).collect()
    }
}

fn relative_spread(values: &[f64]) -> Option<f64> {
    Some(MAD_TO_STD * mad(values)? / median(values)?)
}

fn sorted(process: usize, iterations: &[f64]) -> Result<Sorted<f64>, Unfit> {
    if iterations.is_empty() {
        return Err(Unfit::NoIteration { process });
    }
    if let Some(iteration) = iterations.iter().position(|&value| !(value > 0.0 && value.is_finite())) {
        return Err(Unfit::NotPositive { process, iteration, value: iterations[iteration] });
    }
    Sorted::<f64>::from_unsorted(iterations.to_vec()).map_err(|found| Unfit::NotPositive {
        process,
        iteration: found.index,
        value: found.value,
    })
}

/// Why iterations cannot be compared. Processes and iterations are counted from zero.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum Unfit {
    #[error("there are no processes, expected at least one")]
    NoProcess,
    #[error("process {process} has no iterations, expected at least one")]
    NoIteration { process: usize },
    #[error("iteration {iteration} of process {process} is `{value}`, expected a finite number above 0")]
    NotPositive { process: usize, iteration: usize, value: f64 },
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(iterations: &[&[f64]]) -> Group {
        Group::new(&iterations.iter().map(|iterations| iterations.to_vec()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn no_process_is_refused() {
        assert_eq!(Group::new(&[]), Err(Unfit::NoProcess));
    }

    #[test]
    fn a_process_without_iterations_is_refused_and_named() {
        let error = Group::new(&[vec![1.0], vec![]]).unwrap_err();
        assert_eq!(error.to_string(), "process 1 has no iterations, expected at least one");
    }

    #[test]
    fn iterations_that_are_not_positive_and_finite_are_refused_by_index() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Group::new(&[vec![1.0, value]]).unwrap_err().to_string();
            assert_eq!(error, format!("iteration 1 of process 0 is `{value}`, expected a finite number above 0"));
        }
    }

    #[test]
    fn the_typical_value_of_one_process_is_its_median() {
        assert!((group(&[&[3.0, 9.0, 5.0]]).typical() - 5.0).abs() < 1e-12);
    }

    #[test]
    fn one_process_has_no_spread_between_processes() {
        let one = group(&[&[9.0, 10.0, 11.0]]);
        assert_eq!(one.between(), None);
        assert!((one.within().unwrap() - 0.1 * MAD_TO_STD).abs() < 1e-12);
    }

    #[test]
    fn single_iterations_have_no_spread_within() {
        let singles = group(&[&[9.0], &[10.0], &[11.0]]);
        assert_eq!(singles.within(), None);
        assert!((singles.between().unwrap() - 0.1 * MAD_TO_STD).abs() < 1e-12);
    }

    #[test]
    fn equal_iterations_have_an_interval_without_width() {
        let interval = group(&[&[4.0, 4.0], &[4.0], &[4.0], &[4.0], &[4.0], &[4.0]]).interval(0.95, 1).unwrap();
        assert!((interval.low - 4.0).abs() < 1e-12 && (interval.high - 4.0).abs() < 1e-12);
    }

    #[test]
    fn five_processes_have_no_95_per_cent_interval_however_many_iterations_they_have() {
        let iterations: Vec<f64> = (0..30).map(|iteration| 10.0 + f64::from(iteration % 7)).collect();
        let five = Group::new(&vec![iterations.clone(); 5]).unwrap();
        assert_eq!((five.interval(0.95, 1), five.resampled_logs(5, 0.95, 1)), (None, Vec::new()));
        assert!(Group::new(&vec![iterations.clone(); 6]).unwrap().interval(0.95, 1).is_some());
        assert!(Group::new(&[iterations]).unwrap().interval(0.95, 1).is_some());
        assert_eq!(group(&[&[1.0, 2.0, 3.0, 4.0, 5.0]]).interval(0.95, 1), None);
    }

    const SIX: [&[f64]; 6] = [&[10.0, 10.2], &[11.0, 11.1], &[10.4], &[10.6], &[10.9, 10.8], &[10.3]];

    #[test]
    fn resampled_logs_of_several_processes_make_their_interval() {
        let six = group(&SIX);
        let mut draws = six.resampled_logs(RESAMPLES, 0.95, 7);
        draws.sort_unstable_by(f64::total_cmp);
        let ends = [0.025, 0.975].map(|p| crate::quantile_of_sorted(&draws, p).unwrap().exp());
        let interval = six.interval(0.95, 7).unwrap();
        assert!((ends[0] - interval.low).abs() < 1e-12 && (ends[1] - interval.high).abs() < 1e-12);
        assert!(six.resampled_logs(5, 1.5, 7).is_empty());
    }

    #[test]
    fn resampled_logs_of_one_process_are_about_its_median() {
        let one = group(&[&[9.0, 10.0, 11.0, 10.0, 10.0, 9.5, 10.5]]);
        let mut draws = one.resampled_logs(RESAMPLES, 0.95, 7);
        draws.sort_unstable_by(f64::total_cmp);
        assert!((draws[RESAMPLES / 2].exp() - 10.0).abs() < 1e-9);
        assert!(draws[0] < draws[RESAMPLES - 1]);
    }

    #[test]
    fn fewer_processes_make_a_wider_interval() {
        let width = |iterations: &[&[f64]]| group(iterations).interval(0.95, 1).unwrap().width();
        let many = [SIX, SIX, SIX].concat();
        assert!(width(&SIX) > 1.5 * width(&many), "{} {}", width(&SIX), width(&many));
    }
}
