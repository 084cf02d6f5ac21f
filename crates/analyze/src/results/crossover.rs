//! From which length on one kind of attention is faster or smaller than another.

pub(crate) mod words;

use std::collections::HashMap;

use laptime_stats::{Group, Interval};
use laptime_trace::run::CaseResult;

use crate::by_case::{CaseId, TroubleKind};
use crate::series::{Clock, LengthPoint, LengthSeries, clock, draws, middle, series};

/// The axis of attention kinds.
pub(crate) const KIND: &str = "attention";

/// Reference kinds; the first that was measured is used.
const BASES: [&str; 2] = ["dense", "naive"];

/// Axes of the sparse pattern, which do not matter for kinds that keep all entries.
const PATTERN: [&str; 6] = ["pattern", "window", "global", "random", "random_per", "block_mask"];

/// A relative difference below which two kinds count as equal.
pub const FLOOR: f64 = 0.01;

/// The longest extrapolation, as a multiple of the longest measured length.
pub const REACH: f64 = 4.0;

/// Two kinds of attention over the lengths at which both were measured.
#[derive(Debug, Clone, PartialEq)]
pub struct Crossover {
    /// What their cases have in common.
    pub id: CaseId,
    /// The kind that is compared with the reference.
    pub kind: String,
    /// The reference.
    pub base: String,
    /// The clock of the times.
    pub clock: Clock,
    /// The speed-up per length.
    pub faster: Vec<Ratio>,
    /// The ratio of peak memory per length.
    pub smaller: Vec<Ratio>,
    /// Where it is faster.
    pub time: Option<Answer>,
    /// Where it is smaller.
    pub memory: Option<Answer>,
    /// Lengths at which the kind was measured and the reference ran out of memory.
    pub alone: Vec<u64>,
}

/// Reference / kind: 2 means that the kind takes half.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ratio {
    /// The length.
    pub length: u64,
    /// The ratio.
    pub ratio: f64,
    /// Its interval; none for memory, which has one figure per length.
    pub interval: Option<Interval>,
}

/// At which of the measured lengths a kind takes less than the other.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum Answer {
    /// At every length.
    Always,
    /// It takes less at some lengths and more at others; at lengths in neither list the difference is unclear.
    AtSome { less: Vec<u64>, more: Vec<u64> },
    /// At none; the extrapolated crossing, if it is not far beyond the longest length.
    Never { extrapolated: Option<f64> },
    /// From this length on.
    From(Crossing),
    /// Up to this length.
    Until(Crossing),
    /// The two swap more than once, at these lengths.
    Several(Vec<f64>),
    /// The difference is unclear at every length.
    Unclear,
}

/// A length at which two kinds take the same.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Crossing {
    /// The interpolated length.
    pub length: f64,
    /// Its interval; none if there is one figure per length.
    pub ends: Option<Ends>,
}

/// The interval of a crossing; a missing end is outside the measured lengths.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Ends {
    /// The lower end.
    pub low: Option<f64>,
    /// The upper end.
    pub high: Option<f64>,
}

/// Finds the lengths at which kinds of attention swap: one entry per kind other than the reference, separately for batch
/// sizes and other axes.
pub fn crossovers(results: &[CaseResult]) -> Vec<Crossover> {
    let all: Vec<LengthSeries> = series(results).into_iter().filter(|series| kind(series).is_some()).collect();
    let mut alike: HashMap<String, Vec<&LengthSeries>> = HashMap::new();
    for series in &all {
        alike.entry(group(series)).or_default().push(series);
    }
    let pair = |(at, series): (usize, &LengthSeries)| {
        let base = base(&alike[&group(series)], series)?;
        pair(base, series, at as u64)
    };
    all.iter().enumerate().filter_map(pair).collect()
}

fn kind(series: &LengthSeries) -> Option<String> {
    series.id.case.get(KIND).map(ToString::to_string)
}

/// What two series must have in common to be compared.
fn group(series: &LengthSeries) -> String {
    series.id.without(&[KIND]).without(&PATTERN).key()
}

/// The reference of a series; if there are several, the one with the same pattern.
fn base<'a>(alike: &[&'a LengthSeries], series: &LengthSeries) -> Option<&'a LengthSeries> {
    let has_kind = |wanted: &str| alike.iter().any(|other| kind(other).as_deref() == Some(wanted));
    let name = BASES.into_iter().find(|name| has_kind(name))?;
    if kind(series).as_deref() == Some(name) {
        return None;
    }
    let rest = |series: &LengthSeries| series.id.without(&[KIND]);
    let of_name = || alike.iter().copied().filter(|other| kind(other).as_deref() == Some(name));
    of_name().find(|other| rest(other) == rest(series)).or_else(|| of_name().next())
}

