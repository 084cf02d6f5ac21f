//! How often a comparison gives a false alarm, and how often it misses.
//!
//! From recorded takes of one thing, pairs of sides are drawn that differ in
//! nothing, and judged; then the same pairs with one side slowed a little, and
//! slowed more. Whoever changes a rule of comparing runs this before and after.

use std::fmt;

use crate::compare::{Verdict, judge};
use crate::group::{Group, Unfit};
use crate::quantile::Sorted;
use crate::random::Rng;
use crate::summary::Summary;

/// The largest share of equal sides that may be told apart.
pub const MOST_FALSE_ALARMS: f64 = 0.05;

/// The largest share of slightly slowed sides that may be called the same.
pub const MOST_CALLED_SAME: f64 = 0.025;

/// The smallest share of slowed sides that must be called slower, if the
/// processes of the recording spread by less than [`MOST_SPREAD`].
pub const LEAST_FOUND: f64 = 0.9;

/// See [`LEAST_FOUND`]. The spread is that of [`Group::between`].
pub const MOST_SPREAD: f64 = 0.02;

/// The smallest share of equal sides of ten processes or more that must be
/// called the same, if the processes spread by at most [`QUIET_SPREAD`].
pub const LEAST_SAME: f64 = 0.8;

/// See [`LEAST_SAME`]. The spread is the standard deviation, since outlying
/// processes widen the interval too.
pub const QUIET_SPREAD: f64 = 0.005;

/// How a recording is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// How many processes each side gets.
    pub processes: usize,
    /// How many pairs of sides are drawn.
    pub pairs: usize,
    /// What the takes of the slightly slowed side are multiplied by: beyond
    /// the margin, so that it is not the same.
    pub slight: f64,
    /// What the takes of the slowed side are multiplied by.
    pub slowdown: f64,
    /// What the drawing starts from.
    pub seed: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self { processes: 10, pairs: 500, slight: 1.015, slowdown: 1.05, seed: 0 }
    }
}

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// The relative spread between the processes of the recording.
    pub between: Option<f64>,
    /// The standard deviation of the logarithms of process medians: unlike
    /// [`between`](Self::between) it counts outlying processes.
    pub deviation: Option<f64>,
    /// The relative spread between the takes of a process.
    pub within: Option<f64>,
    /// How many processes each side had.
    pub processes: usize,
    /// The verdicts on sides that differ in nothing.
    pub alike: Tally,
    /// The verdicts on the same sides with the second slowed slightly.
    pub slight: Tally,
    /// The verdicts on the same sides with the second slowed.
    pub slowed: Tally,
}

/// How often each verdict fell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Times the second side was called faster.
    pub faster: usize,
    /// Times it was called slower.
    pub slower: usize,
    /// Times the sides were called the same.
    pub same: usize,
    /// Times nothing was said.
    pub unclear: usize,
}

/// In what a way of comparing falls short.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortfall {
    /// More than [`MOST_FALSE_ALARMS`].
    FalseAlarms,
    /// More than [`MOST_CALLED_SAME`].
    CalledSame,
    /// Less than [`LEAST_FOUND`], although the recording is quiet enough.
    Misses,
    /// Less than [`LEAST_SAME`], although the recording is quiet enough.
    RarelySame,
    /// Every verdict was unclear.
    NeverDecides,
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

    /// Returns how many verdicts there are.
    pub fn all(&self) -> usize {
        self.told_apart() + self.same + self.unclear
    }

    /// Returns how often the sides were called different.
    pub fn told_apart(&self) -> usize {
        self.faster + self.slower
    }

    /// Returns the share of verdicts that were not unclear.
    pub fn decided(&self) -> Option<f64> {
        share(self.told_apart() + self.same, self.all())
    }
}

impl Power {
    /// Returns the share of equal sides that were told apart.
    pub fn false_alarms(&self) -> Option<f64> {
        share(self.alike.told_apart(), self.alike.all())
    }

    /// Returns the share of slowed sides that were called slower.
    pub fn found(&self) -> Option<f64> {
        share(self.slowed.slower, self.slowed.all())
    }

    /// Returns the share of slightly slowed sides that were called the same.
    pub fn called_same(&self) -> Option<f64> {
        share(self.slight.same, self.slight.all())
    }

