//! Compares two groups and decides which is faster, if the data allow it.
//!
//! Both groups were measured in several processes. The answer has three parts: the difference with its 95 % interval,
//! the margin below which a difference does not matter, and the verdict that follows from the two.
//!
//! The interval is the one of the rank sum test. It assumes nothing about the distribution, and a few outlying
//! processes hardly move it. The spread between processes enters the verdict through this interval alone. It must not
//! widen the margin: on a noisy machine that would call real slowdowns "same", and more processes would not help.

use std::fmt;

use crate::group::Group;
use crate::interval::Interval;
use crate::shift::{rank_probability, shift};
use crate::student::{normal_quantile, welch_probability};
use crate::summary::LEVEL;

/// The smallest margin: differences of 1 % come and go with memory layout even on quiet machines.
pub const LEAST_MARGIN: f64 = 0.01;

/// With fewer processes on both sides, the rank sum test has no 95 % interval.
pub const LEAST_PROCESSES: usize = 4;

/// The largest number of processes per side that is recommended.
pub const MOST_ADVISED: usize = 1000;

/// The factor by which an interval must be narrower than the available distance to fit with a probability of 80 %:
/// (1.96 + 0.84) / 1.96.
const LIKELY_FIT: f64 = 1.43;

/// How two groups are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// A relative difference that the user does not care about. It raises the margin, never lowers it.
    pub threshold: Option<f64>,
    /// The seed of the intervals of each side.
    pub seed: u64,
}

/// The result of comparing two groups.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The first side, the baseline.
    pub a: Level,
    /// The second side.
    pub b: Level,
    /// How they differ, and the verdict.
    pub judged: Judged,
}

/// How the second of two groups differs from the first.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Judged {
    /// The typical value of B over that of A, less one: 0.05 is 5 % slower.
    pub difference: f64,
    /// The 95 % interval of the difference; `None` with too few processes.
    pub interval: Option<Interval>,
    /// The relative difference that does not matter: 0.01 is 1 %.
    pub margin: f64,
    /// The decision.
    pub verdict: Verdict,
    /// If the verdict is unclear: about how many processes per side would decide it with a probability of 80 %, if the
    /// difference and the spread stay the same. `None` above [`MOST_ADVISED`].
    pub needed: Option<usize>,
}

/// The summary of one side.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// How many processes there are.
    pub processes: usize,
    /// The number of iterations in all processes.
    pub iterations: usize,
    /// The typical value, as [`Group`] defines it.
    pub typical: f64,
    /// The 95 % interval of the typical value, as [`Group::interval`] gives it.
    pub interval: Option<Interval>,
    /// The relative spread between processes, if there are at least two.
    pub between: Option<f64>,
    /// The relative spread between the iterations of a process, if there are at least two.
    pub within: Option<f64>,
}

/// How the second side compares with the first. Iterations are times: larger is slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// The interval is below zero, and the difference is beyond the margin.
    Faster,
    /// The interval is above zero, and the difference is beyond the margin.
    Slower,
    /// The whole interval is within the margin.
    Same,
    /// No decision, and why.
    Unclear(Reason),
}

impl Verdict {
    /// The verdict in a word.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Faster => "faster",
            Self::Slower => "slower",
            Self::Same => "same",
            Self::Unclear(_) => "unclear",
        }
    }
}

/// Counts of each verdict.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "each field counts the verdict of its name")]
pub struct Tally {
    pub faster: usize,
    pub slower: usize,
    pub same: usize,
    pub unclear: usize,
}

impl Tally {
    /// Counts one verdict.
    pub fn add(&mut self, verdict: Verdict) {
        *match verdict {
            Verdict::Faster => &mut self.faster,
            Verdict::Slower => &mut self.slower,
            Verdict::Same => &mut self.same,
            Verdict::Unclear(_) => &mut self.unclear,
        } += 1;
    }

    /// Returns the number of verdicts.
    pub fn all(&self) -> usize {
        self.faster + self.slower + self.same + self.unclear
    }
}

