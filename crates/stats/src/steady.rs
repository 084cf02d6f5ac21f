//! From which sample on a series is steady, if it ever is.
//!
//! After Barrett and others, "Virtual machine warmup blows hot and cold"
//! (2017): a series is cut into levels, levels at the end that are as good as
//! equal are taken together, and what they cover decides. "No steady state"
//! is an answer. Warm-up takes are found with it.

use crate::changepoint::{LEAST_SEGMENT, change_points};
use crate::outliers::slow_start;
use crate::quantile::NotFinite;
use crate::spread::{median, robust_std};

/// With fewer samples nothing is said.
pub const LEAST_SAMPLES: usize = 2 * LEAST_SEGMENT;

/// The share of the series that must be steady at its end.
pub const LEAST_SHARE: f64 = 1.0 / 3.0;

/// Levels closer than this share of the last one are as good as equal.
pub const TOLERANCE: f64 = 0.01;

/// A trend is believed from this many standard deviations of Kendall's
/// statistic on: one in a hundred series without a trend has as many.
const TREND_CERTAINTY: f64 = 2.576;

/// A trend is looked for in this many medians of neighbours at most.
const TREND_POINTS: usize = 200;

/// How a series runs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Steadiness {
    /// Steady from the first sample on.
    Flat {
        /// The median of all samples.
        level: f64,
    },
    /// Slower at first, then steady.
    WarmUp(SteadyFrom),
    /// Faster at first, then steady.
    SlowDown(SteadyFrom),
    /// Not steady at the end, and why.
    NoSteadyState(Unsteady),
    /// Fewer than [`LEAST_SAMPLES`], which say nothing.
    TooShort,
}

/// Where a steady state begins, and what it is like.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyFrom {
    /// The first steady sample, counted from zero.
    pub start: usize,
    /// The median of the samples before it.
    pub before: f64,
    /// The median of it and all that follow.
    pub level: f64,
}

/// Why a series has no steady state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unsteady {
    /// The level still falls or rises.
    Trending,
    /// The level goes up and down.
    Oscillating,
}

impl Steadiness {
    /// Returns the first steady sample, if there is one.
    pub fn start(&self) -> Option<usize> {
        match self {
            Self::Flat { .. } => Some(0),
            Self::WarmUp(from) | Self::SlowDown(from) => Some(from.start),
            Self::NoSteadyState(_) | Self::TooShort => None,
        }
    }
}

/// Finds out from where on the series is steady.
///
/// 1. Leading samples that are slow ([`slow_start`]) are set aside, and the
///    rest is cut into levels ([`change_points`]).
/// 2. From the last level backwards, levels join the steady state while their
///    medians are within the tolerance of the last one: [`TOLERANCE`] or the
///    robust standard deviation of the last level, whichever is more.
/// 3. There is no steady state if what was joined covers less than
///    [`LEAST_SHARE`] of the series, or has a trend (Mann and Kendall's test at
///    1 %) that moves it by more than the tolerance from end to end (Theil
///    and Sen's slope). It trends if the levels have moved one way over the last
///    two changes, else it oscillates.
pub fn steadiness(samples: &[f64]) -> Result<Steadiness, NotFinite> {
    let slow = slow_start(samples)?.map_or(0, |slow| slow.count);
    if samples.len() < LEAST_SAMPLES {
        return Ok(Steadiness::TooShort);
    }
    let segments = segments(samples, slow)?;
    let joined = joined_levels(&segments);
    let start = segments[joined].start;
    let steady = &samples[start..];
    if (steady.len() as f64) < LEAST_SHARE * samples.len() as f64 {
        return Ok(Steadiness::NoSteadyState(last_moves(&segments)));
    }
    if trends(steady) || is_ramp(&samples[slow..], &segments) {
        return Ok(Steadiness::NoSteadyState(Unsteady::Trending));
    }
    Ok(described(samples, start))
}

struct Segment {
    start: usize,
    level: f64,
    tolerance: f64,
}

fn segments(samples: &[f64], slow: usize) -> Result<Vec<Segment>, NotFinite> {
    let rest = &samples[slow..];
    let cuts = change_points(rest)?;
    let starts = [0].into_iter().chain(cuts.iter().copied());
    let ends = cuts.iter().copied().chain([rest.len()]);
    let segment = |(start, end): (usize, usize)| {
        let part = &rest[start..end];
        Segment { start: slow + start, level: median(part).unwrap_or(f64::NAN), tolerance: tolerance(part) }
    };
    Ok(starts.zip(ends).map(segment).collect())
}

