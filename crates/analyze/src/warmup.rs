//! How many takes a case needs until it is steady, seen from fresh processes.

use std::fmt;

use laptime_stats::{Sorted, Steadiness, Summary, spread::median, steadiness, steady::LEAST_SAMPLES};
use laptime_trace::run::{CaseResult, Measured};

use crate::{
    by_case::{CaseId, Processes, Trouble, by_case},
    figures::{SEED, numbers},
};

/// Iterations that are to be asked for where there were too few: the steady part must be a third of them.
const ENOUGH_ITERATIONS: usize = 3 * LEAST_SAMPLES;

/// The warm-ups of a run's cases.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct WarmUps {
    /// The cases, in the order in which they were measured.
    pub cases: Vec<WarmUp>,
}

/// The warm-up of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct WarmUp {
    /// Which case.
    pub id: CaseId,
    /// Its processes, by number.
    pub processes: Vec<WarmUpProcess>,
    /// Processes that gave no iterations, and why.
    pub troubles: Vec<Trouble>,
    /// What averaging all iterations would have said; none if no process became steady.
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
    /// All iterations in order, whether they were meant to count or not.
    pub iterations_ns: Vec<u64>,
    /// How they run.
    pub answer: Answer,
    /// Iterations before they are steady.
    pub until_steady: Option<usize>,
    /// The median from there on, in nanoseconds.
    pub steady_ns: Option<f64>,
    /// What the iterations before took longer than that, in all.
    pub lost_ns: Option<f64>,
    /// The mean of all iterations.
    pub mean_ns: f64,
}

/// How the iterations of a process run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// Steady from the first iteration on.
    Flat,
    /// Slower at first, then steady.
    WarmUp,
    /// Faster at first, then steady.
    SlowDown,
    /// Not steady at the end.
    NoSteadyState,
    /// Too few iterations to tell.
    TooShort,
}

impl Answer {
    /// The words by which tables tell it.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Flat => "flat",
            Self::WarmUp => "warm-up",
            Self::SlowDown => "slow-down",
            Self::NoSteadyState => "no steady state",
            Self::TooShort => "too short",
        }
    }
}

/// What to do about the warm-up of a case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Advice {
    /// All processes were steady from the first iteration on.
    NoneNeeded,
    /// So many iterations are to be left out.
    LeaveOut {
        /// How many.
        iterations: usize,
    },
    /// Some processes never became steady.
    NeverSteady {
        /// How many.
        processes: usize,
        /// Of how many.
        of: usize,
    },
    /// Some processes had too few iterations to tell, and all others became steady.
    TooShort {
        /// How many.
        processes: usize,
        /// Of how many.
        of: usize,
    },
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoneNeeded => write!(f, "steady from the first iteration on; `--warmup 0` will do."),
            Self::LeaveOut { iterations: 1 } => write!(f, "leave out the first iteration: `--warmup 1`."),
            Self::LeaveOut { iterations } => {
                write!(f, "leave out the first {iterations} iterations: `--warmup {iterations}`.")
            }
            Self::NeverSteady { processes, of } => write!(
                f,
                "never steady in {processes} of {of} processes, so no number of warm-up iterations will do. Next: take more, \
                 and look at clocks, temperature and what else runs."
            ),
            Self::TooShort { processes, of } => write!(
                f,
                "{processes} of {of} processes had fewer than {LEAST_SAMPLES} takes, which say nothing. Next: take \
                 {ENOUGH_ITERATIONS} or more."
            ),
        }
    }
}

/// What the mean of all iterations would have said, cold ones included.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Averaged {
    /// The mean of all iterations of the processes that became steady, in nanoseconds.
    pub mean_ns: f64,
    /// Their sample standard deviation.
    pub std_ns: Option<f64>,
    /// The median of the steady levels of these processes.
    pub steady_ns: f64,
    /// The mean against it: 0.6 says that the case looks 60 % slower than it is.
    pub error: f64,
}

impl WarmUp {
    /// How many iterations to leave out: the most that a process needed. None if a process never became steady, or was too
    /// short to tell.
    pub fn leave_out(&self) -> Option<usize> {
        self.processes.iter().map(|process| process.until_steady).reduce(|one, other| Some(one?.max(other?)))?
    }

    /// Says what to do about it; none if there is no process to tell of.
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

/// Finds out how the first iterations of each case run.
///
/// Iterations that were left out as warm-up are looked at too, so that results of any run will do; those of fresh processes
/// say most.
pub fn warmup(results: &[CaseResult]) -> WarmUps {
    WarmUps { cases: by_case(results).iter().map(warm_up).collect() }
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
        lost_ns: found.start().zip(steady).map(|(start, steady)| lost(&iterations[..start], steady)),
        mean_ns: iterations.iter().sum::<f64>() / iterations.len() as f64,
        iterations_ns,
    }
}

fn described(found: Steadiness) -> (Answer, Option<f64>) {
    match found {
        Steadiness::Flat { level } => (Answer::Flat, Some(level)),
        Steadiness::WarmUp(from) => (Answer::WarmUp, Some(from.level)),
        Steadiness::SlowDown(from) => (Answer::SlowDown, Some(from.level)),
        Steadiness::NoSteadyState(_) => (Answer::NoSteadyState, None),
        Steadiness::TooShort => (Answer::TooShort, None),
    }
}

/// The time over the steady level; takes that were faster lost nothing.
fn lost(early: &[f64], steady: f64) -> f64 {
    early.iter().map(|iteration| (iteration - steady).max(0.0)).sum()
}

fn averaged(processes: &[WarmUpProcess]) -> Option<Averaged> {
    let steady: Vec<&WarmUpProcess> = processes.iter().filter(|process| process.steady_ns.is_some()).collect();
    let iterations = steady.iter().flat_map(|process| numbers(&process.iterations_ns)).collect();
    let summary = Summary::of(&Sorted::<f64>::from_unsorted(iterations).ok()?, SEED)?;
    let levels: Vec<f64> = steady.iter().filter_map(|process| process.steady_ns).collect();
    let level = median(&levels).filter(|&level| level > 0.0)?;
    let (mean_ns, std_ns) = (summary.mean, summary.std);
    Some(Averaged { mean_ns, std_ns, steady_ns: level, error: mean_ns / level - 1.0 })
}