/// Why a comparison has no answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// There are too few processes for a 95 % interval of the difference.
    TooFewProcesses {
        /// The number of processes on the smaller side.
        found: usize,
    },
    /// The interval contains zero and also differences beyond the margin.
    TooWide {
        /// The end of the interval that is furthest from zero.
        furthest: f64,
    },
    /// The sides differ, but the interval contains differences within the margin and beyond it.
    AroundMargin,
    /// The interval excludes zero, but with this number of cases that happens by chance.
    ManyCases {
        /// The number of compared cases.
        cases: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewProcesses { found } => {
                let are = if *found == 1 { "process on a side is" } else { "processes on a side are" };
                write!(f, "{found} {are} too few for a 95 % interval; use at least {LEAST_PROCESSES}")
            }
            Self::TooWide { furthest } => {
                write!(f, "the difference may be zero or as large as {:+.1} %", 100.0 * furthest)
            }
            Self::AroundMargin => write!(f, "there is a difference, but it may be smaller than the margin"),
            Self::ManyCases { cases } => {
                write!(f, "a difference like this is expected by chance among {cases} cases")
            }
        }
    }
}

/// Compares B with A, with the figures of each side.
///
/// Swapping the sides gives the mirror image: the difference is taken between logarithms.
///
/// ```
/// use laptime_stats::{Group, Settings, Verdict, compare};
///
/// let before = Group::new(&[vec![10.0, 10.1], vec![10.0, 9.9], vec![10.1], vec![9.9]]).unwrap();
/// let after = Group::new(&[vec![12.0, 12.1], vec![12.0, 11.9], vec![12.1], vec![11.9]]).unwrap();
/// let comparison = compare(&before, &after, &Settings::default());
/// assert_eq!(comparison.judged.verdict, Verdict::Slower);
/// ```
pub fn compare(a: &Group, b: &Group, settings: &Settings) -> Comparison {
    let level = |group: &Group| Level {
        processes: group.processes(),
        iterations: group.iterations(),
        typical: group.typical(),
        interval: group.interval(LEVEL, settings.seed),
        between: group.between(),
        within: group.within(),
    };
    Comparison { a: level(a), b: level(b), judged: judge(a, b, settings.threshold) }
}

/// Judges how B differs from A.
pub fn judge(a: &Group, b: &Group, threshold: Option<f64>) -> Judged {
    Differing::of(a, b).judged(margin(threshold), 1, true)
}

/// Judges several pairs of one comparison together.
///
/// Each interval is a 95 % interval. But among 40 pairs without a difference, two intervals exclude zero by chance, so
/// a pair is called faster or slower only if Holm's correction allows it: the probability of one or more wrong verdicts
/// among all pairs is at most 5 %.
///
/// The probabilities come from the rank sum test. With few processes there are few possible orders (two of the 252
/// orders of five per side are the most extreme), which can be too few for the correction however far apart the sides
/// are. In that case Welch's t test of the logarithms is used: its assumption is stronger, and it uses the distance.
/// The interval must exclude zero in either case.
pub fn judge_all(pairs: &[(Group, Group)], threshold: Option<f64>) -> Vec<Judged> {
    let found: Vec<Differing> = pairs.iter().map(|(a, b)| Differing::of(a, b)).collect();
    let testable: Vec<usize> = (0..found.len()).filter(|&at| found[at].interval.is_some()).collect();
    let level = 1.0 - (1.0 - LEVEL) / testable.len().max(1) as f64;
    let probabilities: Vec<f64> = testable.iter().map(|&at| probability(&pairs[at], level)).collect();
    let rejected = holm(&probabilities, 1.0 - LEVEL);
    let mut is_apart = vec![false; found.len()];
    for (&at, is_rejected) in testable.iter().zip(rejected) {
        is_apart[at] = is_rejected;
    }
    let judged = |(found, is_apart): (Differing, bool)| found.judged(margin(threshold), testable.len(), is_apart);
    found.into_iter().zip(is_apart).map(judged).collect()
}

/// Returns the probability that two equal groups are at least this far apart, by a test that can reach this level.
fn probability((a, b): &(Group, Group), level: f64) -> f64 {
    let (a, b) = (a.log_medians(), b.log_medians());
    let is_reached = shift(&a, &b, level).is_some();
    let welch = if is_reached { None } else { welch_probability(&a, &b) };
    welch.unwrap_or_else(|| rank_probability(&a, &b))
}

