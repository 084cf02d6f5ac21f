//! A warm-up study: the result of a case for several numbers of warm-up iterations, each in fresh processes.

use laptime_stats::spread::median_of;
use laptime_trace::run::{Case, CaseResult, Environment, Settings};

use crate::by_case::{CaseId, Trouble, by_case};
use crate::cold_start::{ColdStart, middle_start};
use crate::doubts::{SharedDoubt, doubts};
use crate::figures::{Figures, numbers};
use crate::{cases::cases, warmup::warmup};

/// The reference number of warm-up iterations, as in CS336 assignment 2.
pub const REFERENCE_ITERATIONS: usize = 5;

/// One case with several numbers of warm-up iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUpRows {
    /// Which case.
    pub id: CaseId,
    /// The steady level in nanoseconds, from the processes with the most iterations.
    pub steady_ns: Option<f64>,
    /// One row per number, in the given order.
    pub rows: Vec<WarmUpRow>,
    /// Processes that gave no iterations, and why.
    pub troubles: Vec<Trouble>,
    /// The cost of a cold start, from the process with the median first iteration; none if no process was recorded.
    pub cold: Option<ColdStart>,
}

/// The result for one number of warm-up iterations.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUpRow {
    /// Iterations that are not counted.
    pub warmup_iterations: usize,
    /// The first iteration of a process, counted or not, in nanoseconds: the median of all processes.
    pub first_ns: Option<f64>,
    /// The counted iterations; none if there are none.
    pub iterations: Option<Figures>,
    /// Their mean relative to the reference.
    pub from_reference: Option<Distance>,
    /// Their mean relative to the steady level.
    pub from_steady: Option<Distance>,
    /// Every iteration of every process, for a chart.
    pub series: Vec<IterationSeries>,
}

/// The iterations of a process in order, uncounted ones first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IterationSeries {
    /// Which process, counted from 0.
    pub run: u32,
    /// The iterations, in nanoseconds.
    pub iterations_ns: Vec<u64>,
}

/// The cost of a cold start of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdProcess {
    /// The case.
    pub case: Case,
    /// The cost.
    pub start: ColdStart,
}

/// The distance of a mean from a reference.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Distance {
    /// In nanoseconds.
    pub nanos: f64,
    /// As a share of the reference.
    pub share: f64,
}

impl Distance {
    fn of(mean: Option<f64>, other: Option<f64>) -> Option<Self> {
        let (mean, other) = (mean?, other.filter(|other| *other > 0.0)?);
        Some(Self { nanos: mean - other, share: mean / other - 1.0 })
    }
}

/// Compares numbers of warm-up iterations: each with the results of its processes, and with the cold starts that were
/// recorded.
pub fn warmup_study(by_number: &[(usize, Vec<CaseResult>)], cold: &[ColdProcess]) -> Vec<WarmUpRows> {
    let all: Vec<CaseResult> = by_number.iter().flat_map(|(_, results)| results).cloned().collect();
    let rows = |id: &CaseId| {
        let of_case = cold.iter().filter(|process| process.case == id.case).map(|process| &process.start);
        WarmUpRows { cold: middle_start(of_case.collect()).cloned(), ..case_rows(id, by_number) }
    };
    by_case(&all).iter().map(|case| rows(&case.id)).collect()
}

/// Doubts about a study: about the whole, and about the iterations of its largest warm-up.
pub fn warmup_doubts(
    by_number: &[(usize, Vec<CaseResult>)],
    settings: &Settings,
    environment: &Environment,
) -> Vec<SharedDoubt> {
    let largest = by_number.iter().max_by_key(|(iterations, _)| *iterations).map_or(&[][..], |(_, results)| results);
    let mut found = doubts(&cases(largest, None), settings, environment);
    found.retain(|shared| shared.doubt.applies_to_warm_ups());
    found
}

fn case_rows(id: &CaseId, by_number: &[(usize, Vec<CaseResult>)]) -> WarmUpRows {
    let of_case = |results: &[CaseResult]| -> Vec<CaseResult> {
        let is_same = |result: &&CaseResult| result.case == id.case && result.device == id.device;
        results.iter().filter(is_same).cloned().collect()
    };
    let own: Vec<(usize, Vec<CaseResult>)> =
        by_number.iter().map(|(iterations, results)| (*iterations, of_case(results))).collect();
    let mut rows: Vec<WarmUpRow> = own.iter().map(|(iterations, results)| row(*iterations, results)).collect();
    let steady_ns = own.iter().max_by_key(|(iterations, _)| *iterations).and_then(|(_, results)| steady(results));
    let reference = rows.iter().find(|row| row.warmup_iterations == REFERENCE_ITERATIONS).and_then(mean);
    for row in &mut rows {
        row.from_reference = Distance::of(mean(row), reference);
        row.from_steady = Distance::of(mean(row), steady_ns);
    }
    let troubles = own
        .iter()
        .flat_map(|(_, results)| by_case(results).iter().flat_map(|case| case.troubles()).collect::<Vec<_>>());
    WarmUpRows { id: id.clone(), steady_ns, rows, troubles: troubles.collect(), cold: None }
}