    /// Returns the share of equal sides that were called the same.
    pub fn same(&self) -> Option<f64> {
        share(self.alike.same, self.alike.all())
    }

    /// Names every requirement that the trial does not meet.
    pub fn shortfalls(&self) -> Vec<Shortfall> {
        let is_below = |most: f64| self.between.is_some_and(|spread| spread < most);
        let is_quiet = self.processes >= 10 && self.deviation.is_some_and(|deviation| deviation <= QUIET_SPREAD);
        let unclear = self.alike.unclear + self.slowed.unclear;
        let checks = [
            (Shortfall::FalseAlarms, self.false_alarms() > Some(MOST_FALSE_ALARMS)),
            (Shortfall::CalledSame, self.called_same() > Some(MOST_CALLED_SAME)),
            (Shortfall::Misses, is_below(MOST_SPREAD) && self.found() < Some(LEAST_FOUND)),
            (Shortfall::RarelySame, is_quiet && self.same() < Some(LEAST_SAME)),
            (Shortfall::NeverDecides, unclear == self.alike.all() + self.slowed.all()),
        ];
        checks.into_iter().filter_map(|(shortfall, holds)| holds.then_some(shortfall)).collect()
    }
}

/// Tries [`judge`] on a recording: the takes of one thing, by process.
///
/// The sides of a pair share no process. A recording of four times
/// [`Trial::processes`] or more gives pairs that differ enough to count.
pub fn power(recording: &[Vec<f64>], trial: &Trial) -> Result<Power, CannotTry> {
    power_of(recording, trial, |a, b| judge(a, b, None).verdict)
}

/// Tries any way of comparing on a recording, as [`power`] does.
pub fn power_of(
    recording: &[Vec<f64>],
    trial: &Trial,
    mut judge: impl FnMut(&Group, &Group) -> Verdict,
) -> Result<Power, CannotTry> {
    let whole = Group::new(recording)?;
    if trial.processes == 0 || recording.len() < 2 * trial.processes {
        return Err(CannotTry::TooFewProcesses { found: recording.len(), a_side: trial.processes });
    }
    let mut rng = Rng::new(trial.seed);
    let mut tallies = [Tally::default(); 3];
    for _ in 0..trial.pairs {
        let (a, b) = draw_pair(recording, trial.processes, &mut rng);
        let a = Group::new(&a)?;
        for (tally, factor) in tallies.iter_mut().zip([1.0, trial.slight, trial.slowdown]) {
            tally.add(judge(&a, &Group::new(&times(&b, factor))?));
        }
    }
    let [alike, slight, slowed] = tallies;
    let processes = trial.processes;
    let deviation = Sorted::<f64>::from_unsorted(whole.log_medians()).ok().and_then(|logs| Summary::of(&logs, 0)?.std);
    Ok(Power { between: whole.between(), deviation, within: whole.within(), processes, alike, slight, slowed })
}

type Side = Vec<Vec<f64>>;

fn draw_pair(recording: &[Vec<f64>], a_side: usize, rng: &mut Rng) -> (Side, Side) {
    let mut order: Vec<usize> = (0..recording.len()).collect();
    rng.shuffle(&mut order);
    let side = |chosen: &[usize]| chosen.iter().map(|&at| recording[at].clone()).collect();
    (side(&order[..a_side]), side(&order[a_side..2 * a_side]))
}

fn times(side: &[Vec<f64>], factor: f64) -> Side {
    side.iter().map(|takes| takes.iter().map(|take| take * factor).collect()).collect()
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Why a recording cannot be tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum CannotTry {
    /// Its takes cannot be compared.
    Unfit(Unfit),
    /// It has too few processes for two sides.
    TooFewProcesses {
        /// How many it has.
        found: usize,
        /// How many each side needs.
        a_side: usize,
    },
}

impl From<Unfit> for CannotTry {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}

impl fmt::Display for CannotTry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unfit(unfit) => unfit.fmt(f),
            Self::TooFewProcesses { found, a_side } => {
                write!(f, "the recording has {found} processes, expected twice {a_side}, and at least two")
            }
        }
    }
}

impl std::error::Error for CannotTry {}
