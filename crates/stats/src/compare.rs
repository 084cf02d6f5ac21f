//! Which of two things is faster, if that can be said.
//!
//! Both were measured in several processes. The answer has three parts: the
//! difference with its interval, the floor below which a difference means
//! nothing on this machine, and the verdict that follows from the two.
//!
//! The interval of the difference is that of the rank sum test, which a few odd
//! processes hardly move; of three processes a side it is resampled.
//!
//! A side is faster or slower if the interval excludes zero and the difference
//! itself lies beyond the floor. To ask for the whole interval beyond the
//! floor would leave almost no false alarms, but of true slowdowns of 5 % it
//! found 90, 58 and 30 of 100 at spreads of 1, 1.5 and 2 % between five
//! processes a side, where this rule found 99, 94 and 76 (made-up recordings).

use std::fmt;

use crate::bootstrap::{percentile_interval, student_stretch};
use crate::group::{Group, RESAMPLES};
use crate::interval::Interval;
use crate::random::Rng;
use crate::shift::shift;
use crate::summary::LEVEL;

/// The smallest noise floor: differences of 1 % come and go with memory
/// layout on the quietest of machines.
pub const LEAST_FLOOR: f64 = 0.01;

/// With fewer processes on a side every verdict is unclear. Three gave at most
/// 2 % false alarms on made-up recordings; the spread of two is too uncertain.
pub const LEAST_PROCESSES: usize = 3;

/// How two groups are compared.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Settings {
    /// A relative difference that the user does not care about. It raises the
    /// noise floor and never lowers it.
    pub threshold: Option<f64>,
    /// What the resampling starts from.
    pub seed: u64,
}

/// What is known of two things after comparing them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Comparison {
    /// The first side, which the second is measured against.
    pub a: Level,
    /// The second side.
    pub b: Level,
    /// The typical value of B over that of A, less one: 0.05 is 5 % slower.
    pub difference: f64,
    /// The interval of the difference.
    pub interval: Interval,
    /// The relative difference that may be noise.
    pub floor: Floor,
    /// The decision.
    pub verdict: Verdict,
}

/// Where the takes of one side lie.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Level {
    /// How many processes there are.
    pub processes: usize,
    /// How many takes there are in all of them.
    pub takes: usize,
    /// The typical value, as [`Group`] defines it.
    pub typical: f64,
    /// The interval of the typical value.
    pub interval: Interval,
    /// The relative spread between processes, if there are two.
    pub between: Option<f64>,
    /// The relative spread between the takes of a process, if there are two.
    pub within: Option<f64>,
}

/// The relative difference that may be noise, and why it is that.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Floor {
    /// The difference as a share: 0.01 is 1 %.
    pub share: f64,
    /// What set it.
    pub origin: Origin,
}

/// What set a noise floor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// [`LEAST_FLOOR`].
    Least,
    /// The spread between the processes of the side that has the larger one.
    Spread,
    /// The threshold of the user.
    Threshold,
}

/// How the second side compares with the first. The takes are times: larger
/// is slower.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Verdict {
    /// The interval lies below zero, and the difference below the floor.
    Faster,
    /// The interval lies above zero, and the difference above the floor.
    Slower,
    /// The whole interval lies within the floor.
    Same,
    /// Nothing can be said, and why.
    Unclear(Reason),
}

/// Why a comparison has no answer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Reason {
    /// A side has fewer than [`LEAST_PROCESSES`].
    TooFewProcesses {
        /// How many the smaller side has.
        found: usize,
    },
    /// The interval holds zero and also differences beyond the floor.
    TooWide {
        /// The end of the interval that is furthest from zero.
        furthest: f64,
    },
    /// The sides differ, perhaps by more than the floor and perhaps by less.
    AroundFloor,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooFewProcesses { found } => {
                write!(f, "a side has {found} of the {LEAST_PROCESSES} processes that an answer needs")
            }
            Self::TooWide { furthest } => {
                write!(f, "the difference may be nothing and may be {:+.1} %", 100.0 * furthest)
            }
            Self::AroundFloor => write!(f, "there is a difference, but perhaps less than the noise floor"),
        }
    }
}

/// Compares B with A.
///
/// Swapping the sides gives the mirror image, bit for bit: the difference is
/// taken between logarithms, and the sides are resampled in an order of their
/// own.
///
/// ```
/// use laptime_stats::{Group, Settings, Verdict, compare};
///
/// let before = Group::new(&[vec![10.0, 10.1], vec![10.0, 9.9], vec![10.1], vec![9.9]]).unwrap();
/// let after = Group::new(&[vec![12.0, 12.1], vec![12.0, 11.9], vec![12.1], vec![11.9]]).unwrap();
/// let comparison = compare(&before, &after, &Settings::default());
/// assert_eq!(comparison.verdict, Verdict::Slower);
/// ```
pub fn compare(a: &Group, b: &Group, settings: &Settings) -> Comparison {
    let is_swapped = b < a;
    let (first, second) = if is_swapped { (b, a) } else { (a, b) };
    let (sides, log) = measure(first, second, settings.seed).expect("the level is within 0 and 1");
    if is_swapped { sides.swapped().judged(log.swapped(), settings) } else { sides.judged(log, settings) }
}

