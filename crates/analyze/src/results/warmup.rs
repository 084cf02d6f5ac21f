//! How many iterations a case needs to reach a steady state in a fresh process.

use std::fmt;

use laptime_stats::{Sorted, Steadiness, Summary, spread::median_of, steadiness, steady::LEAST_SAMPLES};
use laptime_trace::run::{CaseResult, Measured};

use crate::by_case::{CaseId, Processes, Trouble, by_case};
use crate::figures::{SEED, numbers};

/// The number of iterations to recommend if there were too few: the steady part must be a third of them.
const ENOUGH_ITERATIONS: usize = 3 * LEAST_SAMPLES;

/// The warm-up of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUp {
    /// Which case.
    pub id: CaseId,
    /// Its processes, by number.
    pub processes: Vec<WarmUpProcess>,
    /// Processes that gave no iterations, and why.
    pub troubles: Vec<Trouble>,
    /// The average of all iterations; none if no process reached a steady state.
    pub averaged: Option<Averaged>,
}

/// The warm-up of one process.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUpProcess {
    /// Which process, counted from 0.
    pub run: u32,
    /// The preparation, in nanoseconds.
    pub prepare_ns: u64,
    /// The check of the result, which runs the work once.
    pub check_ns: u64,
    /// All iterations in order, warm-up included.
    pub iterations_ns: Vec<u64>,
    /// How they behave.
    pub answer: Answer,
    /// Iterations before the steady state.
    pub until_steady: Option<usize>,
    /// The median from there on, in nanoseconds.
    pub steady_ns: Option<f64>,
    /// The total extra time of the iterations before it.
    pub extra_ns: Option<f64>,
    /// The mean of all iterations.
    pub mean_ns: f64,
}

laptime_trace::words! {
    /// How the iterations of a process behave.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Answer: words {
        /// Steady from the first iteration on.
        Flat = "flat",
        /// Slower at first, then steady.
        WarmUp = "warm-up",
        /// Faster at first, then steady.
        SlowDown = "slow-down",
        /// Not steady at the end.
        NoSteadyState = "no steady state",
        TooShort = "too short",
    }
}

/// What to do about the warm-up of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum Advice {
    /// All processes were steady from the first iteration on.
    NoneNeeded,
    /// The first iterations should be left out.
    LeaveOut { iterations: usize },
    /// Some processes did not reach a steady state.
    NeverSteady { processes: usize, of: usize },
    /// Some processes had too few iterations, and all others reached a steady state.
    TooShort { processes: usize, of: usize },
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneNeeded => write!(f, "steady from the first iteration on: `--warmup 0` is enough."),
            Self::LeaveOut { iterations: 1 } => write!(f, "leave out the first iteration: `--warmup 1`."),
            Self::LeaveOut { iterations } => {
                write!(f, "leave out the first {iterations} iterations: `--warmup {iterations}`.")
            }
            Self::NeverSteady { processes, of } => write!(
                f,
                "no steady state in {processes} of {of} processes. Try: measure more iterations, and check clocks, \
                 temperature and other processes (`laptime doctor`)."
            ),
            Self::TooShort { processes, of } => write!(
                f,
                "{processes} of {of} processes had fewer than {LEAST_SAMPLES} iterations, which is too few. Try: measure \
                 {ENOUGH_ITERATIONS} or more."
            ),
        }
    }
}

/// The mean of all iterations, cold ones included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averaged {
    /// The mean of all iterations of the processes that reached a steady state, in nanoseconds.
    pub mean_ns: f64,
    /// Their sample standard deviation.
    pub std_ns: Option<f64>,
    /// The median of the steady levels of these processes.
    pub steady_ns: f64,
    /// The relative error of the mean: 0.6 means that the case appears 60 % slower than it is.
    pub error: f64,
}

impl WarmUp {
    /// How many iterations to leave out: the maximum over processes. None if a process did not reach a steady state or
    /// was too short.
    pub fn leave_out(&self) -> Option<usize> {
        self.processes.iter().map(|process| process.until_steady).reduce(|one, other| Some(one?.max(other?)))?
    }

    /// What to do about it; none if there is no process.
    pub fn advice(&self) -> Option<Advice> {
        let (of, never, short) =
            (self.processes.len(), self.count(Answer::NoSteadyState), self.count(Answer::TooShort));
        match self.leave_out() {
            _ if of == 0 => None,
            Some(0) => Some(Advice::NoneNeeded),
            Some(iterations) => Some(Advice::LeaveOut { iterations }),
            None if never > 0 => Some(Advice::NeverSteady { processes: never, of }),
            None => Some(Advice::TooShort { processes: short, of }),
        }
    }

    /// Processes with an answer.
    pub fn count(&self, answer: Answer) -> usize {
        self.processes.iter().filter(|process| process.answer == answer).count()
    }
}

/// Finds out how the first iterations of each case behave.
///
/// Warm-up iterations are included, so the results of any run can be used; fresh processes show the most.
pub fn warmup(results: &[CaseResult]) -> Vec<WarmUp> {
    by_case(results).iter().map(warm_up).collect()
}

fn warm_up(case: &Processes<'_>) -> WarmUp {
    let processes: Vec<WarmUpProcess> = case.measured().map(|(run, measured)| process(run, measured)).collect();
    WarmUp { id: case.id.clone(), troubles: case.troubles(), averaged: averaged(&processes), processes }
}

fn process(run: u32, measured: &Measured) -> WarmUpProcess {
    let iterations_ns = [measured.warmup_ns.as_slice(), &measured.wall_ns].concat();
    let iterations = numbers(&iterations_ns);
    let found = steadiness(&iterations).unwrap_or(Steadiness::TooShort);
    let (answer, steady) = described(found);
    WarmUpProcess {
        run,
        prepare_ns: measured.prepare_ns,
        check_ns: measured.check_ns,
        answer,
        until_steady: found.start(),
        steady_ns: steady,
        extra_ns: found.start().zip(steady).map(|(start, steady)| extra(&iterations[..start], steady)),
        mean_ns: iterations.iter().sum::<f64>() / iterations.len() as f64,
        iterations_ns,
    }
}

fn described(found: Steadiness) -> (Answer, Option<f64>) {
    match found {
        Steadiness::Flat { level } => (Answer::Flat, Some(level)),
        Steadiness::WarmUp(from) => (Answer::WarmUp, Some(from.level)),
        Steadiness::SlowDown(from) => (Answer::SlowDown, Some(from.level)),
        Steadiness::NoSteadyState => (Answer::NoSteadyState, None),
        Steadiness::TooShort => (Answer::TooShort, None),
    }
}

/// The time above the steady level; faster iterations count as zero.
fn extra(early: &[f64], steady: f64) -> f64 {
    early.iter().map(|iteration| (iteration - steady).max(0.0)).sum()
}

fn averaged(processes: &[WarmUpProcess]) -> Option<Averaged> {
    let steady: Vec<&WarmUpProcess> = processes.iter().filter(|process| process.steady_ns.is_some()).collect();
    let iterations = steady.iter().flat_map(|process| numbers(&process.iterations_ns)).collect();
    let summary = Summary::of(&Sorted::<f64>::from_unsorted(iterations).ok()?, SEED)?;
    let level = median_of(steady.iter().filter_map(|process| process.steady_ns)).filter(|&level| level > 0.0)?;
    let (mean_ns, std_ns) = (summary.mean, summary.std);
    Some(Averaged { mean_ns, std_ns, steady_ns: level, error: mean_ns / level - 1.0 })
}
