//! A doubt: a reason to distrust a figure, with its evidence, as a one-line note.

use std::fmt;

use laptime_stats::SlowStart;
use laptime_trace::run::WarmUp;

use crate::units::{per_cent, three_figures, time};
use crate::{limits::Bound, note::plural};

/// With fewer iterations in its only process, or fewer processes if there are several, a case has no 95 % interval.
const FEW_ITERATIONS: usize = 6;

/// By which factor the spread between processes must exceed the spread within one.
pub(crate) const BETWEEN_OVER_WITHIN: f64 = 2.0;

/// The load per CPU above which other processes were running.
pub(crate) const LOAD_EACH: f64 = 0.5;

/// The recommended number of processes per side for a comparison.
const RUNS: u32 = 10;

/// A reason to distrust a figure.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum Doubt {
    /// The program was built without optimisation.
    Unoptimised { opt_level: String },
    /// Other processes were running when the run started.
    Loaded { load: f64, cpus: u32 },
    /// The run was interrupted.
    Interrupted { iterations: usize },
    /// The device was throttled at the end of some iterations.
    Throttled { iterations: usize, of: usize, reasons: Vec<String> },
    /// The case does more work per second than the measured peak: its share of the peak is above 1.
    BeyondPeak { share: f64, bound: Bound },
    /// The first iterations are slow.
    SlowStart { slow: SlowStart, warmup: WarmUp },
    /// The timings of some processes did not reach a steady state.
    NeverSteady { processes: usize, of: usize },
    /// The iterations became slower by this share and did not recover.
    BecameSlower { by: f64 },
    /// Some iterations are outliers, the furthest by this factor of the median of its process.
    Outliers { iterations: usize, of: usize, furthest: f64 },
    /// The time limit was reached before the half-width of the interval, a share of the median, was as requested.
    TimeUp { half_width: Option<f64>, within: f64, at_most_ns: u64 },
    /// There are too few iterations, or processes if there are several, for a 95 % interval.
    FewIterations { iterations: usize, processes: usize },
    /// The spread between processes is larger than that of their iterations.
    ProcessesDiffer { between: f64, within: f64, processes: usize, runs: u32 },
    /// Each case ran in one process, which is not enough for a comparison.
    OneProcess,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unoptimised { opt_level } => {
                write!(f, "this is a debug build (opt-level {opt_level}); build with `--release` to measure")
            }
            Self::Loaded { load, cpus } => {
                let cpus = plural(*cpus, "CPU", "CPUs");
                write!(f, "load average was {load:.1} on {cpus}; other processes may have affected the timings")
            }
            Self::Interrupted { iterations } => {
                let iterations = plural(*iterations, "iteration", "iterations");
                write!(f, "interrupted after {iterations}; `--resume` measures it again")
            }
            Self::Throttled { iterations, of, reasons } => {
                write!(f, "the device was throttled in {iterations} of {of} iterations ({})", reasons.join(", "))
            }
            Self::BeyondPeak { share, bound } => {
                let (peak, share) = (bound.word(), per_cent(*share));
                write!(f, "{share} of the measured {peak} peak is impossible; measure it again with `laptime peaks`")
            }
            Self::SlowStart { slow, warmup } => slow_start(f, slow, *warmup),
            Self::NeverSteady { processes, of } if *of > 1 => {
                write!(f, "timings did not reach a steady state in {processes} of {of} processes; see `laptime warmup`")
            }
            Self::NeverSteady { .. } => write!(f, "timings did not reach a steady state; see `laptime warmup`"),
            Self::BecameSlower { by } => {
                let by = per_cent(*by);
                write!(f, "timings rose by {by} during the run; the device may be lowering its clock as it heats up")
            }
            Self::Outliers { iterations, of, furthest } => {
                let are = if *iterations == 1 { "is an outlier" } else { "are outliers" };
                write!(f, "{iterations} of {of} iterations {are} (worst {}x the median)", three_figures(*furthest))
            }
            Self::TimeUp { half_width, within, at_most_ns } => {
                let (allowed, within) = (time(*at_most_ns as f64), per_cent(*within));
                match half_width.map(per_cent) {
                    Some(half_width) => write!(
                        f,
                        "stopped at the limit of {allowed} with an interval of ±{half_width} (target ±{within}); raise `--max-time`"
                    ),
                    None => write!(f, "{allowed} was too short for a 95 % interval; raise `--max-time`"),
                }
            }
            Self::FewIterations { iterations, processes } => {
                let (few, flag) = match *processes {
                    0 | 1 => (plural(*iterations, "iteration is", "iterations are"), "iterations"),
                    several => (format!("{several} processes are"), "runs"),
                };
                write!(f, "{few} too few for a 95 % interval; use `--{flag} {FEW_ITERATIONS}` or more")
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
        WarmUp::Iterations(iterations) => write!(f, "use `--warmup {}`", iterations + slow.count),
        WarmUp::Auto => write!(f, "see `laptime warmup`"),
    }
}

