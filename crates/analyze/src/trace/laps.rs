//! The laps of a trace: their lengths, which are slow, and how slow laps differ from the others.

mod each;
mod parts;

use laptime_stats::{Sorted, Summary, mann_kendall, spread, theil_sen};
use laptime_trace::Trace;

pub use self::{
    each::Lap,
    parts::{LapPart, PartDifference},
};
use self::{each::each, parts::Parts};
use crate::fleet::{Figure, Unit};
use crate::lap_unit::{LapSource, NoLaps, lap_unit};
use crate::{overview::Overview, timeline::Prepared};

/// With fewer laps, none counts as slow.
pub const LEAST_LAPS: usize = 3;

/// A lap is slow if it is longer than the median by this many robust standard deviations …
pub const SLOW_DISTANCE: f64 = 3.0;

/// … and by this share of the median.
pub const SLOW_SHARE: f64 = 0.1;

/// Scales a median absolute deviation to the standard deviation of a normal distribution.
const MAD_TO_STD: f64 = 1.4826;

/// The largest share of laps that may be cold, at least one; a longer slow start is not a warm-up.
pub const MOST_COLD: f64 = 0.25;

/// A trend is reported from this many laps on …
pub const TREND_LAPS: usize = 10;

/// … if it is this many standard deviations from zero (Mann-Kendall) …
pub const TREND_CERTAINTY: f64 = 3.0;

/// … and rise or fall by this share of the median from the first lap to the last.
pub const TREND_SHARE: f64 = 0.05;

/// Slow laps that are explained; the rest is counted.
pub const EXPLAINED: usize = 5;

/// Points for fitting a trend: medians of neighbours, because the cost is quadratic.
const TREND_POINTS: usize = 200;

/// The laps of a trace.
#[derive(Debug, Clone, PartialEq)]
pub struct Laps {
    /// The unit.
    pub name: String,
    /// Its source.
    pub source: LapSource,
    /// Other possible units, with their number of laps.
    pub others: Vec<(String, u64)>,
    /// Every lap in order, cold ones included.
    pub laps: Vec<Lap>,
    /// How many of the first laps are cold.
    pub cold: usize,
    /// The figures of the laps that are not cold.
    pub figures: LapFigures,
    /// Longer laps are slow, in nanoseconds; none for fewer than [`LEAST_LAPS`].
    pub limit: Option<f64>,
    /// The slow laps that are explained, the slowest first.
    pub slow: Vec<SlowLap>,
    /// Whether laps get longer or shorter.
    pub trend: Option<Trend>,
    /// When the trace began.
    pub begin: u64,
    /// How many devices the trace has.
    pub devices: usize,
    /// The device work is stages between two marks on a stream, idle time included.
    pub is_stages: bool,
    /// The trace as a whole.
    pub overview: Overview,
}

/// The figures of all laps that are not cold; times in nanoseconds.
#[derive(Debug, Clone, PartialEq)]
pub struct LapFigures {
    /// From the start of a lap to its end.
    pub length: Summary,
    /// From the start of a lap to the start of the next.
    pub period: Option<Summary>,
    /// Time of a lap in which a device was busy; none without devices.
    pub busy: Option<Summary>,
    /// Time of a lap in which all devices were idle.
    pub idle: Option<Summary>,
    /// Time of a lap in which the host waited for a device; none if it never did.
    pub waiting: Option<Summary>,
    /// Launches per lap; none if there are none at all.
    pub launches: Option<Summary>,
    /// Syncs per lap; none if there are none at all.
    pub waits: Option<Summary>,
    /// The median over laps of the busy share of each.
    pub busy_share: Option<f64>,
}

/// A slow lap and how it differs from the median lap.
#[derive(Debug, Clone, PartialEq)]
pub struct SlowLap {
    /// Its index.
    pub at: usize,
    /// What took longer than in the median lap, largest first.
    pub more: Vec<PartDifference>,
}

/// A trend of lap lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Trend {
    /// The change per lap, in nanoseconds.
    pub slope: f64,
    /// The total change from the first lap to the last, as a share of the median.
    pub share: f64,
}

/// Finds the repeating unit and describes its laps.
pub fn laps(trace: &Trace, wanted: Option<&str>) -> Result<Laps, NoLaps> {
    Prepared::of(trace).laps(wanted)
}

impl Prepared<'_> {
    /// The laps, see [`laps`].
    ///
    /// # Errors
    ///
    /// If nothing repeats, or the named lap is not in the trace.
    pub fn laps(&self, wanted: Option<&str>) -> Result<Laps, NoLaps> {
        let Prepared { trace, devices, waits, overview } = self;
        let unit = lap_unit(trace, devices, wanted)?;
        let mut laps = each(trace, devices, &unit, waits);
        let lengths: Vec<f64> = laps.iter().map(|lap| lap.length() as f64).collect();
        let cold = cold_laps(&lengths);
        let limit = slow_limit(&lengths[cold..]);
        for (at, lap) in laps.iter_mut().enumerate() {
            lap.is_cold = at < cold;
            lap.is_slow = at >= cold && limit.is_some_and(|limit| lap.length() as f64 > limit);
        }
        let figures = figures(&laps[cold..]).ok_or(NoLaps::NothingRepeats)?;
        let slow = slow(&laps, &Parts::of(trace, devices, &unit), cold);
        let trend = trend(&lengths[cold..], figures.length.median);
        let (name, source, others) = (unit.name, unit.source, unit.others);
        let begin = trace.bounds().map_or(0, |(first, _)| first.0);
        let is_stages = devices.devices.iter().any(|device| device.is_stages);
        let (overview, devices) = (overview.clone(), devices.devices.len());
        Ok(Laps { name, source, others, laps, cold, figures, limit, slow, trend, begin, devices, is_stages, overview })
    }
}

