//! Findings about laps, stages and the recording itself.

use std::collections::BTreeMap;

use laptime_stats::spread::median;

use super::rules::rule;
use super::{charges::Charges, limits::FindingLimits};
use crate::bottleneck::{Bottleneck, Severity};
use crate::lap_unit::{LapSource, LapUnit};
use crate::laps::{cold_laps, slow_limit};
use crate::top::{OperationKind, top};
use crate::units::{per_cent, time};
use crate::{note::plural, timeline::Timeline};

/// With fewer laps, none counts as slow.
const LEAST_LAPS: usize = 8;

/// More slow laps than this share are not exceptions.
const MOST_SLOW: f64 = 0.25;

/// Charges the time by which slow laps exceed the median lap, without what other findings explain.
pub(super) fn charge(timeline: &Timeline<'_>, charges: &mut Charges<'_>) {
    let Some(unit) = &timeline.unit else { return };
    if timeline.devices.devices.is_empty() {
        let laps: Vec<(u64, u64)> = unit.laps.iter().map(|lap| (lap.start, lap.end)).collect();
        let whole = laps.last().zip(laps.first()).map_or(0, |(last, first)| last.1.saturating_sub(first.0));
        charges.set_whole(whole as f64);
        charge_slow(0, &laps, charges);
    }
    for at in charges.judged().to_vec() {
        charge_slow(at, &device_laps(timeline, at, unit), charges);
    }
}

/// The laps on a device, from the first work of each to the first work of the next: the host may run ahead. Detected
/// sequences of kernels have an end of their own.
fn device_laps(timeline: &Timeline<'_>, at: usize, unit: &LapUnit) -> Vec<(u64, u64)> {
    if unit.source == LapSource::Kernels {
        return unit.laps.iter().map(|lap| (lap.start, lap.end)).collect();
    }
    let mut starts: BTreeMap<usize, u64> = BTreeMap::new();
    for work in &timeline.devices.devices[at].work {
        if let Some(lap) = unit.of_work(timeline.trace, work.start, work.launch) {
            starts.entry(lap).or_insert(work.start);
        }
    }
    let starts: Vec<u64> = starts.into_values().collect();
    std::iter::zip(starts.iter().copied(), starts.iter().skip(1).copied()).filter(|(from, to)| from < to).collect()
}

fn charge_slow(at: usize, laps: &[(u64, u64)], charges: &mut Charges<'_>) {
    let lengths: Vec<f64> = laps.iter().map(|(from, to)| to.saturating_sub(*from) as f64).collect();
    let cold = cold_laps(&lengths);
    let (Some(limit), Some(usual)) = (slow_limit(&lengths[cold..]), median(&lengths[cold..])) else { return };
    let slow: Vec<(u64, u64)> =
        laps[cold..].iter().copied().filter(|(from, to)| to.saturating_sub(*from) as f64 > limit).collect();
    if laps.len() < LEAST_LAPS || slow.len() as f64 > MOST_SLOW * laps.len() as f64 {
        return;
    }
    let explained = charges.charged(at);
    for (from, to) in slow {
        let excess = explained.gaps_in(from.saturating_add(usual as u64), to);
        excess.parts().iter().for_each(|&(from, to)| charges.add("slow-laps", at, from, to, None));
    }
}

/// Findings without a time on a device.
pub(super) fn findings(timeline: &Timeline<'_>, limits: &FindingLimits) -> Vec<Bottleneck> {
    [dropped(timeline), dominant(timeline, limits)].into_iter().flatten().collect()
}

fn notable(id: &str, evidence: String, limit: String, gain_ns: Option<f64>) -> Option<Bottleneck> {
    Some(rule(id)?.finding(evidence, limit).bottleneck(Severity::Notable, gain_ns))
}

fn dropped(timeline: &Timeline<'_>) -> Option<Bottleneck> {
    let dropped = timeline.overview.dropped;
    let events = plural(dropped, "event was", "events were");
    notable("dropped-events", format!("{events} dropped while recording"), String::new(), None).filter(|_| dropped > 0)
}

/// One stage or operation with most of the host's time, in a trace without devices. A runtime call says nothing: it waits
/// for work that was not recorded.
fn dominant(timeline: &Timeline<'_>, limits: &FindingLimits) -> Option<Bottleneck> {
    if !timeline.devices.devices.is_empty() {
        return None;
    }
    let top = top(timeline.trace);
    let host = || top.operations.iter().filter(|operation| !operation.kind.is_on_device());
    let own: u64 = host().map(|operation| operation.own.0).sum();
    let wall = timeline.trace.bounds().map_or(0, |(first, last)| last.saturating_sub(first).0);
    let whole = own.max(wall) as f64;
    let stages = || host().filter(|stage| stage.kind != OperationKind::Lap);
    let most = stages().max_by_key(|stage| stage.own)?;
    let is_lap = timeline.unit.as_ref().is_some_and(|unit| unit.name == most.name);
    let (own, share) = (most.own.0 as f64, most.own.0 as f64 / whole);
    if share < limits.of("dominant-stage") || is_lap || most.kind.is_call() || stages().count() < 2 {
        return None;
    }
    let (whole, share) = (time(whole), per_cent(share));
    let evidence = format!("`{}` takes {} of {whole} ({share}), its nested stages not included", most.name, time(own));
    let mut found = notable("dominant-stage", evidence, per_cent(limits.of("dominant-stage")), Some(own / 2.0))?;
    if most.kind == OperationKind::Operation {
        found.finding.next = "use more threads, a narrower dtype or a compiled kernel, or run it on a GPU".into();
    }
    Some(found)
}
