//! The takes of one thing, measured in several processes.
//!
//! Takes within a process share its luck (memory layout, clock, neighbours),
//! so the process is what is replicated and what is resampled first.

use std::cmp::Ordering;
use std::fmt;

use crate::bootstrap::{
    can_carry, percentile_interval, resampled_median, small_sample_stretch, student_stretch, variance_stretch,
};
use crate::interval::Interval;
use crate::quantile::Sorted;
use crate::random::Rng;
use crate::spread::{MAD_TO_STD, hodges_lehmann, hodges_lehmann_with, mad, median};

/// How often processes and takes are resampled for one interval.
pub const RESAMPLES: usize = 2000;

/// Takes by process, in an order that does not depend on how they came.
///
/// The **typical value** of a group is the Hodges-Lehmann centre of the
/// logarithms of its process medians, back on the scale of the takes. Of one
/// process it is its median.
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub struct Group {
    processes: Vec<Sorted<f64>>,
    medians: Vec<f64>,
}

impl Group {
    /// Sorts the takes of each process, and the processes.
    ///
    /// Every process needs a take, and every take must be finite and above 0,
    /// since only ratios of takes are looked at.
    pub fn new(takes: &[Vec<f64>]) -> Result<Self, Unfit> {
        if takes.is_empty() {
            return Err(Unfit::NoProcess);
        }
        let processes = takes.iter().enumerate().map(|(at, takes)| sorted(at, takes));
        let mut processes = processes.collect::<Result<Vec<_>, _>>()?;
        processes.sort_by(|one, other| one.partial_cmp(other).unwrap_or(Ordering::Equal));
        let medians = processes.iter().filter_map(Sorted::median).collect();
        Ok(Self { processes, medians })
    }

    /// Returns how many processes there are: at least one.
    pub fn processes(&self) -> usize {
        self.processes.len()
    }