struct Sides {
    a: Level,
    b: Level,
}

struct LogDifference {
    estimate: f64,
    interval: Interval,
}

impl LogDifference {
    fn swapped(self) -> Self {
        let Interval { low, high, level } = self.interval;
        Self { estimate: -self.estimate, interval: Interval { low: -high, high: -low, level } }
    }
}

fn measure(a: &Group, b: &Group, seed: u64) -> Option<(Sides, LogDifference)> {
    let mut rng = Rng::new(seed);
    let a_draws = a.draws(RESAMPLES, &mut rng);
    let b_draws = b.draws(RESAMPLES, &mut rng);
    let estimate = b.log_typical() - a.log_typical();
    let degrees = welch_degrees([(a, &a_draws), (b, &b_draws)]);
    let stretch = student_stretch(LEVEL, degrees)?;
    let moves = a_draws.iter().zip(&b_draws).map(|(a, b)| estimate + stretch * (b - a));
    let interval = percentile_interval(moves.collect(), LEVEL)?;
    let sides = Sides { a: level(a, &a_draws)?, b: level(b, &b_draws)? };
    let ranked = shift(&a.log_medians(), &b.log_medians(), LEVEL).map(|shift| shift.interval);
    let interval = ranked.unwrap_or(interval);
    // That of the typical values, which people see beside it; ranks and centres rarely disagree, and ranks then win.
    Some((sides, LogDifference { estimate: estimate.clamp(interval.low, interval.high), interval }))
}

/// Returns Welch's degrees of freedom, rounded down: fewer the more one side,
/// with its few processes, makes up of the variance. 0 if a side has only one.
fn welch_degrees(sides: [(&Group, &[f64]); 2]) -> usize {
    let variances = sides.map(|(_, draws)| draws.iter().map(|draw| draw * draw).sum::<f64>() / draws.len() as f64);
    let degrees = sides.map(|(group, _)| (group.processes() - 1) as f64);
    let [a, b] = variances;
    if a + b == 0.0 {
        return degrees[0].min(degrees[1]) as usize;
    }
    ((a + b).powi(2) / (a * a / degrees[0] + b * b / degrees[1])) as usize
}

fn level(group: &Group, draws: &[f64]) -> Option<Level> {
    Some(Level {
        processes: group.processes(),
        takes: group.takes(),
        typical: group.typical(),
        interval: group.interval_of(draws, LEVEL)?,
        between: group.between(),
        within: group.within(),
    })
}

impl Sides {
    fn swapped(self) -> Self {
        Self { a: self.b, b: self.a }
    }

    fn judged(self, log: LogDifference, settings: &Settings) -> Comparison {
        let Self { a, b } = self;
        let floor = Floor::of(&a, &b, settings.threshold);
        let fewest = a.processes.min(b.processes);
        let verdict = if fewest < LEAST_PROCESSES {
            Verdict::Unclear(Reason::TooFewProcesses { found: fewest })
        } else {
            judge(&log, floor.share.ln_1p())
        };
        Comparison { a, b, difference: log.estimate.exp_m1(), interval: log.interval.map(f64::exp_m1), floor, verdict }
    }
}

impl Floor {
    fn of(a: &Level, b: &Level, threshold: Option<f64>) -> Self {
        let spread = a.between.unwrap_or(0.0).max(b.between.unwrap_or(0.0));
        let mut floor = Self { share: LEAST_FLOOR, origin: Origin::Least };
        for (share, origin) in [(spread, Origin::Spread), (threshold.unwrap_or(0.0), Origin::Threshold)] {
            if share > floor.share {
                floor = Self { share, origin };
            }
        }
        floor
    }
}