fn margin(threshold: Option<f64>) -> f64 {
    threshold.unwrap_or(0.0).max(LEAST_MARGIN)
}

/// Returns which hypotheses Holm's procedure rejects: the smallest probability is compared with `alpha` divided by
/// their number, the next with one fewer, until one is not rejected. The probability of a wrong rejection is at most
/// `alpha`, however the hypotheses depend on each other.
pub fn holm(probabilities: &[f64], alpha: f64) -> Vec<bool> {
    let mut order: Vec<usize> = (0..probabilities.len()).collect();
    order.sort_by(|&one, &other| probabilities[one].total_cmp(&probabilities[other]));
    let mut rejected = vec![false; probabilities.len()];
    for (rank, &at) in order.iter().enumerate() {
        let left = (probabilities.len() - rank) as f64;
        // Tolerates rounding in the sum of the probabilities.
        if probabilities[at] > alpha / left * (1.0 + 1e-9) {
            break;
        }
        rejected[at] = true;
    }
    rejected
}

/// How two groups differ, on the scale of logarithms.
struct Differing {
    estimate: f64,
    interval: Option<Interval>,
    processes: [usize; 2],
}

impl Differing {
    fn of(a: &Group, b: &Group) -> Self {
        let (logs_a, logs_b) = (a.log_medians(), b.log_medians());
        let interval = shift(&logs_a, &logs_b, LEVEL).map(|shift| shift.interval);
        // The difference of the typical values, which are shown next to it. It is rarely outside the interval.
        let estimate = b.log_typical() - a.log_typical();
        let estimate = interval.map_or(estimate, |ends| estimate.clamp(ends.low, ends.high));
        Self { estimate, interval, processes: [a.processes(), b.processes()] }
    }

    fn judged(self, margin: f64, cases: usize, is_apart: bool) -> Judged {
        let verdict = self.verdict(margin.ln_1p(), cases, is_apart);
        Judged {
            difference: self.estimate.exp_m1(),
            interval: self.interval.map(|interval| interval.map(f64::exp_m1)),
            margin,
            verdict,
            needed: self.needed(verdict, margin.ln_1p()),
        }
    }

    fn verdict(&self, margin: f64, cases: usize, is_apart: bool) -> Verdict {
        let Some(Interval { low, high, .. }) = self.interval else {
            let [a, b] = self.processes;
            return Verdict::Unclear(Reason::TooFewProcesses { found: a.min(b) });
        };
        let excludes_zero = low > 0.0 || high < 0.0;
        if -margin <= low && high <= margin {
            Verdict::Same
        } else if !excludes_zero {
            let furthest = if high > -low { high } else { low };
            Verdict::Unclear(Reason::TooWide { furthest: furthest.exp_m1() })
        } else if self.estimate.abs() <= margin {
            Verdict::Unclear(Reason::AroundMargin)
        } else if !is_apart {
            Verdict::Unclear(Reason::ManyCases { cases })
        } else if self.estimate > 0.0 {
            Verdict::Slower
        } else {
            Verdict::Faster
        }
    }

    /// The number of processes per side that would decide an unclear verdict: the width of the interval falls with the
    /// square root of their number.
    fn needed(&self, verdict: Verdict, margin: f64) -> Option<usize> {
        let Verdict::Unclear(reason) = verdict else { return None };
        let distance = if self.estimate.abs() > margin { self.estimate.abs() } else { margin - self.estimate.abs() };
        let wider = match reason {
            Reason::TooFewProcesses { .. } => return Some(LEAST_PROCESSES),
            Reason::ManyCases { cases } => {
                normal_quantile(1.0 - (1.0 - LEVEL) / cases as f64)? / normal_quantile(LEVEL)?
            }
            Reason::TooWide { .. } | Reason::AroundMargin => 1.0,
        };
        let [a, b] = self.processes.map(|count| count as f64);
        let arm = 0.5 * self.interval?.width() * wider;
        let needed = 2.0 * a * b / (a + b) * (LIKELY_FIT * arm / distance).powi(2);
        // More than the current number, whatever the estimate is: the current number was not enough.
        let needed = needed.max(a.min(b) + 1.0);
        (needed <= MOST_ADVISED as f64).then_some(needed.ceil() as usize)
    }
}

#[cfg(test)]
mod tests;
