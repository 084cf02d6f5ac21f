//! Whole gaps: the longest ones, those of a lap, and those that follow a sync.

use hashbrown::{HashMap, HashSet};

use laptime_stats::Sorted;
use laptime_trace::{Nanos, Trace};

use crate::gap_cause::{Cause, Gap, Judge, Judged, whole_gaps};
use crate::gaps::{LapIdle, LongGap, doing_by_name};
use crate::units::{per_cent, time};
use crate::{finding::Finding, lap_unit::LapUnit, timeline::Timeline};

/// A lap with more idle time than the median lap is reported if the difference is this share of the window.
const OUTSTANDING: f64 = 0.01;

/// The fewest laps among which one can be an outlier.
const LEAST_LAPS: usize = 3;

/// Idle time caused by syncs is a finding from this share of the idle time on …
const DRAINED: f64 = 0.1;

/// … and this share of the window.
const LEAST_DRAINED: f64 = 0.01;

/// The lap with the most idle time, if there are enough laps.
pub(crate) fn idlest(gaps: &[Gap], unit: &LapUnit, window: u64) -> Option<LapIdle> {
    let mut idle = vec![0_u64; unit.laps.len()];
    for (lap, time) in gaps.iter().flat_map(|gap| over_laps(unit, gap.from, gap.to)) {
        idle[lap] = idle[lap].saturating_add(time);
    }
    if idle.len() < LEAST_LAPS {
        return None;
    }
    let (at, &most) = idle.iter().enumerate().max_by_key(|&(at, idle)| (*idle, std::cmp::Reverse(at)))?;
    let median = Sorted::<u64>::from_unsorted(idle.clone()).median()?;
    (most as f64 - median > OUTSTANDING * window as f64).then(|| LapIdle {
        label: unit.laps[at].label.clone(),
        idle: Nanos(most),
        median,
    })
}

/// The indices of the laps that an interval overlaps, each with the length of the overlap.
fn over_laps(unit: &LapUnit, from: u64, to: u64) -> impl Iterator<Item = (usize, u64)> {
    let first = unit.laps.partition_point(|lap| lap.end <= from);
    let laps = unit.laps.iter().enumerate().skip(first).take_while(move |(_, lap)| lap.start < to);
    laps.map(move |(at, lap)| (at, lap.end.min(to).saturating_sub(lap.start.max(from))))
}

/// The longest gaps, at most `most` of them.
pub(crate) fn longest(
    trace: &Trace,
    judge: &Judge<'_>,
    gaps: &[Gap],
    unit: Option<&LapUnit>,
    most: usize,
) -> Vec<LongGap> {
    let key = |parts: &&[Gap]| (std::cmp::Reverse(length(parts)), parts[0].from);
    let mut order: Vec<&[Gap]> = whole_gaps(gaps).collect();
    // A launch-bound program has a gap per kernel, and a diagnosis needs none of them: only those that are shown are sorted.
    if most < order.len() {
        order.select_nth_unstable_by_key(most, key);
        order.truncate(most);
    }
    order.sort_by_key(key);
    let first = trace.bounds().map_or(0, |(first, _)| first.0);
    order.into_iter().map(|parts| long_gap(trace, first, judge, parts, unit)).collect()
}

/// One gap; `first` is the start of the trace.
fn long_gap(trace: &Trace, first: u64, judge: &Judge<'_>, parts: &[Gap], unit: Option<&LapUnit>) -> LongGap {
    let (gap, length) = (&parts[0], length(parts));
    let name = |id| trace.span(id).name.to_owned();
    let cause = main_cause(parts);
    let doing = doing_by_name(trace, judge, parts, cause).into_iter().max_by_key(|&(name, time)| (time, name));
    let laps = unit.into_iter().flat_map(|unit| over_laps(unit, gap.from, gap.from + length));
    let lap = laps.max_by_key(|&(at, time)| (time, std::cmp::Reverse(at)));
    LongGap {
        start: Nanos(gap.from.saturating_sub(first)),
        length: Nanos(length),
        cause,
        before: judge.before(gap).map(|work| name(work.id)),
        after: name(judge.next(gap).id),
        host: doing.and_then(|(name, _)| name.text(trace)),
        lap: unit.zip(lap).map(|(unit, (at, _))| unit.laps[at].label.clone()),
    }
}

fn length(parts: &[Gap]) -> u64 {
    parts.iter().map(Gap::length).sum()
}

/// The cause with the most time; among equals the first of all causes.
fn main_cause(parts: &[Gap]) -> Cause {
    let time = |cause: Cause| parts.iter().filter(|part| part.cause == cause).map(Gap::length).sum::<u64>();
    Cause::ALL.into_iter().rev().max_by_key(|cause| time(*cause)).unwrap_or(Cause::NoLaunch)
}

/// Syncs during which the device ran out of work, if they cost much of the idle time and of the window.
pub(crate) fn drained(timeline: &Timeline<'_>, idle: &Judged<'_>, window: u64) -> Option<Finding> {
    let mut costs: HashMap<&str, u64> = HashMap::new();
    let mut waits: HashSet<usize> = HashSet::new();
    for charge in &idle.charges {
        *costs.entry(timeline.waits[charge.wait].name(timeline.trace)).or_default() += charge.to - charge.from;
        waits.insert(charge.wait);
    }
    let cost: u64 = costs.values().sum();
    let (name, _) = costs.into_iter().max_by_key(|&(name, time)| (time, std::cmp::Reverse(name)))?;
    let [share, of_window] = [length(&idle.gaps), window].map(|whole| cost as f64 / whole.max(1) as f64);
    let syncs = crate::note::plural(waits.len(), "sync", "syncs");
    (share >= DRAINED && of_window >= LEAST_DRAINED).then(|| Finding {
        rule: "sync-in-loop",
        evidence: format!(
            "{} of the idle time ({}) follows {syncs}, mostly `{name}`",
            time(cost as f64),
            per_cent(share)
        ),
        limit: String::new(),
        meaning: "the host waited until the GPU had finished, and launched the next work only then".to_owned(),
        next: "launch the next work before the sync, or sync less often (`laptime syncs`)".to_owned(),
    })
}
