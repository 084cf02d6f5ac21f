//! Models in the columns of Nano XYZ, one row per preset, then further columns.

use laptime_analyze::{CaseFigures, MeasuredFigures, Mode, Passes, Profiling};
use laptime_trace::run::Case;

use super::attention_summary::{Together, by_series};
use super::{labels::Labels, mean, megabytes};
use crate::{Cell, Column, Table};

/// The columns of Nano XYZ in its order, then further columns.
const COLUMNS: [&str; 15] = [
    "Preset",
    "Parameters",
    "Model Memory (MB)",
    "Avg Inference Latency (ms)",
    "Avg Training Latency (ms)",
    "Avg Inference Memory (MB)",
    "Avg Training Memory (MB)",
    "Setting",
    "Lengths",
    "Cases",
    "Not Measured",
    "Avg Inference tok/s",
    "Training / Inference",
    "First Loss",
    "Last Loss",
];

/// Lays out models, one row per preset. None if there is none, or only decoding.
///
/// Inference is a pass over all tokens at once. Training is the whole step if it was measured, else forward and
/// backward.
pub fn model_summary(answer: &Profiling) -> Option<Table> {
    let part = &answer.models;
    let of_mode: Vec<&CaseFigures> = part.cases.iter().filter(|case| Mode::of(&case.id.case).is_some()).collect();
    let labels = Labels::of(of_mode.iter().map(|case| &case.id), &["model"]);
    let mut table = Table::new("model_summary", COLUMNS.map(|name| Column::new(name, name)));
    for cases in by_model(&part.cases) {
        table.push(row(&cases, &labels, answer));
    }
    if table.rows.is_empty() {
        return None;
    }
    table.note("Averages are over the lengths in `Lengths`; a megabyte is 2^20 bytes; training is the whole step where it was measured, else forward and backward.");
    Some(table)
}

/// Cases that differ only in length and pass.
fn by_model(cases: &[CaseFigures]) -> Vec<Together<'_>> {
    let mut found: Vec<Together<'_>> = Vec::new();
    for series in by_series(cases) {
        if Mode::of(&series.id.case).is_none() {
            continue;
        }
        let id = series.id.without(&["pass_type"]);
        match found.iter_mut().find(|known| known.id == id) {
            Some(known) => known.cases.extend(series.cases),
            None => found.push(Together { id, cases: series.cases }),
        }
    }
    found
}

/// The figures of one mode; forward and backward do not count if the whole step was measured.
fn of_mode<'a>(
    cases: &'a Together<'a>,
    passes: &'a Passes<'a>,
    mode: Mode,
) -> impl Iterator<Item = &'a MeasuredFigures> + Clone {
    let is_of = move |case: &&&CaseFigures| Mode::of(&case.id.case) == Some(mode) && !passes.has_step(case);
    let counted = cases.cases.iter().filter(move |case| match mode {
        Mode::Training => is_of(case),
        Mode::Inference => Mode::of(&case.id.case) == Some(mode),
    });
    counted.filter_map(|case| case.measured.as_ref())
}

fn row(cases: &Together<'_>, labels: &Labels<'_>, answer: &Profiling) -> Vec<Cell> {
    let passes = answer.models.passes();
    let memory = |mode| {
        let figures = of_mode(cases, &passes, mode);
        mean(figures.filter_map(|measured| Some(megabytes(measured.peak_bytes? as f64))))
    };
    let latency = |mode| mean(of_mode(cases, &passes, mode).map(|measured| measured.wall.median / 1e6));
    let fact = |name| cases.measured().find_map(|measured| measured.number(name));
    let rates = of_mode(cases, &passes, Mode::Inference).filter_map(|measured| measured.number("tok_s"));
    let mut cells = vec![
        Cell::text(labels.kind(&cases.id.case)),
        Cell::from(fact("parameters").map(|count| Cell::Count(count as u64))),
        Cell::from(fact("weight_bytes").map(|bytes| Cell::Number(megabytes(bytes)))),
        latency(Mode::Inference),
        latency(Mode::Training),
        memory(Mode::Inference),
        memory(Mode::Training),
        Cell::text(labels.setting(&cases.id)),
        Cell::text(cases.lengths()),
        Cell::Count(cases.cases.len() as u64),
        cases.unmeasured(),
        mean(rates),
    ];
    cells.extend(training_cells(&cases.id.case, answer));
    cells
}

/// The cost of training, and the first and last loss.
fn training_cells(of: &Case, answer: &Profiling) -> [Cell; 3] {
    let own = |case: &Case| without_pass_case(case) == without_pass_case(of);
    let costs = answer.models.training_costs().into_iter().filter(|cost| own(&cost.case)).map(|cost| cost.ratio);
    let losses = answer.models.loss_curves().into_iter().find(|curve| own(&curve.case)).map(|curve| curve.losses);
    let loss = |at: fn(&[f64]) -> Option<&f64>| Cell::from(losses.as_deref().and_then(at).copied().map(Cell::Number));
    [mean(costs), loss(<[f64]>::first), loss(<[f64]>::last)]
}

/// A case without the axes that rows average over.
fn without_pass_case(case: &Case) -> String {
    let kept = case.values().filter(|(axis, _)| !["pass_type", "seq_len", "test"].contains(axis));
    kept.map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(" ")
}
