//! A doubt: a reason to distrust a figure, with its evidence, as a one-line note.

use std::fmt;

use laptime_stats::SlowStart;
use laptime_trace::run::WarmUp;

use crate::{
    limits::Bound,
    units::{per_cent, three_figures, time},
};

/// With fewer takes in its only process, or fewer processes if there are several, a case has no 95 % interval.
const FEW_TAKES: usize = 6;

/// How many times the spread within a process the spread between processes must be.
pub(crate) const BETWEEN_OVER_WITHIN: f64 = 2.0;

/// The load for each processor from which on others were at work.
pub(crate) const LOAD_EACH: f64 = 0.5;

/// The processes a side that comparing asks for.
const RUNS: u32 = 10;

/// Something that speaks against a figure.
#[derive(Debug, Clone, PartialEq)]
pub enum Doubt {
    /// The program was built without optimisation.
    Unoptimised {
        /// The level of optimisation.
        opt_level: String,
    },
    /// Others were at work when the run began.
    Loaded {
        /// Processes that wanted to run.
        load: f64,
        /// Processors.
        cpus: u32,
    },
    /// Somebody stopped the run.
    Interrupted {
        /// Takes until then.
        takes: usize,
    },
    /// The device's clock was held down.
    Throttled {
        /// At the end of how many takes.
        takes: usize,
        /// Of how many.
        of: usize,
        /// Why.
        reasons: Vec<String>,
    },
    /// The case does more work per second than the measured peak.
    BeyondPeak {
        /// Its rate as a share of the peak: above 1.
        share: f64,
        /// Which peak.
        bound: Bound,
    },
    /// The first takes are slow.
    SlowStart {
        /// What was seen.
        slow: SlowStart,
        /// The takes that were left out.
        warmup: WarmUp,
    },
    /// The takes never became steady.
    NeverSteady {
        /// Processes in which they did not.
        processes: usize,
        /// Processes that were measured.
        of: usize,
    },
    /// The takes became slower and stayed so.
    BecameSlower {
        /// By how much, as a share.
        by: f64,
    },
    /// Some takes stand apart.
    Outliers {
        /// How many.
        takes: usize,
        /// Of how many.
        of: usize,
        /// The furthest, over the median of its process.
        furthest: f64,
    },
    /// Time was up before the interval was narrow.
    TimeUp {
        /// How far the interval reaches, as a share of the median.
        reach: Option<f64>,
        /// How far it was to reach.
        within: f64,
        /// The time that was allowed, in nanoseconds.
        at_most_ns: u64,
    },
    /// There are too few takes, or processes if there are several, for a 95 % interval.
    FewTakes {
        /// How many takes.
        takes: usize,
        /// How many processes.
        processes: usize,
    },
    /// Processes differ by more than their takes.
    ProcessesDiffer {
        /// The spread between processes.
        between: f64,
        /// The spread within one.
        within: f64,
        /// Processes.
        processes: usize,
        /// Processes that were asked for.
        runs: u32,
    },
    /// There is only one process a case, which is no ground for comparing.
    OneProcess,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unoptimised { opt_level } => {
                write!(f, "this is a debug build (opt-level {opt_level}); build with `--release` to measure")
            }
            Self::Loaded { load, cpus } => {
                let cpus = counted(*cpus as usize, "CPU");
                write!(f, "load average was {load:.1} on {cpus}; other processes may have affected the timings")
            }
            Self::Interrupted { takes } => {
                write!(f, "interrupted after {}; `--resume` measures it again", counted(*takes, "iteration"))
            }
            Self::Throttled { takes, of, reasons } => {
                write!(f, "the device was throttled in {takes} of {of} iterations ({})", reasons.join(", "))
            }
            Self::BeyondPeak { share, bound } => {
                let peak = match bound {
                    Bound::Arithmetic => "arithmetic",
                    Bound::Memory => "memory",
                };
                let share = per_cent(*share);
                write!(f, "{share} of the measured {peak} peak is impossible; measure it again with `laptime peaks`")
            }
            Self::SlowStart { slow, warmup } => slow_start(f, slow, *warmup),
            Self::NeverSteady { processes, of } if *of > 1 => {
                write!(f, "timings did not reach a steady state in {processes} of {of} processes; see `laptime warmup`")
            }
            Self::NeverSteady { .. } => write!(f, "timings did not reach a steady state; see `laptime warmup`"),
            Self::BecameSlower { by } => {
                write!(f, "timings rose by {} during the run, as when clocks drop with heat", per_cent(*by))
            }
            Self::Outliers { takes, of, furthest } => {
                let are = if *takes == 1 { "is an outlier" } else { "are outliers" };
                write!(f, "{takes} of {of} iterations {are} (worst {}x the median)", three_figures(*furthest))
            }
            Self::TimeUp { reach, within, at_most_ns } => {
                let (allowed, within) = (time(*at_most_ns as f64), per_cent(*within));
                match reach.map(per_cent) {
                    Some(reach) => write!(
                        f,
                        "after {allowed} the interval was ±{reach} of the median, not ±{within}; raise `--max-time`"
                    ),
                    None => write!(f, "{allowed} was too short for a 95 % interval; raise `--max-time`"),
                }
            }
            Self::FewTakes { takes, processes } => {
                let (count, what, flag) = if *processes > 1 {
                    (*processes, "processes", "runs")
                } else {
                    (*takes, "iterations", "iterations")
                };
                let few = if count == 1 { "1 iteration is".to_owned() } else { format!("{count} {what} are") };
                write!(f, "{few} too few for a 95 % interval; use `--{flag} {FEW_TAKES}` or more")
            }
            Self::ProcessesDiffer { between, within, processes, .. } => write!(
                f,
                "{processes} processes differ by {}, iterations within one by {}; compare with several `--runs`",
                per_cent(*between),
                per_cent(*within)
            ),
            Self::OneProcess => write!(f, "each case ran in one process; to compare runs, use `--runs {RUNS}`"),
        }
    }
}

