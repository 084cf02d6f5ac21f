//! How time and memory grow with the length of a sequence: exponents, each with an interval.

use laptime_stats::{Group, Interval};
use laptime_trace::run::CaseResult;

use crate::series::{Clock, LengthPoint, LengthSeries, clock, draws, middle, series};
use crate::{by_case::CaseId, finding::Finding};

/// The fewest lengths for a fit: two points always fit a line.
pub const LEAST_LENGTHS: usize = 3;

/// The exponent of the last doubling above which growth counts as quadratic.
///
/// If one part of the time grows as N and another as N², the exponent is 1 plus the share of the second: at 1.7 it
/// takes 70 % of the time.
pub const QUADRATIC: f64 = 1.7;

/// Below this share of FLOPs that grow as N², attention is not the cause.
pub const LEAST_SHARE: f64 = 0.1;

/// The growth of the cases of a run.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Scaling {
    /// One entry for cases that differ only in length, if the length was doubled at least once.
    pub series: Vec<ScalingSeries>,
}

/// The growth along one series.
#[derive(Debug, Clone, PartialEq)]
pub struct ScalingSeries {
    /// What its cases have in common.
    pub id: CaseId,
    /// The clock of the times.
    pub clock: Clock,
    /// The lengths that were measured, shortest first.
    pub lengths: Vec<u64>,
    /// The exponent of time.
    pub time: Growth,
    /// The exponent of peak memory.
    pub memory: Growth,
    /// The share of FLOPs that grow as N² at the longest length, counted and not timed.
    pub quadratic_work: Option<f64>,
}

/// Two exponents of one quantity.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Growth {
    /// Fitted to all lengths; none for fewer than three.
    pub overall: Option<Exponent>,
    /// Over the last doubling: the trend for long sequences.
    pub last: Option<Exponent>,
}

/// An exponent x: doubling the length multiplies by 2^x.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Exponent {
    /// Its value.
    pub value: f64,
    /// Its 95 % interval; none for memory, which has one figure per length, and for times with too few iterations or
    /// processes.
    pub interval: Option<Interval>,
    /// The shortest length.
    pub from: u64,
    /// The longest.
    pub to: u64,
}

impl ScalingSeries {
    /// The exponent of time over all lengths, or over the last doubling, if it has an interval.
    pub fn time_exponent(&self) -> Option<Exponent> {
        self.time.overall.or(self.time.last).filter(|exponent| exponent.interval.is_some())
    }
}

/// Computes the growth of time and memory with length, per series.
pub fn scaling(results: &[CaseResult]) -> Scaling {
    let grown = series(results).into_iter().enumerate().filter_map(|(at, series)| of_series(series, at as u64));
    Scaling { series: grown.collect() }
}

fn of_series(series: LengthSeries, salt: u64) -> Option<ScalingSeries> {
    let clock = clock(&series.points);
    let times: Vec<(u64, &Group)> =
        series.points.iter().filter_map(|point| Some((point.length, point.time(clock)?))).collect();
    let time = time_growth(&times, salt);
    let memory = memory_growth(&series.points);
    let lengths = times.iter().map(|(length, _)| *length).collect();
    let quadratic_work = quadratic_work(&series.points);
    time.last?;
    Some(ScalingSeries { id: series.id, clock, lengths, time, memory, quadratic_work })
}

fn time_growth(times: &[(u64, &Group)], salt: u64) -> Growth {
    let (lengths, groups): (Vec<u64>, Vec<&Group>) = times.iter().copied().unzip();
    let values: Vec<f64> = groups.iter().map(|group| group.typical().ln()).collect();
    let drawn = draws(&groups, salt);
    growth(&lengths, &values, drawn.as_deref())
}

fn memory_growth(points: &[LengthPoint]) -> Growth {
    let known = points.iter().filter_map(|point| Some((point.length, (point.peak_bytes? as f64).ln())));
    let (lengths, values): (Vec<u64>, Vec<f64>) = known.unzip();
    growth(&lengths, &values, None)
}

/// Exponents of logarithms by length, with intervals from resampled values.
fn growth(lengths: &[u64], values: &[f64], drawn: Option<&[Vec<f64>]>) -> Growth {
    let exponent = |places: &[usize]| {
        let logs: Vec<f64> = places.iter().map(|&at| (lengths[at] as f64).ln()).collect();
        let value = slope(&logs, places.iter().map(|&at| values[at]))?;
        let again =
            |draw: usize| slope(&logs, places.iter().map(|&at| drawn.map_or(f64::NAN, |drawn| drawn[at][draw])));
        let resamples = drawn.and_then(|drawn| drawn.iter().map(Vec::len).min()).unwrap_or(0);
        let interval = middle((0..resamples).filter_map(again).collect());
        let (from, to) = (lengths[*places.first()?], lengths[*places.last()?]);
        Some(Exponent { value, interval, from, to })
    };
    let all: Vec<usize> = (0..lengths.len()).collect();
    let overall = if lengths.len() >= LEAST_LENGTHS { exponent(&all) } else { None };
    Growth { overall, last: last_doubling(lengths).and_then(|places| exponent(&places)) }
}

/// The longest length, and the longest that is at most half of it.
fn last_doubling(lengths: &[u64]) -> Option<[usize; 2]> {
    let last = lengths.len().checked_sub(1)?;
    let half = lengths.iter().rposition(|&length| length <= lengths[last] / 2)?;
    Some([half, last])
}

/// The slope of the least-squares line.
fn slope(xs: &[f64], ys: impl Iterator<Item = f64> + Clone) -> Option<f64> {
    let n = xs.len() as f64;
    let mean_x = xs.iter().sum::<f64>() / n;
    let mean_y = ys.clone().sum::<f64>() / n;
    let spread: f64 = xs.iter().map(|x| (x - mean_x).powi(2)).sum();
    let both: f64 = xs.iter().zip(ys).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    Some(both / spread).filter(|slope| slope.is_finite())
}

