//! How time and memory grow with length, as a table.

use laptime_analyze::{Clock, Exponent, INTERVAL_TAKES, LEAST_LENGTHS, Scaling, ScalingSeries};

use super::axes::{Axes, Taken};
use crate::{Cell, Column, Table};

/// Lays out exponents, a row a series, with what they mean as notes. None if no length was doubled.
pub fn scaling(answer: &Scaling) -> Option<Table> {
    let first = answer.series.first()?;
    let axes = Axes::of(answer.series.iter().map(|series| &series.id));
    let own = columns();
    let mut columns = axes.columns(&mut Taken::by(&own));
    columns.extend(own);
    let mut table = Table::new("scaling", columns);
    for series in &answer.series {
        table.push([axes.cells(&series.id), cells_of(series)].concat());
    }
    if answer.series.len() == 1 {
        axes.add_common(&mut table, &first.id);
    }
    table.note(rule(answer));
    let unsupported = answer.series.iter().filter(|series| series.time_exponent().is_none()).count();
    if unsupported > 0 {
        table.note(format!(
            "Growth in time is not distinguishable in {unsupported} of {} series: each length needs {INTERVAL_TAKES} \
             iterations, or {INTERVAL_TAKES} processes if there are several.",
            answer.series.len()
        ));
    }
    for finding in answer.findings() {
        table.note(finding.to_string());
    }
    Some(table)
}

fn columns() -> Vec<Column> {
    vec![
        Column::new("lengths", "tokens"),
        Column::new("time_exponent", "time N^"),
        Column::new("time_exponent_lo", "low").drop(2),
        Column::new("time_exponent_hi", "high").drop(2),
        Column::new("last_time_exponent", "last time N^"),
        Column::new("last_time_exponent_lo", "low").drop(3),
        Column::new("last_time_exponent_hi", "high").drop(3),
        Column::new("memory_exponent", "memory N^"),
        Column::new("last_memory_exponent", "last memory N^"),
        Column::new("quadratic_work", "N² work").drop(1),
    ]
}

fn cells_of(series: &ScalingSeries) -> Vec<Cell> {
    let mut cells = vec![Cell::text(lengths(&series.lengths))];
    cells.extend(with_ends(series.time.overall));
    cells.extend(with_ends(series.time.last));
    cells.push(value(series.memory.overall));
    cells.push(value(series.memory.last));
    cells.push(Cell::from(series.quadratic_work.map(Cell::Share)));
    cells
}

fn value(exponent: Option<Exponent>) -> Cell {
    Cell::from(exponent.map(|exponent| Cell::Number(exponent.value)))
}

/// An exponent of time with its interval; without one it supports no claim and is left out.
fn with_ends(exponent: Option<Exponent>) -> [Cell; 3] {
    let exponent = exponent.filter(|exponent| exponent.interval.is_some());
    let interval = exponent.and_then(|exponent| exponent.interval);
    let [low, high] = [interval.map(|ends| ends.low), interval.map(|ends| ends.high)];
    [value(exponent), Cell::from(low.map(Cell::Number)), Cell::from(high.map(Cell::Number))]
}

/// The shortest and the longest of some lengths: `512-8192`.
pub(crate) fn lengths(lengths: &[u64]) -> String {
    match lengths {
        [] => String::new(),
        [only] => only.to_string(),
        [first, .., last] => format!("{first}-{last}"),
    }
}

fn rule(answer: &Scaling) -> String {
    let is_of_device = answer.series.iter().all(|series| series.clock == Clock::Device);
    let clock = if is_of_device { Clock::Device } else { Clock::Wall };
    let is_of_models = answer.series.iter().any(|series| series.id.case.get("model").is_some());
    format!(
        "N^x: twice the length takes 2^x times as much. x is fitted over {LEAST_LENGTHS} lengths or more; `last`, of the \
         last doubling, says where longer ones are going. Of the {}; low and high are of its takes ({INTERVAL_TAKES} or more \
         a length).{}",
        clock.words(),
        if is_of_models { " Peak memory holds weights too." } else { "" }
    )
}
