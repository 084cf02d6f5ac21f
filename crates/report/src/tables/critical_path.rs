//! The critical path of a trace, as a table.

use laptime_analyze::{CriticalPath, PathPart, Prediction};

use super::overview;
use crate::{Cell, Table, kernel_name::short, layout::single, table::table};

/// How wide names are in notes.
const NAME_WIDTH: usize = 60;

/// Lays out the kinds on the path, most time first.
pub fn critical_path(answer: &CriticalPath) -> Table {
    let mut table = table!("path", &answer.kinds, part: &PathPart => [
        ("kind", "on the path") => Cell::text(part.kind.word()),
        ("time_ms", "time") => Cell::Nanos(part.time.0),
        ("share", "share") => Cell::Share(part.share),
        ("count", "count") => Cell::Count(part.count),
    ]);
    table.fact("length_ms", "critical path", Cell::Nanos(answer.length.0));
    overview::add(&mut table, &answer.overview);
    if let Some(prediction) = &answer.prediction {
        add_prediction(&mut table, answer, prediction);
    }
    let names = answer
        .names
        .iter()
        .map(|name| format!("`{}` {}", short(&name.name, NAME_WIDTH), single(&Cell::Nanos(name.time.0))));
    let names: Vec<String> = names.take(3).collect();
    if !names.is_empty() {
        table.note(format!("Most of the path: {}.", names.join(", ")));
    }
    table
}

fn add_prediction(table: &mut Table, answer: &CriticalPath, prediction: &Prediction) {
    let [before, after] = [answer.length, prediction.length].map(|time| time.0);
    table.machine_fact("predicted_ms", Cell::Nanos(after));
    let change = 100.0 * (after as f64 - before as f64) / before.max(1) as f64;
    let [shown_before, shown_after] = [before, after].map(|time| single(&Cell::Nanos(time)));
    let assumptions = prediction.assumptions.join("; ");
    table.note(format!("Predicted: {shown_after} instead of {shown_before} ({change:+.1} %). Assumes: {assumptions}."));
}
