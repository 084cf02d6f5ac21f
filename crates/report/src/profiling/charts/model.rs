//! Whole models over length.

use std::collections::HashSet;

use laptime_analyze::{CaseId, LengthSeries, Mode, Profiling, ProfilingPart, TrainingCost, grouped};
use laptime_trace::run::Case;

use super::{memory_line, subtitle, time_line};
use crate::chart::{Line, Point, charts as drawn};
use crate::profiling::labels::Labels;

/// Fills the chart of models.
pub(super) fn models(answer: &Profiling) -> drawn::Models {
    let part = &answer.models;
    let labels =
        Labels::of(part.cases.iter().map(|case| &case.id).filter(|id| Mode::of(&id.case).is_some()), &["model"]);
    let parts = parts_of_steps(part);
    let series: Vec<(String, String, &LengthSeries)> = part
        .series
        .iter()
        .filter_map(|series| Some((name(&parts, &labels, series)?, subject(&labels, &series.id), series)))
        .collect();
    drawn::Models {
        subtitle: subtitle(answer, part, "medians"),
        time_ns: series.iter().map(|(name, of, series)| time_line(name, series).of(of)).collect(),
        peak_bytes: series.iter().map(|(name, of, series)| memory_line(name, series).of(of)).collect(),
        training_over_inference: costs(part, &labels),
        loss: losses(part, &labels),
    }
}

/// Series that are part of a step that was measured too.
fn parts_of_steps(part: &ProfilingPart) -> HashSet<(String, String)> {
    part.cases
        .iter()
        .filter(|case| part.has_step(case))
        .map(|case| key(&case.id.without(&["seq_len", "test"])))
        .collect()
}

fn key(id: &CaseId) -> (String, String) {
    (id.device.clone(), id.case.to_string())
}

/// The model and its mode; none for decoding and for parts of a step.
fn name(parts: &HashSet<(String, String)>, labels: &Labels<'_>, series: &LengthSeries) -> Option<String> {
    let mode = Mode::of(&series.id.case)?;
    let is_part = mode == Mode::Training && parts.contains(&key(&series.id));
    (!is_part).then(|| named(labels, &series.id, mode))
}

fn named(labels: &Labels<'_>, id: &CaseId, mode: Mode) -> String {
    format!("{}, {}", subject(labels, id), mode.word())
}

/// The model: the subject of a colour.
fn subject(labels: &Labels<'_>, id: &CaseId) -> String {
    labels.label(&id.without(&["pass_type"]))
}

/// A case as its identity, without the device.
fn as_id(case: &Case) -> CaseId {
    CaseId { workload: String::new(), device: String::new(), case: case.clone() }
}

/// Training / inference, with the name of the training line.
fn costs(part: &ProfilingPart, labels: &Labels<'_>) -> Vec<Line> {
    let named = |cost: TrainingCost| {
        let id = as_id(&cost.case);
        let point = Point::measured(cost.length as f64, cost.ratio);
        ((named(labels, &id, Mode::Training), subject(labels, &id)), point)
    };
    let line = |((name, subject), mut points): ((String, String), Vec<Point>)| {
        points.sort_by(|one, other| one.x.total_cmp(&other.x));
        Line::new(name, points).of(subject)
    };
    grouped(part.training_costs().into_iter().map(named)).into_iter().map(line).collect()
}

fn losses(part: &ProfilingPart, labels: &Labels<'_>) -> Vec<Line> {
    let line = |curve: laptime_analyze::LossCurve| {
        let steps = curve.losses.iter().enumerate().map(|(at, loss)| Point::measured((at + 1) as f64, *loss));
        let id = as_id(&curve.case);
        Line::new(named(labels, &id, Mode::Training), steps.collect()).of(subject(labels, &id))
    };
    part.loss_curves().into_iter().map(line).collect()
}
