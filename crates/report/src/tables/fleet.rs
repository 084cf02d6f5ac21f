//! Several traces compared, as a table.

use laptime_analyze::{
    Figure, Fleet, FleetRow, LEAST_TRACES, Note, OUTLIER_DISTANCE, OUTLIER_SHARE, Outlier, Unit, plural,
};

use super::overview;
use crate::{Cell, Column, Table, layout::in_one_unit};

/// Outliers that are named; the rest is counted.
const NAMED: usize = 5;

/// Lays out one row per trace; `question` names the rows for machines.
pub fn fleet(question: &'static str, answer: &Fleet) -> Table {
    let has_rank = answer.rows.iter().any(|row| row.rank.is_some());
    let has_device = answer.rows.iter().any(|row| row.device.is_some());
    let mut columns = vec![
        Column::new("trace", "trace"),
        Column::new("rank", "rank").shown_if(has_rank),
        Column::new("device", "device").shown_if(has_device),
    ];
    // The most important figures come first and are dropped last.
    let figures = answer.figures.iter().zip(0..);
    columns.extend(figures.map(|(figure, order)| Column::new(figure.key, figure.label).drop(order)));
    columns.push(Column::new("outlier", "outlier"));
    let has_dropped = answer.rows.iter().any(|row| row.dropped > 0);
    columns.push(Column::new("dropped_events", "dropped").shown_if(has_dropped));
    let has_findings = answer.rows.iter().any(|row| !row.findings.is_empty());
    columns.push(Column::new("findings", "findings").shown_if(has_findings));
    let mut table = Table::new(question, columns);
    for (at, row) in answer.rows.iter().enumerate() {
        let outlier = answer.outliers.iter().find(|outlier| outlier.at == at);
        table.push(cells(answer, row, outlier));
    }
    add_outliers(&mut table, answer);
    add_findings(&mut table, answer);
    table
}

fn cells(answer: &Fleet, row: &FleetRow, outlier: Option<&Outlier>) -> Vec<Cell> {
    let mut cells = vec![
        Cell::text(row.label.clone()),
        Cell::from(row.rank.map(|rank| Cell::Whole(i64::try_from(rank).unwrap_or(i64::MAX)))),
        Cell::from(row.device.clone().map(Cell::text)),
    ];
    let values = answer.figures.iter().zip(row.values.iter().copied().chain(std::iter::repeat(None)));
    cells.extend(values.map(|(figure, value)| Cell::from(value.map(|value| cell(figure, value)))));
    let figure = outlier.and_then(|outlier| answer.figures.get(outlier.figure));
    cells.push(Cell::from(figure.map(|figure| Cell::text(figure.label))));
    cells.extend([row.dropped, row.findings.len() as u64].map(Cell::Count));
    cells
}

fn cell(figure: &Figure, value: f64) -> Cell {
    match figure.unit {
        Unit::Time => Cell::Nanos(value.round() as u64),
        Unit::Share => Cell::Share(value),
        Unit::Count => Cell::Count(value.round() as u64),
        Unit::Number => Cell::Number(value),
    }
}

fn add_outliers(table: &mut Table, answer: &Fleet) {
    if answer.rows.len() < LEAST_TRACES {
        return;
    }
    table.legend(format!(
        "An outlier is more than {OUTLIER_DISTANCE:.0} robust standard deviations and {:.0} % away from the median of all \
         traces (for shares, percentage points).",
        100.0 * OUTLIER_SHARE
    ));
    if answer.outliers.is_empty() {
        table.note("No trace is an outlier.");
        return;
    }
    for outlier in answer.outliers.iter().take(NAMED) {
        if let (Some(row), Some(figure)) = (answer.rows.get(outlier.at), answer.figures.get(outlier.figure)) {
            let [value, median] = in_one_unit([outlier.value, outlier.median].map(|value| cell(figure, value)));
            let device = row.device.as_ref().map_or_else(String::new, |device| format!(", {device}"));
            table.note(format!("Outlier: `{}`{device}: {} {value} (median {median}).", row.label, figure.label));
        }
    }
    if let Some(more @ 1..) = answer.outliers.len().checked_sub(NAMED) {
        table.note(format!("{} in the column `outlier`.", plural(more, "more outlier is", "more outliers are")));
    }
}

/// One note per failed check, with the first trace that fails it.
fn add_findings(table: &mut Table, answer: &Fleet) {
    for (finding, traces) in answer.findings() {
        let first = traces.first().copied().unwrap_or_default();
        let more = match traces.len().saturating_sub(1) {
            0 => String::new(),
            more => format!(" ({} too)", plural(more, "more trace", "more traces")),
        };
        table.warn(Note::new(finding.rule, format!("`{first}`: {}{more}", finding.evidence)));
        table.machine_fact(overview::key(finding), Cell::text(format!("`{first}`: {finding}{more}")));
    }
}
