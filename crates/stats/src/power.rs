//! How often a comparison cries wolf, and how often it sleeps.
//!
//! From recorded takes of one thing, pairs of sides are drawn that differ in
//! nothing, and judged; then the same pairs with one side slowed. Whoever
//! changes a rule of comparing runs this before and after.

use std::fmt;

use crate::compare::{Settings, Verdict, compare};
use crate::group::{Group, Unfit};
use crate::random::Rng;

/// The largest share of equal sides that may be told apart.
pub const MOST_FALSE_ALARMS: f64 = 0.05;

/// The smallest share of slowed sides that must be called slower.
pub const LEAST_FOUND: f64 = 0.9;

/// A recording whose processes spread by this much or more need not be judged
/// well: see [`Group::between`].
pub const MOST_SPREAD: f64 = 0.02;

/// How a recording is tried.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// How many processes each side gets.
    pub processes: usize,
    /// How many pairs of sides are drawn.
    pub pairs: usize,
    /// What the takes of the slowed side are multiplied by.
    pub slowdown: f64,
    /// What the drawing starts from.
    pub seed: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self { processes: 5, pairs: 200, slowdown: 1.05, seed: 0 }
    }
}

/// What came of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// The relative spread between the processes of the recording.
    pub between: Option<f64>,
    /// The relative spread between the takes of a process.
    pub within: Option<f64>,
    /// The verdicts on sides that differ in nothing.
    pub alike: Tally,
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
    /// Less than [`LEAST_FOUND`], although the recording is quiet enough.
    Misses,
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

    /// Names every requirement that the trial does not meet.
    pub fn shortfalls(&self) -> Vec<Shortfall> {
        let is_quiet = self.between.is_some_and(|spread| spread < MOST_SPREAD);
        let unclear = self.alike.unclear + self.slowed.unclear;
        let checks = [
            (Shortfall::FalseAlarms, self.false_alarms() > Some(MOST_FALSE_ALARMS)),
            (Shortfall::Misses, is_quiet && self.found() < Some(LEAST_FOUND)),
            (Shortfall::NeverDecides, unclear == self.alike.all() + self.slowed.all()),
        ];
        checks.into_iter().filter_map(|(shortfall, holds)| holds.then_some(shortfall)).collect()
    }
}

/// Tries [`compare`] on a recording: the takes of one thing, by process.
///
/// The sides of a pair share no process. A recording of four times
/// [`Trial::processes`] or more gives pairs that differ enough to count.
pub fn power(recording: &[Vec<f64>], trial: &Trial) -> Result<Power, CannotTry> {
    let mut seed = trial.seed;
    power_of(recording, trial, |a, b| {
        seed = seed.wrapping_add(1);
        compare(a, b, &Settings { seed, threshold: None }).verdict
    })
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
    let (mut alike, mut slowed) = (Tally::default(), Tally::default());
    for _ in 0..trial.pairs {
        let (a, b) = draw_pair(recording, trial.processes, &mut rng);
        let (group_a, slow_b) = (Group::new(&a)?, Group::new(&times(&b, trial.slowdown))?);
        alike.add(judge(&group_a, &Group::new(&b)?));
        slowed.add(judge(&group_a, &slow_b));
    }
    Ok(Power { between: whole.between(), within: whole.within(), alike, slowed })
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