    /// Returns how many takes there are in all processes together.
    pub fn takes(&self) -> usize {
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

    /// Returns the spread between processes: the median absolute deviation of
    /// the process medians, scaled to a standard deviation, as a share of
    /// their median. `None` of one process.
    pub fn between(&self) -> Option<f64> {
        if self.processes.len() < 2 { None } else { relative_spread(&self.medians) }
    }

    /// Returns the spread between the takes of a process, measured in the
    /// same way, of the process in the middle. `None` if no process has two takes.
    pub fn within(&self) -> Option<f64> {
        let several = self.processes.iter().filter(|takes| takes.len() > 1);
        let spreads: Vec<f64> = several.filter_map(|takes| relative_spread(takes.as_slice())).collect();
        median(&spreads)
    }

    /// Tells whether there is an interval of this level. Six processes are the
    /// fewest for 95 %; a single process needs six takes, and its interval
    /// covers nothing but the takes in it.
    pub fn carries(&self, level: f64) -> bool {
        let count = match self.processes.as_slice() {
            [only] => only.len(),
            several => several.len(),
        };
        can_carry(count, level)
    }

    /// Returns the interval of the typical value, bootstrapped over processes
    /// and takes and widened for few of them; `None` where the group does not
    /// [carry](Self::carries) the level.
    pub fn interval(&self, level: f64, seed: u64) -> Option<Interval> {
        let draws = self.resampled_logs(RESAMPLES, level, seed);
        Some(percentile_interval(draws, level)?.map(f64::exp))
    }

    /// Draws logarithms of the typical value as they would be if processes and
    /// takes were drawn again, widened for few of them: the middle `level` of
    /// them is an interval of that level, and draws of several groups make one
    /// of whatever is computed from them. Empty where the group does not
    /// [carry](Self::carries) the level.
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

    /// Draws how far the logarithm of the typical value moves when processes
    /// are resampled, and the takes within each.
    ///
    /// Two corrections, both for variance. The medians of the processes
    /// already differ by the noise of their takes, so resampling takes in full
    /// would count it twice; of `n` processes it counts for one n-th, which
    /// resampling processes leaves out. The whole is then stretched, since
    /// resampling `n` processes shows (n - 1) / n of the variance between them.
    fn draws(&self, resamples: usize, rng: &mut Rng) -> Vec<f64> {
        let n = self.processes.len();
        let medians = self.log_medians();
        let take_share = 1.0 / (n as f64).sqrt();
        let (centre, stretch) = (self.log_typical(), variance_stretch(n));
        let (mut drawn, mut pairs) = (vec![0.0; n], Vec::new());
        let mut draw = || {
            for slot in &mut drawn {
                let process = rng.below(n);
                let moved = resampled_median(self.processes[process].as_slice(), rng).ln();
                *slot = medians[process] + take_share * (moved - medians[process]);
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

fn sorted(process: usize, takes: &[f64]) -> Result<Sorted<f64>, Unfit> {
    if takes.is_empty() {
        return Err(Unfit::NoTake { process });
    }
    if let Some(take) = takes.iter().position(|&value| !(value > 0.0 && value.is_finite())) {
        return Err(Unfit::NotPositive { process, take, value: takes[take] });
    }
    Sorted::<f64>::from_unsorted(takes.to_vec()).map_err(|found| Unfit::NotPositive {
        process,
        take: found.index,
        value: found.value,
    })
}

/// Why takes cannot be compared.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Unfit {
    /// There is not one process.
    NoProcess,
    /// A process has no takes.
    NoTake {
        /// Which process, counted from zero.
        process: usize,
    },
    /// A take has no ratio to others.
    NotPositive {
        /// Which process, counted from zero.
        process: usize,
        /// Which take of it, counted from zero.
        take: usize,
        /// The value of the take.
        value: f64,
    },
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoProcess => write!(f, "there are no processes, expected at least one"),
            Self::NoTake { process } => write!(f, "process {process} has no takes, expected at least one"),
            Self::NotPositive { process, take, value } => {
                write!(f, "take {take} of process {process} is `{value}`, expected a finite number above 0")
            }
        }
    }
}

impl std::error::Error for Unfit {}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(takes: &[&[f64]]) -> Group {
        Group::new(&takes.iter().map(|takes| takes.to_vec()).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn no_process_is_refused() {
        assert_eq!(Group::new(&[]), Err(Unfit::NoProcess));
    }

    #[test]
    fn a_process_without_takes_is_refused_and_named() {
        let error = Group::new(&[vec![1.0], vec![]]).unwrap_err();
        assert_eq!(error.to_string(), "process 1 has no takes, expected at least one");
    }

    #[test]
    fn a_take_that_has_no_ratio_is_refused_and_named() {
        for value in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Group::new(&[vec![1.0, value]]).unwrap_err().to_string();
            assert_eq!(error, format!("take 1 of process 0 is `{value}`, expected a finite number above 0"));
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
    fn single_takes_have_no_spread_within() {
        let singles = group(&[&[9.0], &[10.0], &[11.0]]);
        assert_eq!(singles.within(), None);
        assert!((singles.between().unwrap() - 0.1 * MAD_TO_STD).abs() < 1e-12);
    }

    #[test]
    fn equal_takes_have_an_interval_without_width() {
        let interval = group(&[&[4.0, 4.0], &[4.0], &[4.0], &[4.0], &[4.0], &[4.0]]).interval(0.95, 1).unwrap();
        assert!((interval.low - 4.0).abs() < 1e-12 && (interval.high - 4.0).abs() < 1e-12);
    }

    #[test]
    fn five_processes_have_no_95_per_cent_interval_however_many_takes_they_have() {
        let takes: Vec<f64> = (0..30).map(|take| 10.0 + f64::from(take % 7)).collect();
        let five = Group::new(&vec![takes.clone(); 5]).unwrap();
        assert_eq!((five.interval(0.95, 1), five.resampled_logs(5, 0.95, 1)), (None, Vec::new()));
        assert!(Group::new(&vec![takes.clone(); 6]).unwrap().interval(0.95, 1).is_some());
        assert!(Group::new(&[takes]).unwrap().interval(0.95, 1).is_some());
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
        let width = |takes: &[&[f64]]| group(takes).interval(0.95, 1).unwrap().width();
        let many = [SIX, SIX, SIX].concat();
        assert!(width(&SIX) > 1.5 * width(&many), "{} {}", width(&SIX), width(&many));
    }
}