fn judge(log: &LogDifference, floor: f64) -> Verdict {
    let Interval { low, high, .. } = log.interval;
    let is_decided = (low > 0.0 || high < 0.0) && log.estimate.abs() > floor;
    if -floor <= low && high <= floor {
        Verdict::Same
    } else if is_decided && log.estimate > 0.0 {
        Verdict::Slower
    } else if is_decided {
        Verdict::Faster
    } else if low > 0.0 || high < 0.0 {
        Verdict::Unclear(Reason::AroundFloor)
    } else {
        let furthest = if high > -low { high } else { low };
        Verdict::Unclear(Reason::TooWide { furthest: furthest.exp_m1() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(estimate: f64, low: f64, high: f64) -> Verdict {
        judge(&LogDifference { estimate, interval: Interval { low, high, level: 0.95 } }, 0.01)
    }

    fn group(typical: f64) -> Group {
        let process = |shift: f64| vec![typical * (1.0 + shift), typical * (1.001 + shift)];
        Group::new(&[-0.002, -0.001, 0.0, 0.001, 0.002].map(process)).unwrap()
    }

    fn few(typical: f64, processes: usize) -> Group {
        Group::new(&vec![vec![typical]; processes]).unwrap()
    }

    fn compared(a: &Group, b: &Group) -> Comparison {
        compare(a, b, &Settings::default())
    }

    #[test]
    fn an_interval_on_one_side_of_zero_with_the_difference_beyond_the_floor_decides() {
        assert_eq!(verdict(0.03, 0.005, 0.06), Verdict::Slower);
        assert_eq!(verdict(-0.03, -0.06, -0.005), Verdict::Faster);
    }

    #[test]
    fn an_interval_within_the_floor_is_the_same_even_off_zero() {
        assert_eq!(verdict(0.0, -0.01, 0.01), Verdict::Same);
        assert_eq!(verdict(0.005, 0.001, 0.009), Verdict::Same);
    }

    #[test]
    fn a_certain_difference_at_the_floor_is_unclear() {
        assert_eq!(verdict(0.009, 0.002, 0.016), Verdict::Unclear(Reason::AroundFloor));
    }

    #[test]
    fn an_interval_that_holds_zero_and_more_than_the_floor_is_too_wide() {
        let Verdict::Unclear(Reason::TooWide { furthest }) = verdict(0.03, -0.001, 0.06) else { panic!() };
        assert!((furthest - 0.06_f64.exp_m1()).abs() < 1e-12);
    }

    #[test]
    fn sides_alike_give_the_degrees_of_both_and_one_process_gives_none() {
        let (five, one) = (few(1.0, 5), few(1.0, 1));
        assert_eq!(welch_degrees([(&five, &[0.1, -0.1]), (&five, &[-0.1, 0.1])]), 8);
        assert_eq!(welch_degrees([(&five, &[0.1, -0.1]), (&five, &[0.0, 0.0])]), 4);
        assert_eq!(welch_degrees([(&five, &[0.1, -0.1]), (&one, &[0.1, -0.1])]), 0);
    }

    #[test]
    fn a_fifth_more_time_is_slower_and_the_way_back_faster() {
        let (short, long) = (group(100.0), group(120.0));
        assert_eq!(compared(&short, &long).verdict, Verdict::Slower);
        assert_eq!(compared(&long, &short).verdict, Verdict::Faster);
        assert!((compared(&short, &long).difference - 0.2).abs() < 1e-9);
    }

    #[test]
    fn the_same_takes_are_the_same() {
        assert_eq!(compared(&group(100.0), &group(100.0)).verdict, Verdict::Same);
    }

    #[test]
    fn two_processes_a_side_are_too_few_however_far_apart() {
        let reason = Reason::TooFewProcesses { found: 2 };
        assert_eq!(compared(&few(1.0, 2), &few(9.0, 5)).verdict, Verdict::Unclear(reason));
    }

    #[test]
    fn one_process_a_side_still_gets_its_figures() {
        let comparison = compared(&few(1.0, 1), &few(2.0, 1));
        assert_eq!((comparison.difference, comparison.a.between), (1.0, None));
    }

    #[test]
    fn a_threshold_raises_the_floor() {
        let settings = Settings { threshold: Some(0.3), ..Settings::default() };
        let comparison = compare(&group(100.0), &group(120.0), &settings);
        assert_eq!(comparison.floor, Floor { share: 0.3, origin: Origin::Threshold });
        assert_eq!(comparison.verdict, Verdict::Same);
    }

    #[test]
    fn a_threshold_below_one_per_cent_changes_nothing() {
        let settings = Settings { threshold: Some(0.001), ..Settings::default() };
        let comparison = compare(&group(100.0), &group(100.0), &settings);
        assert_eq!(comparison.floor, Floor { share: LEAST_FLOOR, origin: Origin::Least });
    }

    #[test]
    fn the_wider_spread_of_the_two_sides_sets_the_floor() {
        let wide = Group::new(&[90.0, 95.0, 100.0, 105.0, 110.0].map(|take| vec![take])).unwrap();
        let floor = compared(&group(100.0), &wide).floor;
        assert_eq!((floor.origin, Some(floor.share)), (Origin::Spread, wide.between()));
    }

    #[test]
    fn a_reason_reads_as_a_sentence() {
        let reasons = [Reason::TooFewProcesses { found: 1 }, Reason::TooWide { furthest: -0.034 }];
        assert_eq!(
            reasons.map(|reason| reason.to_string()),
            ["a side has 1 of the 3 processes that an answer needs", "the difference may be nothing and may be -3.4 %"]
        );
    }
}
