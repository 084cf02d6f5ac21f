//! Several runs together: the data of a report.

mod findings;
mod passes;
mod run_names;

pub use self::{
    findings::{FAR_FROM_LIMIT, KeyFinding},
    passes::{LossCurve, Mode, TrainingCost, with_pass},
};

use laptime_trace::run::{AxisValue, Case, CaseResult, Run};

use crate::cases::{CaseFigures, MeasuredFigures, cases};
use crate::crossover::{Crossover, KIND, crossovers};
use crate::doubts::{SharedDoubt, doubts};
use crate::scaling::{Scaling, scaling};
use crate::series::{LengthSeries, series};
use crate::warmup::{WarmUp, warmup};

/// The axis for the run, if there are several.
pub const RUN_AXIS: &str = "run";

/// A run as it was read.
#[derive(Debug, Clone, PartialEq)]
pub struct ProfiledRun {
    /// The name of its folder.
    pub folder: String,
    /// The run, if it was kept.
    pub run: Option<Run>,
    /// The results.
    pub results: Vec<CaseResult>,
}

impl ProfiledRun {
    /// Whether its iterations start cold: it measures the warm-up, not the speed.
    pub fn is_warm_up(&self) -> bool {
        self.run.as_ref().is_some_and(|run| run.settings.cold)
    }

    /// The workload; none for a run without results.
    pub fn workload(&self) -> Option<&str> {
        let of_run = self.run.as_ref().map(|run| run.workload.as_str());
        of_run.or_else(|| self.results.first().map(|result| result.workload.as_str()))
    }
}

/// A run with its name, and doubts about it.
#[derive(Debug, Clone, PartialEq)]
pub struct NamedRun {
    /// Its name among runs of its workload; none if it needs none.
    pub name: Option<String>,
    /// The run.
    pub read: ProfiledRun,
    /// Doubts about its figures; empty for a run without settings.
    pub doubts: Vec<SharedDoubt>,
}

/// Several runs together.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Profiling {
    /// The runs, in the order given.
    pub runs: Vec<NamedRun>,
    /// Attention alone, over kinds and lengths.
    pub attention: Part,
    /// Whole models.
    pub models: Part,
    /// All other workloads.
    pub others: Part,
    /// Cases that started cold, with the number of uncounted iterations.
    pub warmups: Vec<ColdRun>,
}

/// Cases of one part of the report.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Part {
    /// The results; if there are several runs, each has its run on an axis.
    pub results: Vec<CaseResult>,
    /// The same in figures.
    pub cases: Vec<CaseFigures>,
    /// The same along the sequence length.
    pub series: Vec<LengthSeries>,
    /// Growth with length.
    pub scaling: Scaling,
    /// Crossover lengths of attention kinds.
    pub crossovers: Vec<Crossover>,
}

/// A run whose iterations start cold.
#[derive(Debug, Clone, PartialEq)]
pub struct ColdRun {
    /// Its name.
    pub name: Option<String>,
    /// How its first iterations behave.
    pub warmups: Vec<WarmUp>,
    /// Uncounted iterations.
    pub not_counted: usize,
}

impl Part {
    fn of(results: Vec<CaseResult>, cases: Vec<CaseFigures>) -> Self {
        let (series, scaling, crossovers) = (series(&results), scaling(&results), crossovers(&results));
        Self { results, cases, series, scaling, crossovers }
    }

    /// The cases with their figures.
    pub fn measured(&self) -> impl Iterator<Item = (&CaseFigures, &MeasuredFigures)> + Clone {
        self.cases.iter().filter_map(|case| Some((case, case.measured.as_ref()?)))
    }
}

impl MeasuredFigures {
    /// A number by name: the median of a metric, or a numeric fact.
    pub fn number(&self, name: &str) -> Option<f64> {
        let fact = || match self.fact(name)? {
            AxisValue::Int(whole) => Some(*whole as f64),
            AxisValue::Float(number) => Some(*number),
            AxisValue::Bool(_) | AxisValue::Text(_) => None,
        };
        self.metric(name).map(|figures| figures.median).or_else(fact).filter(|number| number.is_finite())
    }
}

/// Combines runs.
pub fn profiling(runs: Vec<ProfiledRun>) -> Profiling {
    let names = run_names::names(&runs);
    let mut gathered: [(Vec<CaseResult>, Vec<CaseFigures>); 3] = Default::default();
    let mut answer = Profiling::default();
    for (read, name) in runs.into_iter().zip(names) {
        let results = with_name(&read.results, name.as_deref());
        if read.is_warm_up() {
            let not_counted = results.iter().filter_map(CaseResult::measured).map(|one| one.warmup_ns.len()).max();
            let (name, not_counted) = (name.clone(), not_counted.unwrap_or(0));
            answer.warmups.push(ColdRun { name, warmups: warmup(&results), not_counted });
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
        answer.runs.push(NamedRun { name, read, doubts });
    }
    let [attention, models, others] = gathered.map(|(results, cases)| Part::of(results, cases));
    Profiling { attention, models, others, ..answer }
}

/// The part of a case: attention, models, others.
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
    let Some(run) = read.run.as_ref().filter(|run| !run.settings.cold) else { return Vec::new() };
    doubts(&cases(&read.results, run.peaks.as_ref()), &run.settings, &run.environment)
}

#[cfg(test)]
mod tests;
