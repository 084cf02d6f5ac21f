//! Finds the sample from which a series is steady, if there is one.
//!
//! After Barrett and others, "Virtual machine warmup blows hot and cold" (2017): a series is cut into levels, and
//! nearly equal levels at the end are joined into the steady state if they cover enough of the series. "No steady
//! state" is a valid answer. This finds the warm-up iterations.

use crate::changepoint::{LEAST_SEGMENT, change_points};
use crate::outliers::slow_start;
use crate::quantile::NotFinite;
use crate::spread::{median, robust_std};
use crate::trend::{Line, mann_kendall};

/// With fewer samples the answer is unknown.
pub const LEAST_SAMPLES: usize = 2 * LEAST_SEGMENT;

/// The share of the series that must be steady at its end.
pub const LEAST_SHARE: f64 = 1.0 / 3.0;

/// Levels closer than this share of the last one count as equal.
pub const TOLERANCE: f64 = 0.01;

/// A trend counts from this number of standard deviations of Kendall's statistic: one in a hundred series without a
/// trend reaches it.
const TREND_CERTAINTY: f64 = 2.576;

/// The steadiness of a series.
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
    /// Not steady at the end: a trend, or levels that keep changing.
    NoSteadyState,
    /// Fewer than [`LEAST_SAMPLES`] samples.
    TooShort,
}

/// The start and the level of a steady state.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SteadyFrom {
    /// The first steady sample, counted from zero.
    pub start: usize,
    /// The median of the samples before it.
    pub before: f64,
    /// The median of it and all samples after it.
    pub level: f64,
}

impl Steadiness {
    /// Returns the first steady sample, if there is one.
    pub fn start(&self) -> Option<usize> {
        match self {
            Self::Flat { .. } => Some(0),
            Self::WarmUp(from) | Self::SlowDown(from) => Some(from.start),
            Self::NoSteadyState | Self::TooShort => None,
        }
    }
}

/// Finds the sample from which the series is steady.
///
/// 1. Leading samples that are slow ([`slow_start`]) are set aside, and the rest is cut into levels ([`change_points`]).
/// 2. From the last level backwards, levels join the steady state while their medians are within the tolerance of the
///    last one: [`TOLERANCE`] or the robust standard deviation of the last level, whichever is larger.
/// 3. There is no steady state if the joined levels cover less than [`LEAST_SHARE`] of the series; or have a trend
///    (Mann-Kendall test at 1 %) that changes them by more than the tolerance from end to end (Theil-Sen slope); or if one
///    straight line fits all samples better than the levels do.
///
/// Levels that alternate within about ten samples count as noise here.
pub fn steadiness(samples: &[f64]) -> Result<Steadiness, NotFinite> {
    let slow = slow_start(samples)?.map_or(0, |slow| slow.count);
    if samples.len() < LEAST_SAMPLES {
        return Ok(Steadiness::TooShort);
    }
    let segments = segments(samples, slow)?;
    let joined = joined_levels(&segments);
    let start = segments[joined].start;
    let steady = &samples[start..];
    let is_too_short = (steady.len() as f64) < LEAST_SHARE * samples.len() as f64;
    if is_too_short || has_trend(steady) || is_ramp(samples, &segments) {
        return Ok(Steadiness::NoSteadyState);
    }
    Ok(steady_from(samples, start))
}

struct Segment {
    start: usize,
    end: usize,
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
        let level = median(part).unwrap_or(f64::NAN);
        Segment { start: slow + start, end: slow + end, level, tolerance: tolerance(part) }
    };
    Ok(starts.zip(ends).map(segment).collect())
}

fn tolerance(part: &[f64]) -> f64 {
    let level = median(part).unwrap_or(0.0);
    (TOLERANCE * level.abs()).max(robust_std(part).unwrap_or(0.0))
}

/// Returns the first of the nearly equal levels at the end.
fn joined_levels(segments: &[Segment]) -> usize {
    let Some(last) = segments.last() else { return 0 };
    let is_equal = |segment: &&Segment| (segment.level - last.level).abs() <= last.tolerance;
    segments.len() - segments.iter().rev().take_while(is_equal).count()
}

fn steady_from(samples: &[f64], start: usize) -> Steadiness {
    let (early, steady) = samples.split_at(start);
    let level = median(steady).unwrap_or(f64::NAN);
    let Some(before) = median(early) else { return Steadiness::Flat { level } };
    let from = SteadyFrom { start, before, level };
    if before > level { Steadiness::WarmUp(from) } else { Steadiness::SlowDown(from) }
}

fn has_trend(part: &[f64]) -> bool {
    let line = Line::through(part);
    line.rise().abs() > tolerance(part) && mann_kendall(line.points()).abs() > TREND_CERTAINTY
}

/// Returns whether a straight line fits the samples better than their levels.
fn is_ramp(samples: &[f64], segments: &[Segment]) -> bool {
    let rest = &samples[segments.first().map_or(0, |segment| segment.start)..];
    let from_level = |segment: &Segment| {
        let part = &samples[segment.start..segment.end];
        part.iter().map(|sample| (sample - segment.level).abs()).sum::<f64>()
    };
    segments.len() > 1 && Line::through(rest).distance(rest) < segments.iter().map(from_level).sum()
}
