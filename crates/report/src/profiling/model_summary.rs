//! Models in the columns of Nano XYZ, one row per preset, then further columns.

use laptime_analyze::{CaseFigures, MeasuredFigures, Mode, Profiling, ProfilingPart, grouped};
use laptime_trace::run::Case;

use super::attention_summary::{LengthGroup, by_series};
use super::{labels::Labels, mean, megabytes};
use crate::{Cell, Table, table::table};

/// Lays out models, one row per preset: the columns of Nano XYZ in its order, then further columns. None if there is none,
/// or only decoding.
///
/// Inference is a pass over all tokens at once. Training is the whole step if it was measured, else forward and
/// backward.
pub fn model_summary(answer: &Profiling) -> Option<Table> {
    let part = &answer.models;
    let with_mode: Vec<&CaseFigures> = part.cases.iter().filter(|case| Mode::of(&case.id.case).is_some()).collect();
    let labels = Labels::of(with_mode.iter().map(|case| &case.id), &["model"]);
    let mut table = table!("model_summary", by_model(&part.cases), cases: LengthGroup<'_> => {
        let memory = |mode| {
            let figures = of_mode(&cases, part, mode);
            mean(figures.filter_map(|measured| Some(megabytes(measured.peak_bytes? as f64))))
        };
        let latency = |mode| mean(of_mode(&cases, part, mode).map(|measured| measured.wall.median / 1e6));
        let fact = |name| cases.measured().find_map(|measured| measured.number(name));
        let rates = of_mode(&cases, part, Mode::Inference).filter_map(|measured| measured.number("tok_s"));
        let [cost, first_loss, last_loss] = training_cells(&cases.id.case, answer);
    } [
        ("Preset") => Cell::text(labels.kind(&cases.id.case)),
        ("Parameters") => Cell::from(fact("parameters").map(|count| Cell::Count(count as u64))),
        ("Model Memory (MB)") => Cell::number(fact("weight_bytes").map(megabytes)),
        ("Avg Inference Latency (ms)") => latency(Mode::Inference),
        ("Avg Training Latency (ms)") => latency(Mode::Training),
        ("Avg Inference Memory (MB)") => memory(Mode::Inference),
        ("Avg Training Memory (MB)") => memory(Mode::Training),
        ("Setting") => Cell::text(labels.setting(&cases.id)),
        ("Lengths") => Cell::text(cases.lengths()),
        ("Cases") => Cell::count(cases.cases.len()),
        ("Not Measured") => cases.unmeasured(),
        ("Avg Inference tok/s") => mean(rates),
        ("Training / Inference") => cost,
        ("First Loss") => first_loss,
        ("Last Loss") => last_loss,
    ]);
    if table.rows.is_empty() {
        return None;
    }
    table.note("Averages are over the lengths in `Lengths`; a megabyte is 2^20 bytes; training is the whole step where it was measured, else forward and backward.");
    Some(table)
}

/// Cases that differ only in length and pass.
fn by_model<'a>(cases: &'a [CaseFigures]) -> Vec<LengthGroup<'a>> {
    let with_mode = by_series(cases).into_iter().filter(|series| Mode::of(&series.id.case).is_some());
    let keyed = with_mode.map(|series| (series.id.without(&["pass_type"]).key(), series));
    let together = |(_, series): (_, Vec<LengthGroup<'a>>)| {
        let id = series[0].id.without(&["pass_type"]);
        LengthGroup { id, cases: series.into_iter().flat_map(|series| series.cases).collect() }
    };
    grouped(keyed).into_iter().map(together).collect()
}

/// The figures of one mode; forward and backward do not count if the whole step was measured.
fn of_mode<'a>(
    cases: &'a LengthGroup<'a>,
    part: &'a ProfilingPart,
    mode: Mode,
) -> impl Iterator<Item = &'a MeasuredFigures> + Clone {
    let of_mode = cases.cases.iter().filter(move |case| Mode::of(&case.id.case) == Some(mode));
    let counted = of_mode.filter(move |case| mode == Mode::Inference || !part.has_step(case));
    counted.filter_map(|case| case.measured.as_ref())
}

/// The cost of training, and the first and last loss.
fn training_cells(of: &Case, answer: &Profiling) -> [Cell; 3] {
    let own = |case: &Case| without_pass_case(case) == without_pass_case(of);
    let costs = answer.models.training_costs().into_iter().filter(|cost| own(&cost.case)).map(|cost| cost.ratio);
    let losses = answer.models.loss_curves().into_iter().find(|curve| own(&curve.case)).map(|curve| curve.losses);
    let loss = |at: fn(&[f64]) -> Option<&f64>| Cell::number(losses.as_deref().and_then(at).copied());
    [mean(costs), loss(<[f64]>::first), loss(<[f64]>::last)]
}

/// A case without the axes that rows average over.
fn without_pass_case(case: &Case) -> String {
    let kept = case.values().filter(|(axis, _)| !["pass_type", "seq_len", "test"].contains(axis));
    kept.map(|(axis, value)| format!("{axis}={value}")).collect::<Vec<_>>().join(" ")
}
