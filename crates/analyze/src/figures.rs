//! The figures of one quantity of a case, over all its processes.

use laptime_stats::{Group, Interval, Sorted, Summary, summary::LEVEL};

/// The seed of every interval: the same takes give the same answer.
pub(crate) const SEED: u64 = 0x1a97_1ae5;

/// What is known of a quantity: the time of a take, or a metric of the workload.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figures {
    /// Takes, of all processes together.
    pub n: usize,
    /// Processes they come from.
    pub processes: usize,
    /// The typical value: of one process the median, of several the centre of their medians.
    pub median: f64,
    /// Its 95 % interval: over the takes of one process, or over processes if there are several. None of fewer than six.
    pub interval: Option<Interval>,
    /// The mean of all takes.
    pub mean: f64,
    /// Their sample standard deviation.
    pub std: Option<f64>,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The quantile 0.05, of 20 takes or more.
    pub p5: Option<f64>,
    /// The quantile 0.95, of 20 takes or more.
    pub p95: Option<f64>,
    /// The quantile 0.99, of 100 takes or more.
    pub p99: Option<f64>,
    /// The relative spread between the medians of processes.
    pub between: Option<f64>,
    /// The relative spread of the takes within a process.
    pub within: Option<f64>,
}

impl Figures {
    /// Sums up takes by process; a process without takes does not count. None if there are no takes.
    ///
    /// Values that have no ratio to each other (a metric that is 0 or negative) are summed up as if one process had
    /// given all of them.
    pub(crate) fn of(by_process: Vec<Vec<f64>>) -> Option<Self> {
        let by_process: Vec<Vec<f64>> = by_process.into_iter().filter(|takes| !takes.is_empty()).collect();
        let all = Sorted::<f64>::from_unsorted(by_process.concat()).ok()?;
        let pooled = Self::pooled(Summary::of(&all, SEED)?, by_process.len());
        let Ok(group) = Group::new(&by_process) else {
            // The takes of a process depend on each other, so those of several are no sample that carries an interval.
            let interval = pooled.interval.filter(|_| by_process.len() == 1);
            return Some(Self { interval, ..pooled });
        };
        let (between, within) = (group.between(), group.within());
        if group.processes() == 1 {
            return Some(Self { between, within, ..pooled });
        }
        let (median, interval) = (group.typical(), group.interval(LEVEL, SEED));
        Some(Self { median, interval, between, within, ..pooled })
    }

    fn pooled(summary: Summary, processes: usize) -> Self {
        Self {
            n: summary.n,
            processes,
            median: summary.median,
            interval: summary.median_interval,
            mean: summary.mean,
            std: summary.std,
            min: summary.min,
            max: summary.max,
            p5: summary.p5,
            p95: summary.p95,
            p99: summary.p99,
            between: None,
            within: None,
        }
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
        let takes: Vec<f64> = (0..20).map(|take| 100.0 + f64::from(take % 5)).collect();
        let figures = Figures::of(vec![takes.clone(), vec![]]).unwrap();
        let summary = Summary::of(&Sorted::<f64>::from_unsorted(takes).unwrap(), SEED).unwrap();
        assert_eq!((figures.n, figures.processes, figures.median), (20, 1, 102.0));
        assert_eq!((figures.interval, figures.between), (summary.median_interval, None));
    }

    #[test]
    fn several_processes_have_the_interval_of_their_group() {
        let takes = vec![vec![10.0, 11.0], vec![12.0], vec![10.5, 10.6], vec![10.0], vec![11.0], vec![11.5]];
        let group = Group::new(&takes).unwrap();
        let figures = Figures::of(takes).unwrap();
        assert_eq!((figures.median, figures.interval), (group.typical(), group.interval(LEVEL, SEED)));
        assert!(figures.interval.is_some());
        assert_eq!((figures.n, figures.min, figures.max), (8, 10.0, 12.0));
    }

    #[test]
    fn fewer_than_six_takes_or_processes_have_no_interval() {
        let takes: Vec<f64> = (0..20).map(|take| 100.0 + f64::from(take % 5)).collect();
        let interval = |by_process: Vec<Vec<f64>>| Figures::of(by_process).unwrap().interval;
        assert_eq!(interval(vec![takes[..5].to_vec()]), None);
        assert_eq!(interval(vec![takes.clone(); 5]), None);
        assert_eq!(interval(vec![vec![-1.0, 2.0, 3.0, 4.0, 5.0, 6.0]; 2]), None, "without a ratio");
        assert!(interval(vec![takes[..6].to_vec()]).is_some() && interval(vec![takes; 6]).is_some());
    }

    #[test]
    fn values_without_a_ratio_are_summed_up_together() {
        let figures = Figures::of(vec![vec![0.0, 2.0], vec![4.0]]).unwrap();
        assert_eq!((figures.processes, figures.median, figures.between), (2, 2.0, None));
    }

    #[test]
    fn no_takes_have_no_figures() {
        assert_eq!(Figures::of(vec![vec![]]), None);
    }
}
