//! How often a comparison gives a false alarm, and how often it misses a difference.
//!
//! Pairs of equal sides are drawn from recorded iterations and judged; then the same pairs with one side slightly
//! slower, and with one side clearly slower. Run this before and after changing a rule of the comparison.

#![allow(dead_code)]

use laptime_stats::{Group, Rng, Sorted, Summary, Tally, Unfit, Verdict, judge};

/// The largest share of equal sides that may be called different.
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

/// Settings of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trial {
    /// The number of processes per side.
    pub processes: usize,
    /// The number of pairs of sides.
    pub pairs: usize,
    /// The factor for the iterations of the slightly slowed side, beyond the margin.
    pub slight: f64,
    /// The factor for the iterations of the slowed side.
    pub slowdown: f64,
    /// The random seed.
    pub seed: u64,
}

impl Default for Trial {
    fn default() -> Self {
        Self { processes: 10, pairs: 500, slight: 1.015, slowdown: 1.05, seed: 0 }
    }
}

/// The result of a trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Power {
    /// The relative spread between the processes of the recording.
    pub between: Option<f64>,
    /// The standard deviation of the logarithms of process medians: unlike
    /// [`between`](Self::between) it counts outlying processes.
    pub deviation: Option<f64>,
    /// The relative spread between the iterations of a process.
    pub within: Option<f64>,
    /// The number of processes per side.
    pub processes: usize,
    /// The verdicts on equal sides.
    pub alike: Tally,
    /// The verdicts on the same sides with the second slowed slightly.
    pub slight: Tally,
    /// The verdicts on the same sides with the second slowed.
    pub slowed: Tally,
}

/// A requirement that a comparison does not meet.
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

impl Power {
    /// Returns the share of equal sides that were called different.
    pub fn false_alarms(&self) -> Option<f64> {
        share(self.alike.faster + self.alike.slower, self.alike.all())
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

    /// Returns every requirement that the trial does not meet.
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

/// Tries [`judge`] on a recording: the iterations of one case per process.
///
/// The sides of a pair share no process. A recording needs at least four times [`Trial::processes`] processes for
/// sufficiently different pairs.
pub fn power(recording: &[Vec<f64>], trial: &Trial) -> Result<Power, PowerError> {
    power_of(recording, trial, |a, b| judge(a, b, None).verdict)
}

/// Tries any comparison on a recording, as [`power`] does.
pub fn power_of(
    recording: &[Vec<f64>],
    trial: &Trial,
    mut judge: impl FnMut(&Group, &Group) -> Verdict,
) -> Result<Power, PowerError> {
    let whole = Group::new(recording)?;
    if trial.processes == 0 || recording.len() < 2 * trial.processes {
        return Err(PowerError::TooFewProcesses { found: recording.len(), per_side: trial.processes });
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
    let logs = whole.medians().iter().map(|median| median.ln()).collect();
    let deviation = Sorted::<f64>::from_unsorted(logs).ok().and_then(|logs| Summary::of(&logs, 0)?.std);
    Ok(Power { between: whole.between(), deviation, within: whole.within(), processes, alike, slight, slowed })
}

type Side = Vec<Vec<f64>>;

fn draw_pair(recording: &[Vec<f64>], per_side: usize, rng: &mut Rng) -> (Side, Side) {
    let mut order: Vec<usize> = (0..recording.len()).collect();
    rng.shuffle(&mut order);
    let side = |chosen: &[usize]| chosen.iter().map(|&at| recording[at].clone()).collect();
    (side(&order[..per_side]), side(&order[per_side..2 * per_side]))
}

fn times(side: &[Vec<f64>], factor: f64) -> Side {
    side.iter().map(|iterations| iterations.iter().map(|iteration| iteration * factor).collect()).collect()
}

fn share(part: usize, whole: usize) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// Why a recording cannot be used.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum PowerError {
    /// Its iterations cannot be compared.
    Unfit(Unfit),
    /// It has too few processes for two sides.
    TooFewProcesses {
        /// The number of processes in the recording.
        found: usize,
        /// The number of processes per side.
        per_side: usize,
    },
}

impl From<Unfit> for PowerError {
    fn from(unfit: Unfit) -> Self {
        Self::Unfit(unfit)
    }
}
