//! What several runs say together: the ground of a report.

mod findings;
mod passes;
mod run_names;

pub use self::{
    findings::{FAR_FROM_LIMIT, KeyFinding},
    passes::{LossCurve, Mode, Passes, TrainingCost},
};

use laptime_trace::run::{AxisValue, Case, CaseResult, Run, Settings};

use crate::{
    cases::{CaseFigures, Cases, MeasuredFigures, cases},
    crossover::{Crossovers, KIND, crossovers},
    doubts::{SharedDoubt, doubts},
    scaling::{Scaling, scaling},
    series::{LengthSeries, length_series},
    warmup::{WarmUps, warmup},
};

/// The axis that tells runs apart, where there are several.
pub const RUN_AXIS: &str = "run";

/// A run as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfiledRun {
    /// What its folder is called.
    pub folder: String,
    /// What the results belong to, if that was kept.
    pub run: Option<Run>,
    /// The results.
    pub results: Vec<CaseResult>,
}

impl ProfiledRun {
    /// Whether its takes begin cold: it asks how long a warm-up is, and not how fast something is.
    pub fn is_warm_up(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.settings.cold)
    }

    /// The workload; none of a run without results.
    pub fn workload(&self) -> Option<&str> {
        let of_run = self.run.as_ref().map(|run| run.workload.as_str());
        of_run.or_else(|| self.results.first().map(|result| result.workload.as_str()))
    }
}

/// A run with what tells it from the others, and what speaks against it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRun {
    /// What tells it from other runs of its workload; none if nothing need be told.
    pub name: Option<String>,
    /// The run.
    pub read: ProfiledRun,
    /// What speaks against its figures; nothing is known of a run without settings.
    pub doubts: Vec<SharedDoubt>,
}

/// What several runs say together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profiling {
    /// The runs, in the order given.
    pub runs: Vec<NamedRun>,
    /// Attention alone, over kinds and lengths.
    pub attention: Part,
    /// Whole models.
    pub models: Part,
    /// All else.
    pub others: Part,
    /// Cases that began cold, with the number of takes that did not count.
    pub warmups: Vec<ColdRun>,
}

/// Cases that are told together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Part {
    /// The results; where runs must be told apart, each has its run on an axis.
    pub results: Vec<CaseResult>,
    /// The same in figures.
    pub cases: Vec<CaseFigures>,
    /// The same along their length.
    pub series: Vec<LengthSeries>,
    /// How they grow with length.
    pub scaling: Scaling,
    /// Where kinds of attention change places.
    pub crossovers: Crossovers,
}

/// A run whose takes begin cold.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdRun {
    /// What tells it from the others.
    pub name: Option<String>,
    /// How its first takes run.
    pub warmups: WarmUps,
    /// Takes that did not count.
    pub not_counted: usize,
}

impl Part {
    fn of(results: Vec<CaseResult>, cases: Vec<CaseFigures>) -> Self {
        let (series, scaling, crossovers) = (length_series(&results), scaling(&results), crossovers(&results));
        Self { results, cases, series, scaling, crossovers }
    }

    /// The cases with their figures.
    pub fn measured(&self) -> impl Iterator<Item = (&CaseFigures, &MeasuredFigures)> + Clone {
        self.cases.iter().filter_map(|case| Some((case, case.measured.as_ref()?)))
    }
}

impl MeasuredFigures {
    /// What is known under a name: the median of a metric, or a fact that is a number.
    pub fn number(&self, name: &str) -> Option<f64> {
        let fact = || match self.fact(name)? {
            AxisValue::Int(whole) => Some(*whole as f64),
            AxisValue::Float(number) => Some(*number),
            AxisValue::Bool(_) | AxisValue::Text(_) => None,
        };
        self.metric(name).map(|figures| figures.median).or_else(fact).filter(|number| number.is_finite())
    }
}

/// Puts runs together.
pub fn profiling(runs: Vec<ProfiledRun>) -> Profiling {
    let names = run_names::names(&runs);
    let mut gathered: [(Vec<CaseResult>, Vec<CaseFigures>); 3] = Default::default();
    let mut told = Profiling::default();
    for (read, name) in runs.into_iter().zip(names) {
        let results = with_name(&read.results, name.as_deref());
        if read.is_warm_up() {
            let not_counted = results.iter().filter_map(CaseResult::measured).map(|one| one.warmup_ns.len()).max();
            let (name, not_counted) = (name.clone(), not_counted.unwrap_or(0));
            told.warmups.push(ColdRun { name, warmups: warmup(&results), not_counted });
        } else {
            let peaks = read.run.as_ref().and_then(|run| run.peaks.as_ref());
            for case in cases(&results, peaks).cases {
                gathered[part(&case.id.case)].1.push(case);
            }
            for result in results {
                gathered[part(&result.case)].0.push(result);
            }
        }
        let doubts = doubts_of(&read);
        told.runs.push(NamedRun { name, read, doubts });
    }
    let [attention, models, others] = gathered.map(|(results, cases)| Part::of(results, cases));
    Profiling { attention, models, others, ..told }
}

/// Which part a case belongs to: attention, models, all else.
fn part(case: &Case) -> usize {
    match (case.get("model"), case.get(KIND)) {
        (Some(_), _) => 1,
        (None, Some(_)) => 0,
        (None, None) => 2,
    }
}

fn with_name(results: &[CaseResult], name: Option<&str>) -> Vec<CaseResult> {
    let Some(name) = name else { return results.to_vec() };
    let named = |result: &CaseResult| {
        let values = result.case.values().map(|(axis, value)| (axis.to_owned(), value.clone()));
        let case = Case::new(values.chain([(RUN_AXIS.to_owned(), name.into())]).collect());
        CaseResult { case, ..result.clone() }
    };
    results.iter().map(named).collect()
}

fn doubts_of(read: &ProfiledRun) -> Vec<SharedDoubt> {
    let Some(run) = &read.run else { return Vec::new() };
    let Settings { cold, .. } = run.settings;
    let found: Cases = cases(&read.results, run.peaks.as_ref());
    if cold { Vec::new() } else { doubts(&found, &run.settings, &run.environment) }
}

#[cfg(test)]
mod tests;