fn slow_start(f: &mut fmt::Formatter<'_>, slow: &SlowStart, warmup: WarmUp) -> fmt::Result {
    let (slowest, rest) = (time(slow.slowest), time(slow.rest));
    match slow.count {
        1 => write!(f, "the first iteration took {slowest}, the others {rest}; ")?,
        count => write!(f, "the first {count} iterations took up to {slowest}, the others {rest}; ")?,
    }
    match warmup {
        WarmUp::Takes(takes) => write!(f, "use `--warmup {}`", takes + slow.count),
        WarmUp::Found => write!(f, "see `laptime warmup`"),
    }
}

fn counted(count: usize, what: &str) -> String {
    match count {
        1 => format!("1 {what}"),
        _ if what.ends_with('s') => format!("{count} {what}es"),
        _ => format!("{count} {what}s"),
    }
}

impl Doubt {
    /// The id of the note, which `laptime explain` takes.
    pub fn id(&self) -> &'static str {
        match self {
            Self::Unoptimised { .. } => "debug-build",
            Self::Loaded { .. } => "busy-machine",
            Self::Interrupted { .. } => "interrupted",
            Self::Throttled { .. } => "throttled",
            Self::BeyondPeak { .. } => "beyond-peak",
            Self::SlowStart { .. } => "slow-start",
            Self::NeverSteady { .. } => "unsteady",
            Self::BecameSlower { .. } => "slowing-down",
            Self::Outliers { .. } => "outliers",
            Self::TimeUp { .. } => "wide-interval",
            Self::FewTakes { .. } => "few-iterations",
            Self::ProcessesDiffer { .. } => "process-spread",
            Self::OneProcess => "one-process",
        }
    }

    /// Whether the note only informs: it is printed with `--verbose` alone.
    pub fn is_minor(&self) -> bool {
        matches!(self, Self::OneProcess)
    }

    /// Whether it is about the whole run, and not about the takes of a case.
    pub fn is_of_run(&self) -> bool {
        matches!(self, Self::Unoptimised { .. } | Self::Loaded { .. } | Self::OneProcess)
    }

    /// Whether it holds where early takes are meant to be slow, and there are as many takes as were asked for.
    pub(crate) fn holds_of_warm_ups(&self) -> bool {
        use Doubt::{Loaded, Outliers, ProcessesDiffer, Throttled, Unoptimised};
        matches!(self, Unoptimised { .. } | Loaded { .. } | Throttled { .. } | Outliers { .. } | ProcessesDiffer { .. })
    }

    /// How bad it is among doubts of its kind.
    pub(crate) fn weight(&self) -> f64 {
        match self {
            Self::Loaded { load, .. } => *load,
            Self::Throttled { takes, of, .. } => *takes as f64 / *of as f64,
            Self::BeyondPeak { share, .. } => *share,
            Self::SlowStart { slow, .. } => slow.count as f64 + slow.slowest / (slow.slowest + slow.rest),
            Self::NeverSteady { processes, .. } => *processes as f64,
            Self::BecameSlower { by } => *by,
            Self::Outliers { furthest, .. } => (furthest - 1.0).abs(),
            Self::TimeUp { reach, .. } => reach.unwrap_or(f64::INFINITY),
            Self::Interrupted { takes } => -(*takes as f64),
            Self::FewTakes { takes, processes } => -(if *processes > 1 { *processes } else { *takes } as f64),
            Self::ProcessesDiffer { between, .. } => *between,
            Self::Unoptimised { .. } | Self::OneProcess => 0.0,
        }
    }

    /// Where it is told among others: what spoils all figures first.
    pub(crate) fn order(&self) -> u8 {
        match self {
            Self::Unoptimised { .. } => 0,
            Self::Loaded { .. } => 1,
            Self::Interrupted { .. } => 2,
            Self::Throttled { .. } => 3,
            Self::BeyondPeak { .. } => 4,
            Self::SlowStart { .. } => 5,
            Self::NeverSteady { .. } => 6,
            Self::BecameSlower { .. } => 7,
            Self::TimeUp { .. } => 8,
            Self::FewTakes { .. } => 9,
            Self::ProcessesDiffer { .. } => 10,
            Self::Outliers { .. } => 11,
            Self::OneProcess => 12,
        }
    }
}
