//! The rates of cases, below the measured peaks.

use laptime_analyze::{CaseFigures, Limits, Profiling, ProfilingPart, RUN_AXIS, grouped};
use laptime_trace::run::{PeakFlops, Peaks, Traffic};

use super::device_name;
use crate::chart::{Line, Point, Quantity, charts as drawn};
use crate::profiling::labels::Labels;

/// Fills the roofline of the first run with peaks of its device, with the cases that have limits.
pub(super) fn roofline(answer: &Profiling) -> Option<drawn::Roofline> {
    let named = answer.runs.iter().find(|named| named.read.run.as_ref().is_some_and(|run| run.peaks.is_some()))?;
    let (name, run) = (&named.name, named.read.run.as_ref()?);
    let peaks = run.peaks.as_ref()?;
    let is_included = |case: &CaseFigures| {
        let own = case.id.case.get(RUN_AXIS).map(ToString::to_string);
        case.id.device == peaks.device && (own == *name || is_shared(answer, peaks))
    };
    let parts = [&answer.attention, &answer.models, &answer.others];
    let reached: Vec<Line> = parts.iter().flat_map(|part| lines(part, &is_included)).collect();
    let bytes_s = peaks.bytes_s(Traffic::Read)?;
    let machine = device_name(&run.environment.machine, &run.device).unwrap_or_else(|| run.device.clone());
    Some(drawn::Roofline {
        subtitle: format!("{machine}; roofs as laptime peaks measured them at {}", peaks.measured),
        memory: drawn::Roof { name: format!("memory, {} GB/s", Quantity::Number.text(bytes_s / 1e9)), rate: bytes_s },
        compute: peaks.flops.iter().map(compute).collect(),
        reached,
    })
}

/// Whether all runs with peaks have the same ones.
fn is_shared(answer: &Profiling, peaks: &Peaks) -> bool {
    let mut known = answer.runs.iter().filter_map(|run| run.read.run.as_ref()?.peaks.as_ref());
    known.all(|other| other == peaks)
}

fn compute(peak: &PeakFlops) -> drawn::Roof {
    let rate = peak.flops_s;
    drawn::Roof { name: format!("{}, {}", peak.dtype, Quantity::FlopsPerSecond.text(rate)), rate }
}

/// One line per group of cases that differ only in length.
fn lines(part: &ProfilingPart, is_included: &dyn Fn(&CaseFigures) -> bool) -> Vec<Line> {
    let labels = Labels::of(part.cases.iter().map(|case| &case.id), &["model", "attention", "pass_type"]);
    let named = |case: &CaseFigures| {
        let label = labels.label(&case.id);
        Some((if label.is_empty() { case.id.workload.clone() } else { label }, point(case)?))
    };
    let points = grouped(part.cases.iter().filter(|case| is_included(case)).filter_map(named));
    points.into_iter().map(|(name, points)| Line::new(name, points)).collect()
}

fn point(case: &CaseFigures) -> Option<Point> {
    let Limits { gflop, gb, gflop_s, mfu, .. } = case.measured.as_ref()?.limits?;
    mfu?;
    let point = Point::measured(gflop? / gb?, 1e9 * gflop_s?);
    Some(case.id.case.get("seq_len").map_or(point.clone(), |length| point.labelled(length.to_string())))
}
