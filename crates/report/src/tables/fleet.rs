//! Many traces side by side as a table.

use laptime_analyze::{Figure, Fleet, FleetRow, LEAST_TRACES, ODD_DISTANCE, ODD_SHARE, Odd, Unit};

use crate::{Cell, Column, Table, layout::in_one_unit};

/// Odd ones that are named; more are counted.
const NAMED: usize = 5;

/// Lays out one row a trace; `question` names the rows for machines.
pub fn fleet(question: &'static str, answer: &Fleet) -> Table {
    let has_rank = answer.rows.iter().any(|row| row.rank.is_some());
    let has_device = answer.rows.iter().any(|row| row.device.is_some());
    let if_any = |column: Column, any: bool| if any { column } else { column.machine_only() };
    let mut columns = vec![
        Column::new("trace", "trace"),
        if_any(Column::new("rank", "rank"), has_rank),
        if_any(Column::new("device", "device"), has_device),
    ];
    // The figures that matter most come first, and stay longest.
    let figures = answer.figures.iter().zip(0..);
    columns.extend(figures.map(|(figure, order)| Column::new(figure.key, figure.label).drop(order)));
    columns.push(Column::new("odd", "odd"));
    let has_loss = answer.rows.iter().any(|row| row.lost > 0);
    columns.push(if_any(Column::new("lost_events", "lost"), has_loss));
    let has_findings = answer.rows.iter().any(|row| !row.findings.is_empty());
    columns.push(if_any(Column::new("findings", "findings"), has_findings));
    let mut table = Table::new(question, columns);
    for (at, row) in answer.rows.iter().enumerate() {
        let odd = answer.odd.iter().find(|odd| odd.at == at);
        table.push(cells(answer, row, odd));
    }
    add_odd(&mut table, answer);
    add_findings(&mut table, answer);
    table
}

fn cells(answer: &Fleet, row: &FleetRow, odd: Option<&Odd>) -> Vec<Cell> {
    let mut cells = vec![
        Cell::text(row.label.clone()),
        Cell::from(row.rank.map(|rank| Cell::Whole(i64::try_from(rank).unwrap_or(i64::MAX)))),
        Cell::from(row.device.clone().map(Cell::text)),
    ];
    let values = answer.figures.iter().zip(row.values.iter().copied().chain(std::iter::repeat(None)));
    cells.extend(values.map(|(figure, value)| Cell::from(value.map(|value| cell(figure, value)))));
    cells.push(Cell::from(odd.and_then(|odd| answer.figures.get(odd.figure)).map(|figure| Cell::text(figure.label))));
    cells.extend([row.lost, row.findings.len() as u64].map(Cell::Count));
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

fn add_odd(table: &mut Table, answer: &Fleet) {
    if answer.rows.len() < LEAST_TRACES {
        return;
    }
    let limit = format!(
        "limit: {ODD_DISTANCE:.0} times the usual distance from the median, and {:.0} % of it (of shares, of the whole)",
        100.0 * ODD_SHARE
    );
    if answer.odd.is_empty() {
        table.note(format!("No trace stands apart from the others ({limit})."));
        return;
    }
    for odd in answer.odd.iter().take(NAMED) {
        if let (Some(row), Some(figure)) = (answer.rows.get(odd.at), answer.figures.get(odd.figure)) {
            let [value, median] = in_one_unit([odd.value, odd.median].map(|value| cell(figure, value)));
            let device = row.device.as_ref().map_or_else(String::new, |device| format!(", {device}"));
            table.note(format!(
                "The odd one out: `{}`{device}, {} {value} where the median of all is {median}.",
                row.label, figure.label
            ));
        }
    }
    if let Some(more @ 1..) = answer.odd.len().checked_sub(NAMED) {
        table.note(format!("{more} more stand apart; the column `odd` names them."));
    }
    table.note(format!("{}.", super::troubles::capital(&limit)));
}

/// Tells what traces do not keep to: once a rule, by the first trace that has it.
fn add_findings(table: &mut Table, answer: &Fleet) {
    for (finding, traces) in answer.findings() {
        let first = traces.first().copied().unwrap_or_default();
        let more = match traces.len().saturating_sub(1) {
            0 => String::new(),
            1 => " So it is with 1 more trace.".to_owned(),
            more => format!(" So it is with {more} more traces."),
        };
        let told = format!("`{first}`: {finding}{more}");
        table.note(format!("Check: {told}"));
        table.machine_fact(format!("finding_{}", finding.rule), Cell::text(told));
    }
}