fn pair(base: &LengthSeries, series: &LengthSeries, salt: u64) -> Option<Crossover> {
    let common = common(base, series);
    let clock = clock(common.iter().flat_map(|(one, other)| [*one, *other]));
    let (times, memory) = (time_ratios(&common, clock, salt), memory_ratios(&common));
    let alone = alone(base, series);
    if times.is_empty() && alone.is_empty() {
        return None;
    }
    Some(Crossover {
        id: series.id.without(&[KIND]),
        kind: kind(series)?,
        base: kind(base)?,
        clock,
        time: answer(&times, true),
        memory: answer(&memory, false),
        faster: times.iter().map(Logs::ratio).collect(),
        smaller: memory.iter().map(Logs::ratio).collect(),
        alone,
    })
}

/// The lengths that both have, shortest first.
fn common<'a>(base: &'a LengthSeries, series: &'a LengthSeries) -> Vec<(&'a LengthPoint, &'a LengthPoint)> {
    let of_base = |length: u64| base.points.binary_search_by_key(&length, |point| point.length).ok();
    series.points.iter().filter_map(|point| Some((&base.points[of_base(point.length)?], point))).collect()
}

fn alone(base: &LengthSeries, series: &LengthSeries) -> Vec<u64> {
    let lacks = |point: &LengthPoint| matches!(point.trouble, Some(TroubleKind::OutOfMemory { .. }));
    let is_alone = |(one, other): &(&LengthPoint, &LengthPoint)| {
        one.time(Clock::Wall).is_none() && lacks(one) && other.time(Clock::Wall).is_some()
    };
    common(base, series).into_iter().filter(is_alone).map(|(_, other)| other.length).collect()
}

/// The logarithm of a ratio, with resampled values.
pub(crate) struct Logs {
    pub(crate) length: u64,
    log: f64,
    drawn: Vec<f64>,
    interval: Option<Interval>,
    /// Whether it was counted and not timed, and so needs no interval.
    is_exact: bool,
}

impl Logs {
    pub(crate) fn new(length: u64, log: f64, drawn: Vec<f64>) -> Self {
        let interval = middle(drawn.clone());
        Self { length, log, drawn, interval, is_exact: false }
    }

    fn exact(length: u64, log: f64) -> Self {
        Self { length, log, drawn: Vec::new(), interval: None, is_exact: true }
    }

    pub(crate) fn ratio(&self) -> Ratio {
        let interval =
            self.interval.map(|ends| Interval { low: ends.low.exp(), high: ends.high.exp(), level: ends.level });
        Ratio { length: self.length, ratio: self.log.exp(), interval }
    }

    /// Whether the kind takes less, beyond the floor and beyond chance; none without an interval.
    fn sign(&self) -> Option<bool> {
        let floor = (1.0 + FLOOR).ln();
        let counted = self.is_exact.then_some((self.log, self.log));
        let (low, high) = self.interval.map(|ends| (ends.low, ends.high)).or(counted)?;
        if self.log > floor && low > 0.0 {
            Some(true)
        } else if self.log < -floor && high < 0.0 {
            Some(false)
        } else {
            None
        }
    }
}

fn time_ratios(common: &[(&LengthPoint, &LengthPoint)], clock: Clock, salt: u64) -> Vec<Logs> {
    let timed = common.iter().filter_map(|(one, other)| Some((one.length, one.time(clock)?, other.time(clock)?)));
    let timed: Vec<(u64, &Group, &Group)> = timed.collect();
    let ratio = |(length, one, other): &(u64, &Group, &Group)| {
        let drawn = draws(&[one, other], (salt << 24) ^ length).unwrap_or_default();
        let drawn = match drawn.as_slice() {
            [of_one, of_other] => of_one.iter().zip(of_other).map(|(one, other)| one - other).collect(),
            _ => Vec::new(),
        };
        Logs::new(*length, one.typical().ln() - other.typical().ln(), drawn)
    };
    timed.iter().map(ratio).collect()
}

