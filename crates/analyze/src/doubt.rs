//! A doubt: something that speaks against a figure, with its evidence, and how it is told.

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
            Self::Unoptimised { opt_level } => write!(
                f,
                "the program was built with opt-level {opt_level}, so its times say nothing of an optimised one. \
                 Next: build with `--release`."
            ),
            Self::Loaded { load, cpus } => write!(
                f,
                "{load:.1} processes wanted to run on {cpus} processors when the run began (limit: {}); they may have \
                 taken time from it. Next: stop them and measure again.",
                LOAD_EACH * f64::from(*cpus)
            ),
            Self::Interrupted { takes } => {
                write!(f, "it was interrupted after {}. Next: `--resume` measures it anew.", counted(*takes, "take"))
            }
            Self::Throttled { takes, of, reasons } => write!(
                f,
                "at the end of {takes} of {of} takes the device held its clock down ({}; limit: any), so the times are of a \
                 slower device. Next: `laptime doctor` shows its clock, power and temperature; let it rest, or lock a \
                 clock that it can hold.",
                reasons.join(", ")
            ),
            Self::BeyondPeak { share, bound } => beyond_peak(f, *share, *bound),
            Self::SlowStart { slow, warmup } => slow_start(f, slow, *warmup),
            Self::NeverSteady { processes, of } => never_steady(f, *processes, *of),
            Self::BecameSlower { by } => write!(
                f,
                "the takes became slower by {} and stayed so (limit: 1 %), as when clocks fall with heat; the median is \
                 of two levels. Next: watch clocks and temperature, and rest between cases.",
                per_cent(*by)
            ),
            Self::Outliers { takes, of, furthest } => write!(
                f,
                "{takes} of {of} takes {} apart, the furthest at {} x the median (limit: 1.5, or 1.1 if more than 5 % \
                 do); something else ran or allocated. They are kept, and the median hardly heeds them. Next: read p95 and the largest beside the median.",
                if *takes == 1 { "stands" } else { "stand" },
                three_figures(*furthest)
            ),
            Self::TimeUp { reach, within, at_most_ns } => time_up(f, *reach, *within, *at_most_ns),
            Self::FewTakes { takes, processes } => few_takes(f, *takes, *processes),
            Self::ProcessesDiffer { between, within, processes, runs } => {
                processes_differ(f, *between, *within, *processes, *runs)
            }
            Self::OneProcess => write!(
                f,
                "each case ran in one process, so its interval says nothing of the next process. Next: to compare, \
                 `--runs {RUNS}`."
            ),
        }
    }
}

fn beyond_peak(f: &mut fmt::Formatter<'_>, share: f64, bound: Bound) -> fmt::Result {
    let (peak, count) = match bound {
        Bound::Arithmetic => ("arithmetic", "operations"),
        Bound::Memory => ("memory", "bytes"),
    };
    let cached = if bound == Bound::Memory { ", or the bytes stay in a cache" } else { "" };
    write!(
        f,
        "it reaches {} of the measured {peak} peak, so that peak is too low, or the {count} are counted too \
         high{cached}. Next: measure the peaks again on an idle machine, with `laptime peaks`.",
        per_cent(share)
    )
}

fn slow_start(f: &mut fmt::Formatter<'_>, slow: &SlowStart, warmup: WarmUp) -> fmt::Result {
    let (slowest, rest) = (time(slow.slowest), time(slow.rest));
    if slow.count == 1 {
        write!(f, "the first take that counts took {slowest}, the others {rest} (median; limit: 5 % more)")?;
    } else {
        write!(
            f,
            "the first {} takes that count took up to {slowest}, the others {rest} (median; limit: 5 % more)",
            slow.count
        )?;
    }
    write!(f, "; early calls often pay for allocation and loading. Next: ")?;
    match warmup {
        WarmUp::Takes(takes) => write!(f, "`--warmup {}`.", takes + slow.count),
        WarmUp::Found => write!(f, "`laptime warmup` shows how the first takes run."),
    }
}

fn never_steady(f: &mut fmt::Formatter<'_>, processes: usize, of: usize) -> fmt::Result {
    if of > 1 {
        write!(f, "the takes never became steady in {processes} of {of} processes")?;
    } else {
        write!(f, "the takes never became steady")?;
    }
    write!(
        f,
        " (limit: the last third of them), so their median is of something that moves. Next: `laptime warmup` shows how they run."
    )
}

fn time_up(f: &mut fmt::Formatter<'_>, reach: Option<f64>, within: f64, at_most_ns: u64) -> fmt::Result {
    let allowed = time(at_most_ns as f64);
    match reach {
        Some(reach) => write!(f, "after {allowed} the interval still reached {} of the median", per_cent(reach))?,
        None => write!(f, "after {allowed} there was no interval yet")?,
    }
    write!(f, " (asked for: {}); the takes vary or are long. Next: more time, with `--max-time`.", per_cent(within))
}

fn few_takes(f: &mut fmt::Formatter<'_>, takes: usize, processes: usize) -> fmt::Result {
    let (found, flag) = if processes > 1 {
        (counted(processes, "process"), "--runs")
    } else {
        (counted(takes, "iteration"), "--takes")
    };
    let are = if found.starts_with("1 ") { "is" } else { "are" };
    write!(f, "{found} {are} too few for a 95 % interval. Next: use at least {FEW_TAKES}, with `{flag} {FEW_TAKES}`.")
}

fn processes_differ(f: &mut fmt::Formatter<'_>, between: f64, within: f64, processes: usize, runs: u32) -> fmt::Result {
    write!(
        f,
        "the medians of {processes} processes spread by {}, the takes within one by {} (limit: {BETWEEN_OVER_WITHIN} \
         times), so the interval of one process would be too narrow. Next: ",
        per_cent(between),
        per_cent(within)
    )?;
    if runs < RUNS {
        write!(f, "`--runs {RUNS}` for whatever is compared.")
    } else {
        write!(f, "compare by process, as `laptime compare` does, and look for what differs between them.")
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