/// The length above which a lap is slow.
pub(crate) fn slow_limit(lengths: &[f64]) -> Option<f64> {
    let median = spread::median(lengths).filter(|_| lengths.len() >= LEAST_LAPS)?;
    let usual = MAD_TO_STD * spread::mad(lengths)?;
    Some(median + (SLOW_DISTANCE * usual).max(SLOW_SHARE * median))
}

/// How many laps at the start are slow.
pub(crate) fn cold_laps(lengths: &[f64]) -> usize {
    let Some(limit) = slow_limit(lengths) else { return 0 };
    let slow = lengths.iter().take_while(|length| **length > limit).count();
    let most = ((MOST_COLD * lengths.len() as f64) as usize).max(1);
    if slow > most || slow == lengths.len() { 0 } else { slow }
}

fn figures(laps: &[Lap]) -> Option<LapFigures> {
    let length = summary(laps.iter().map(|lap| Some(lap.length())))?;
    let if_any = |summary: Option<Summary>| summary.filter(|summary| summary.max > 0.0);
    let share = |lap: &Lap| Some(lap.busy? as f64 / lap.length().max(1) as f64);
    Some(LapFigures {
        length,
        period: summary(laps.windows(2).map(|pair| Some(pair[1].start.saturating_sub(pair[0].start)))),
        busy: summary(laps.iter().map(|lap| lap.busy)),
        idle: summary(laps.iter().map(|lap| lap.idle())),
        waiting: if_any(summary(laps.iter().map(|lap| Some(lap.waiting)))),
        launches: if_any(summary(laps.iter().map(|lap| lap.launches))),
        waits: if_any(summary(laps.iter().map(|lap| Some(lap.waits)))),
        busy_share: spread::median_of(laps.iter().filter_map(share)),
    })
}

/// Any seed would do: the interval of the median is not used.
const SEED: u64 = 1;

fn summary(values: impl Iterator<Item = Option<u64>>) -> Option<Summary> {
    let values: Vec<f64> = values.flatten().map(|value| value as f64).collect();
    Summary::of(&Sorted::<f64>::from_unsorted(values).ok()?, SEED)
}

fn slow(laps: &[Lap], parts: &Parts<'_>, cold: usize) -> Vec<SlowLap> {
    let mut slow: Vec<usize> = (0..laps.len()).filter(|at| laps[*at].is_slow).collect();
    slow.sort_by_key(|&at| (std::cmp::Reverse(laps[at].length()), at));
    slow.truncate(EXPLAINED);
    // The first cold lap is explained too: it shows the cost of the warm-up.
    let explained = (cold > 0).then_some(0).into_iter().chain(slow);
    explained.map(|at| SlowLap { at, more: parts.more_than_median(at, cold) }).collect()
}

fn trend(lengths: &[f64], median: f64) -> Option<Trend> {
    if lengths.len() < TREND_LAPS || median <= 0.0 {
        return None;
    }
    let block = lengths.len().div_ceil(TREND_POINTS);
    let points: Vec<f64> = lengths.chunks_exact(block).filter_map(spread::median).collect();
    let slope = theil_sen(&points)? / block as f64;
    let share = slope * (lengths.len() - 1) as f64 / median;
    let is_certain = mann_kendall(&points).abs() >= TREND_CERTAINTY && share.abs() >= TREND_SHARE;
    is_certain.then_some(Trend { slope, share })
}

impl Laps {
    /// How many laps are slow, cold ones not included.
    pub fn slow_count(&self) -> usize {
        self.laps.iter().filter(|lap| lap.is_slow).count()
    }

    /// The figures for comparing traces.
    pub const FIGURES: [Figure; 5] = [
        Figure { key: "laps", label: "laps", unit: Unit::Count },
        Figure { key: "median_ms", label: "median", unit: Unit::Time },
        Figure { key: "p95_ms", label: "p95", unit: Unit::Time },
        Figure { key: "max_ms", label: "longest", unit: Unit::Time },
        Figure { key: "busy_share", label: "busy", unit: Unit::Share },
    ];

    /// The values of those figures.
    pub fn values(&self) -> Vec<Option<f64>> {
        let length = &self.figures.length;
        vec![Some(self.laps.len() as f64), Some(length.median), length.p95, Some(length.max), self.figures.busy_share]
    }
}

#[cfg(test)]
mod tests;