impl Doubt {
    /// The id of the note, which `laptime explain` takes.
    pub fn id(&self) -> &'static str {
        self.kind().1
    }

    /// The order of its kind, in which doubts that affect all figures come first, and the id.
    pub(crate) fn kind(&self) -> (u8, &'static str) {
        match self {
            Self::Unoptimised { .. } => (0, "debug-build"),
            Self::Loaded { .. } => (1, "busy-machine"),
            Self::Interrupted { .. } => (2, "interrupted"),
            Self::Throttled { .. } => (3, "throttled"),
            Self::BeyondPeak { .. } => (4, "beyond-peak"),
            Self::SlowStart { .. } => (5, "slow-start"),
            Self::NeverSteady { .. } => (6, "unsteady"),
            Self::BecameSlower { .. } => (7, "slowing-down"),
            Self::TimeUp { .. } => (8, "wide-interval"),
            Self::FewIterations { .. } => (9, "few-iterations"),
            Self::ProcessesDiffer { .. } => (10, "process-spread"),
            Self::Outliers { .. } => (11, "outliers"),
            Self::OneProcess => (12, "one-process"),
        }
    }

    /// Whether the note is only informative: `--verbose` prints it.
    pub fn is_minor(&self) -> bool {
        matches!(self, Self::OneProcess)
    }

    /// Whether it is about the whole run, and not about the iterations of a case.
    pub fn is_of_run(&self) -> bool {
        matches!(self, Self::Unoptimised { .. } | Self::Loaded { .. } | Self::OneProcess)
    }

    /// Whether it applies to warm-up studies, where early iterations are slow and the number of iterations is fixed.
    pub(crate) fn applies_to_warm_ups(&self) -> bool {
        use Doubt::{Loaded, Outliers, ProcessesDiffer, Throttled, Unoptimised};
        matches!(self, Unoptimised { .. } | Loaded { .. } | Throttled { .. } | Outliers { .. } | ProcessesDiffer { .. })
    }

    /// How severe it is among doubts of its kind.
    pub(crate) fn weight(&self) -> f64 {
        match self {
            Self::Loaded { load, .. } => *load,
            Self::Throttled { iterations, of, .. } => *iterations as f64 / *of as f64,
            Self::BeyondPeak { share, .. } => *share,
            Self::SlowStart { slow, .. } => slow.count as f64 + slow.slowest / (slow.slowest + slow.rest),
            Self::NeverSteady { processes, .. } => *processes as f64,
            Self::BecameSlower { by } => *by,
            Self::Outliers { furthest, .. } => (furthest - 1.0).abs(),
            Self::TimeUp { half_width, .. } => half_width.unwrap_or(f64::INFINITY),
            Self::Interrupted { iterations } => -(*iterations as f64),
            Self::FewIterations { iterations, processes } => {
                -(if *processes > 1 { *processes } else { *iterations } as f64)
            }
            Self::ProcessesDiffer { between, .. } => *between,
            Self::Unoptimised { .. } | Self::OneProcess => 0.0,
        }
    }
}
