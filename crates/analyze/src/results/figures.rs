//! The figures of one quantity of a case, over all its processes.

use laptime_stats::{Group, Interval, Sorted, Summary, summary::LEVEL};

/// The seed of every interval: equal iterations give equal results.
pub(crate) const SEED: u64 = 0x1a97_1ae5;

/// The figures of a quantity: the time of an iteration, or a metric of the workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// The iterations of all processes together.
    pub all: Summary,
    /// Processes.
    pub processes: usize,
    /// The typical value: the median for one process, the centre of the medians for several.
    pub median: f64,
    /// Its 95 % interval: over iterations for one process, over processes for several. None for fewer than six.
    pub interval: Option<Interval>,
    /// The relative spread between the medians of processes.
    pub between: Option<f64>,
    /// The relative spread of the iterations within a process.
    pub within: Option<f64>,
}

impl Figures {
    /// Computes the figures from the iterations of each process; none if there are no iterations.
    ///
    /// Values without a ratio (a metric that is 0 or negative) are treated as if they came from one process.
    pub(crate) fn of(by_process: Vec<Vec<f64>>) -> Option<Self> {
        let by_process: Vec<Vec<f64>> = by_process.into_iter().filter(|iterations| !iterations.is_empty()).collect();
        let all = Summary::of(&Sorted::<f64>::from_unsorted(by_process.concat()).ok()?, SEED)?;
        let processes = by_process.len();
        // The iterations of a process are not independent, so those of several processes cannot be pooled for an interval.
        let interval = all.median_interval.filter(|_| processes == 1);
        let pooled = Self { all, processes, median: all.median, interval, between: None, within: None };
        let Ok(group) = Group::new(&by_process) else { return Some(pooled) };
        let (between, within) = (group.between(), group.within());
        if processes == 1 {
            return Some(Self { between, within, ..pooled });
        }
        let (median, interval) = (group.typical(), group.interval(LEVEL, SEED));
        Some(Self { median, interval, between, within, ..pooled })
    }
}

/// Times as numbers.
pub(crate) fn numbers(nanos: &[u64]) -> Vec<f64> {
    nanos.iter().map(|&nanos| nanos as f64).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_process_has_the_interval_of_its_median() {
        let iterations: Vec<f64> = (0..20).map(|iteration| 100.0 + f64::from(iteration % 5)).collect();
        let figures = Figures::of(vec![iterations.clone(), vec![]]).unwrap();
        let summary = Summary::of(&Sorted::<f64>::from_unsorted(iterations).unwrap(), SEED).unwrap();
        assert_eq!((figures.all.n, figures.processes, figures.median), (20, 1, 102.0));
        assert_eq!((figures.interval, figures.between), (summary.median_interval, None));
    }

    #[test]
    fn several_processes_have_the_interval_of_their_group() {
        let iterations = vec![vec![10.0, 11.0], vec![12.0], vec![10.5, 10.6], vec![10.0], vec![11.0], vec![11.5]];
        let group = Group::new(&iterations).unwrap();
        let figures = Figures::of(iterations).unwrap();
        assert_eq!((figures.median, figures.interval), (group.typical(), group.interval(LEVEL, SEED)));
        assert!(figures.interval.is_some());
        assert_eq!((figures.all.n, figures.all.min, figures.all.max), (8, 10.0, 12.0));
    }

    #[test]
    fn fewer_than_six_iterations_or_processes_have_no_interval() {
        let iterations: Vec<f64> = (0..20).map(|iteration| 100.0 + f64::from(iteration % 5)).collect();
        let interval = |by_process: Vec<Vec<f64>>| Figures::of(by_process).unwrap().interval;
        assert_eq!(interval(vec![iterations[..5].to_vec()]), None);
        assert_eq!(interval(vec![iterations.clone(); 5]), None);
        assert_eq!(interval(vec![vec![-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; 2]), None, "without a ratio");
        assert!(interval(vec![iterations[..6].to_vec()]).is_some() && interval(vec![iterations; 6]).is_some());
    }

    #[test]
    fn values_without_a_ratio_are_pooled() {
        let figures = Figures::of(vec![vec![0.0, 2.0], vec![4.0]]).unwrap();
        assert_eq!((figures.processes, figures.median, figures.between), (2, 2.0, None));
    }

    #[test]
    fn no_iterations_give_no_figures() {
        assert_eq!(Figures::of(vec![vec![]]), None);
    }
}