fn memory_ratios(common: &[(&LengthPoint, &LengthPoint)]) -> Vec<Logs> {
    let ratio = |(one, other): &(&LengthPoint, &LengthPoint)| {
        let log = (one.peak_bytes? as f64).ln() - (other.peak_bytes? as f64).ln();
        Some(Logs::exact(one.length, log))
    };
    common.iter().filter_map(ratio).collect()
}

/// Where the kind takes less. A statement about all lengths needs every length; lengths at which the difference is
/// unclear are only allowed next to a crossing.
pub(crate) fn answer(points: &[Logs], may_extrapolate: bool) -> Option<Answer> {
    points.first()?;
    let known: Vec<(usize, bool)> =
        points.iter().enumerate().filter_map(|(at, point)| Some((at, point.sign()?))).collect();
    let Some(&(_, at_end)) = known.last() else { return Some(Answer::Unclear) };
    let flips: Vec<usize> = (1..known.len()).filter(|&at| known[at].1 != known[at - 1].1).collect();
    let is_known_outside = |before: usize, after: usize| known.len() + (after - before - 1) == points.len();
    let lengths = |is_less: bool| {
        known.iter().filter(|(_, sign)| *sign == is_less).map(|(at, _)| points[*at].length).collect::<Vec<u64>>()
    };
    Some(match flips.as_slice() {
        [flip] if is_known_outside(known[*flip - 1].0, known[*flip].0) => {
            change(&points[known[*flip - 1].0..=known[*flip].0], at_end)
        }
        [] if known.len() == points.len() && at_end => Answer::Always,
        [] if known.len() == points.len() => {
            Answer::Never { extrapolated: extrapolated(points).filter(|_| may_extrapolate) }
        }
        [] | [_] => Answer::AtSome { less: lengths(true), more: lengths(false) },
        several => Answer::Several(several.iter().map(|&at| between(points, known[at - 1].0, known[at].0)).collect()),
    })
}

/// The only crossing between some lengths, towards less if `is_less`.
fn change(points: &[Logs], is_less: bool) -> Answer {
    let direction = if is_less { 1.0 } else { -1.0 };
    let logs: Vec<f64> = points.iter().map(|point| (point.length as f64).ln()).collect();
    let place = |log: &dyn Fn(usize) -> f64| last_crossing(&logs, &|at| direction * log(at));
    let length = place(&|at| points[at].log);
    let resamples = points.iter().map(|point| point.drawn.len()).min().unwrap_or(0);
    let drawn = (0..resamples).map(|draw| place(&|at| points[at].drawn[draw])).collect();
    let end = |log: f64| log.is_finite().then(|| log.exp());
    let ends = middle(drawn).map(|ends| Ends { low: end(ends.low), high: end(ends.high) });
    match end(length).map(|length| Crossing { length, ends }) {
        None => Answer::Unclear,
        Some(crossing) if is_less => Answer::From(crossing),
        Some(crossing) => Answer::Until(crossing),
    }
}

/// The logarithm of the length after which all values are above 0: infinite if the last is not, and negative infinity
/// if all are.
fn last_crossing(logs: &[f64], value: &dyn Fn(usize) -> f64) -> f64 {
    match (0..logs.len()).rev().find(|&at| value(at) <= 0.0) {
        None => f64::NEG_INFINITY,
        Some(at) if at + 1 == logs.len() => f64::INFINITY,
        Some(at) => zero([logs[at], logs[at + 1]], [value(at), value(at + 1)]),
    }
}

/// Where a line through two points is 0.
fn zero(x: [f64; 2], y: [f64; 2]) -> f64 {
    x[0] - y[0] * (x[1] - x[0]) / (y[1] - y[0])
}

/// The length between two at which the line through them is 0.
fn between(points: &[Logs], before: usize, after: usize) -> f64 {
    let [one, other] = [&points[before], &points[after]];
    zero([one, other].map(|point| (point.length as f64).ln()), [one.log, other.log]).exp()
}

/// Where the line through the last two lengths reaches 0, if that is near and the rise is beyond chance.
fn extrapolated(points: &[Logs]) -> Option<f64> {
    let [.., one, other] = points else { return None };
    let rise = middle(one.drawn.iter().zip(&other.drawn).map(|(one, other)| other - one).collect())?;
    if rise.low <= 0.0 {
        return None;
    }
    let length = zero([one, other].map(|point| (point.length as f64).ln()), [one.log, other.log]).exp();
    let longest = other.length as f64;
    (other.log > one.log && length > longest && length <= REACH * longest).then_some(length)
}

#[cfg(test)]
mod tests;