fn tolerance(part: &[f64]) -> f64 {
    let level = median(part).unwrap_or(0.0);
    (TOLERANCE * level.abs()).max(robust_std(part).unwrap_or(0.0))
}

/// Returns the first of the levels at the end that are as good as equal.
fn joined_levels(segments: &[Segment]) -> usize {
    let Some(last) = segments.last() else { return 0 };
    let is_equal = |segment: &&Segment| (segment.level - last.level).abs() <= last.tolerance;
    segments.len() - segments.iter().rev().take_while(is_equal).count()
}

fn last_moves(segments: &[Segment]) -> Unsteady {
    let moves = segments.windows(2).rev().take(2).map(|pair| pair[1].level > pair[0].level);
    let ups = moves.clone().filter(|&is_up| is_up).count();
    if ups == 0 || ups == moves.count() { Unsteady::Trending } else { Unsteady::Oscillating }
}

fn described(samples: &[f64], start: usize) -> Steadiness {
    let (early, steady) = samples.split_at(start);
    let level = median(steady).unwrap_or(f64::NAN);
    let Some(before) = median(early) else { return Steadiness::Flat { level } };
    let from = SteadyFrom { start, before, level };
    if before > level { Steadiness::WarmUp(from) } else { Steadiness::SlowDown(from) }
}

fn trends(part: &[f64]) -> bool {
    let line = Line::through(part);
    line.rise.abs() > tolerance(part) && mann_kendall(&line.points).abs() > TREND_CERTAINTY
}

/// Tells whether a straight line is closer to the samples than their levels.
fn is_ramp(part: &[f64], segments: &[Segment]) -> bool {
    let line = Line::through(part);
    let steps = segments.iter().zip(segments.iter().skip(1).map(|next| next.start).chain([usize::MAX]));
    let first = segments.first().map_or(0, |segment| segment.start);
    let distance = |(segment, end): (&Segment, usize)| {
        let from = &part[segment.start - first..part.len().min(end.saturating_sub(first))];
        from.iter().map(|sample| (sample - segment.level).abs()).sum::<f64>()
    };
    segments.len() > 1 && line.distance(part) < steps.map(distance).sum()
}

/// A line that wild values do not turn, through medians of neighbours.
struct Line {
    points: Vec<f64>,
    start: f64,
    rise: f64,
}

impl Line {
    fn through(part: &[f64]) -> Self {
        let block = part.len().div_ceil(TREND_POINTS).max(1);
        let points: Vec<f64> = part.chunks_exact(block).filter_map(median).collect();
        let slope = theil_sen(&points).unwrap_or(0.0);
        let level: Vec<f64> = points.iter().zip(0..).map(|(point, at)| point - slope * f64::from(at)).collect();
        let rise = slope * points.len().saturating_sub(1) as f64;
        Self { start: median(&level).unwrap_or(0.0), rise, points }
    }

    fn distance(&self, part: &[f64]) -> f64 {
        let step = self.rise / part.len().saturating_sub(1).max(1) as f64;
        part.iter().enumerate().map(|(at, sample)| (sample - self.start - step * at as f64).abs()).sum()
    }
}

/// Returns the median slope between all pairs of values, a step apart each.
/// `None` of fewer than two. The cost is quadratic.
pub fn theil_sen(values: &[f64]) -> Option<f64> {
    let slopes: Vec<f64> = pairs(values).map(|(steps, rise)| rise / steps as f64).collect();
    median(&slopes)
}

/// Returns Mann and Kendall's statistic for a trend, in standard deviations
/// of what values without one give; above 0 if they rise. Ties are corrected
/// for, and so is continuity. 0 of equal values. The cost is quadratic.
pub fn mann_kendall(values: &[f64]) -> f64 {
    let score: f64 = pairs(values).map(|(_, rise)| if rise == 0.0 { 0.0 } else { rise.signum() }).sum();
    let mut sorted = values.to_vec();
    sorted.sort_unstable_by(f64::total_cmp);
    let weight = |n: usize| (n * n.saturating_sub(1) * (2 * n + 5)) as f64;
    let ties: f64 = sorted.chunk_by(|a, b| a == b).map(|tied| weight(tied.len())).sum();
    let variance = (weight(values.len()) - ties) / 18.0;
    if variance > 0.0 && score != 0.0 { (score - score.signum()) / variance.sqrt() } else { 0.0 }
}

/// Returns the steps between, and the rise over, every pair of values.
fn pairs(values: &[f64]) -> impl Iterator<Item = (usize, f64)> + '_ {
    let from = move |at: usize| {
        let later = values[at + 1..].iter().zip(1..);
        later.map(move |(value, steps)| (steps, value - values[at]))
    };
    (0..values.len()).flat_map(from)
}