/// The share of the FLOPs at the longest length that grows as N², if all FLOPs grow either as N or as N².
fn quadratic_work(points: &[LengthPoint]) -> Option<f64> {
    let known: Vec<(u64, f64)> = points.iter().filter_map(|point| Some((point.length, point.flops? as f64))).collect();
    let lengths: Vec<u64> = known.iter().map(|(length, _)| *length).collect();
    let [from, to] = last_doubling(&lengths)?.map(|at| known[at]);
    let each = |(length, flops): (u64, f64)| flops / length as f64;
    let quadratic = (each(to) - each(from)) / (to.0 - from.0) as f64 * to.0 as f64;
    Some(quadratic / each(to)).filter(|share| share.is_finite()).map(|share| share.clamp(0.0, 1.0))
}

impl Scaling {
    /// Findings about growth: one per rule, for the series that grows the most.
    pub fn findings(&self) -> Vec<Finding> {
        let is_certain = |last: Exponent| last.interval.is_some_and(|ends| ends.low > QUADRATIC);
        let is_model = |series: &ScalingSeries| series.id.case.get("model").is_some();
        let of_time = |series: &&ScalingSeries| is_model(series) && series.time.last.is_some_and(is_certain);
        let has_little_attention =
            |series: &&ScalingSeries| series.quadratic_work.is_some_and(|share| share < LEAST_SHARE);
        let (elsewhere, quadratic): (Vec<_>, Vec<_>) =
            self.series.iter().filter(of_time).partition(has_little_attention);
        let of_memory = |series: &&ScalingSeries| series.memory.last.is_some_and(|last| last.value > QUADRATIC);
        let wide: Vec<&ScalingSeries> = self.series.iter().filter(of_memory).collect();
        let found = [
            self.worst(&quadratic, "time", |series| series.time.last, quadratic_time),
            self.worst(&elsewhere, "time", |series| series.time.last, other_time),
            self.worst(&wide, "peak memory", |series| series.memory.last, quadratic_memory),
        ];
        found.into_iter().flatten().collect()
    }

    /// The finding about the series that grows the most.
    fn worst(
        &self,
        some: &[&ScalingSeries],
        what: &str,
        of: fn(&ScalingSeries) -> Option<Exponent>,
        finding: fn(String, &ScalingSeries) -> Finding,
    ) -> Option<Finding> {
        let value = |series: &ScalingSeries| of(series).map_or(0.0, |last| last.value);
        let worst = some.iter().max_by(|one, other| value(one).total_cmp(&value(other)))?;
        let others = match some.len() {
            1 => String::new(),
            count => format!(" ({} more series too)", count - 1),
        };
        let (name, Exponent { from, to, value, .. }) = (self.name(worst), of(worst)?);
        let evidence = format!("From {from} to {to} tokens, the {what} of {name} grew as N^{value:.2}{others}");
        Some(finding(evidence, worst))
    }

    /// A series by the axes in which it differs from the others.
    fn name(&self, series: &ScalingSeries) -> String {
        let varies = |axis: &str| self.series.iter().any(|other| other.id.case.get(axis) != series.id.case.get(axis));
        let axes = series.id.case.values().filter(|(axis, _)| *axis == "model" || varies(axis));
        let parts: Vec<String> = axes.map(|(axis, value)| format!("{axis}={value}")).collect();
        if parts.is_empty() { "the case".to_owned() } else { format!("`{}`", parts.join(" ")) }
    }
}

/// The kind of attention, if the cases have one.
fn attention(series: &ScalingSeries) -> Option<String> {
    series.id.case.get("attention").map(ToString::to_string)
}

fn quadratic_time(evidence: String, series: &ScalingSeries) -> Finding {
    let blamed = |share: f64| format!("attention is the bottleneck, with {:.0} % of the FLOPs", 100.0 * share);
    let next = match attention(series).as_deref() {
        Some("sparse") => "use a sparser pattern: a smaller `--window`, or fewer `--global` and `--random` positions",
        _ => "measure a sparse pattern: `laptime bench model … --attention dense,sparse`",
    };
    Finding {
        rule: "quadratic-time",
        evidence,
        limit: format!("N^{QUADRATIC}"),
        meaning: series.quadratic_work.map_or_else(
            || "attention is quadratic; the results do not include its share of the FLOPs".to_owned(),
            blamed,
        ),
        next: next.to_owned(),
    }
}

fn other_time(evidence: String, series: &ScalingSeries) -> Finding {
    let share = 100.0 * series.quadratic_work.unwrap_or(0.0);
    Finding {
        rule: "superlinear-time",
        evidence,
        limit: format!("N^{QUADRATIC}"),
        meaning: format!(
            "attention is only {share:.0} % of the FLOPs, so something else grows: activations that no longer fit into a \
             cache, or memory that runs out"
        ),
        next: "compare `laptime profile model … --depth layer` at both lengths".to_owned(),
    }
}

fn quadratic_memory(evidence: String, series: &ScalingSeries) -> Finding {
    let next = match attention(series).as_deref() {
        Some("sparse") => "use a sparser pattern, shorter sequences or smaller batches",
        Some("dense") => "measure a sparse pattern (`--attention sparse`), or use shorter sequences or smaller batches",
        _ => "use an attention that does not store scores: `--attention dense` or `sparse`",
    };
    Finding {
        rule: "quadratic-memory",
        evidence,
        limit: format!("N^{QUADRATIC}"),
        meaning: "something is stored for every pair of positions, such as attention scores".to_owned(),
        next: next.to_owned(),
    }
}

#[cfg(test)]
mod tests;