fn mean(row: &WarmUpRow) -> Option<f64> {
    row.iterations.map(|iterations| iterations.all.mean)
}

fn row(warmup_iterations: usize, results: &[CaseResult]) -> WarmUpRow {
    let measured = || results.iter().filter_map(|result| Some((result.run, result.measured()?)));
    let series = measured().map(|(run, measured)| IterationSeries {
        run,
        iterations_ns: [measured.warmup_ns.as_slice(), &measured.wall_ns].concat(),
    });
    let series: Vec<IterationSeries> = series.collect();
    WarmUpRow {
        warmup_iterations,
        first_ns: median_of(series.iter().filter_map(|series| series.iterations_ns.first()).map(|&first| first as f64)),
        iterations: Figures::of(measured().map(|(_, measured)| numbers(&measured.wall_ns)).collect()),
        from_reference: None,
        from_steady: None,
        series,
    }
}

/// The median of the steady levels of all processes that have one.
fn steady(results: &[CaseResult]) -> Option<f64> {
    let found = warmup(results);
    median_of(found.iter().flat_map(|case| &case.processes).filter_map(|process| process.steady_ns))
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::run::{Measured, Outcome};

    /// A process whose first iteration takes 500 and all others 100; the first `warmup` are not counted.
    fn result(run: u32, warmup: usize) -> CaseResult {
        let iterations: Vec<u64> = std::iter::once(500).chain(std::iter::repeat_n(100, warmup + 9)).collect();
        let (early, counted) = iterations.split_at(warmup);
        let measured = Measured { warmup_ns: early.to_vec(), wall_ns: counted.to_vec(), ..Measured::default() };
        let case = Case::new(vec![("size".to_owned(), 8.into())]);
        CaseResult::new("model", "cpu", case, run, "", Outcome::Measured(measured))
    }

    #[test]
    fn without_warm_up_the_mean_includes_the_first_iteration() {
        let by_number: Vec<_> =
            [0, 1, 5].map(|iterations| (iterations, vec![result(0, iterations), result(1, iterations)])).into();
        let study = warmup_study(&by_number, &[]);
        let [case] = study.as_slice() else { panic!("{study:?}") };
        assert_eq!(case.steady_ns, Some(100.0));
        let shares: Vec<Option<f64>> = case.rows.iter().map(|row| Some(row.from_reference?.share)).collect();
        assert!((shares[0].unwrap() - 0.4).abs() < 1e-9, "the mean of 500 and nine times 100 is 140");
        assert_eq!(shares[1..], [Some(0.0), Some(0.0)]);
        let off = case.rows[0].from_steady.unwrap();
        assert!((off.nanos - 40.0).abs() < 1e-9 && case.rows[0].iterations.unwrap().all.n == 20);
        assert!(case.rows.iter().all(|row| row.first_ns == Some(500.0)));
    }

    #[test]
    fn every_iteration_of_every_process_is_kept_in_order() {
        let study = warmup_study(&[(1, vec![result(0, 1), result(1, 1)])], &[]);
        let series = &study[0].rows[0].series;
        assert_eq!(series.iter().map(|series| series.run).collect::<Vec<_>>(), [0, 1]);
        assert!(
            series.iter().all(|series| series.iterations_ns.len() == 11 && series.iterations_ns[..2] == [500, 100])
        );
    }

    #[test]
    fn the_cold_start_is_from_the_median_process() {
        let start = |first_ns: u64| ColdStart {
            before_ns: 0,
            before: Vec::new(),
            first_ns,
            steady_ns: None,
            beyond: Vec::new(),
            rest_in: Vec::new(),
        };
        let of = |case: &Case, first_ns: u64| ColdProcess { case: case.clone(), start: start(first_ns) };
        let (own, other) = (result(0, 0).case, Case::new(vec![("size".to_owned(), 9.into())]));
        let cold = [of(&own, 900), of(&own, 500), of(&own, 510), of(&other, 1)];
        let study = warmup_study(&[(0, vec![result(0, 0)])], &cold);
        assert_eq!(study[0].cold.as_ref().map(|start| start.first_ns), Some(510));
        assert_eq!(warmup_study(&[(0, vec![result(0, 0)])], &[])[0].cold, None);
    }

    #[test]
    fn without_the_reference_row_nothing_is_compared_with_it() {
        let study = warmup_study(&[(0, vec![result(0, 0)]), (2, vec![result(0, 2)])], &[]);
        assert!(study[0].rows.iter().all(|row| row.from_reference.is_none() && row.from_steady.is_some()));
    }

    #[test]
    fn a_failed_warm_up_count_is_a_row_without_figures() {
        let mut failed = result(0, 5);
        failed.outcome = Outcome::Failed { errors: vec!["it broke".to_owned()], wall_ns: Vec::new() };
        let study = warmup_study(&[(0, vec![result(0, 0)]), (5, vec![failed])], &[]);
        let case = &study[0];
        assert_eq!((case.rows[1].iterations, case.rows[0].from_reference, case.troubles.len()), (None, None, 1));
        assert_eq!(warmup_study(&[], &[]), []);
    }
}
