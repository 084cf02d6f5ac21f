//! A study of warm-ups as a table: a row a number of warm-up takes.

use laptime_analyze::{Distance, WarmUpRow, WarmUpRows, WarmUpStudy};

use super::{
    axes::{Axes, Taken},
    cases::nanos,
    troubles,
};
use crate::{Cell, Column, Table, layout::in_one_unit};

/// A first take that is slower by less is not worth a word.
const LEAST_SLOWER: f64 = 0.05;

/// Lays out what numbers of warm-up takes would have said, in the columns of the course and ours behind them.
pub fn warmup_study(answer: &WarmUpStudy) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let mut columns = columns();
    let of_axes = axes.columns(&mut Taken::by(&columns));
    columns.extend(of_axes);
    let mut table = Table::new("warmup_study", columns);
    for case in &answer.cases {
        for row in &case.rows {
            table.push(cells(row, case, &axes));
        }
    }
    if let Some(first) = answer.cases.first() {
        axes.add_common(&mut table, &first.id);
    }
    for case in &answer.cases {
        add_notes(&mut table, case);
    }
    let told = answer.cases.iter().map(|case| troubles::Told {
        id: &case.id,
        troubles: &case.troubles,
        measured: case.rows.iter().filter_map(|row| row.takes).map(|takes| takes.processes).sum(),
    });
    troubles::add_notes(&mut table, &axes, told);
    table
}

fn columns() -> Vec<Column> {
    let in_mean = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("mean_time_ms");
    vec![
        Column::new("warmup_steps", "warm-up"),
        Column::new("mean_time_ms", "mean"),
        in_mean("std_time_ms", "std"),
        Column::new("cv_percent", "cv (%)"),
        in_mean("from_5_ms", "from 5").drop(3),
        Column::new("from_5", "from 5"),
        in_mean("from_steady_ms", "from steady").drop(2),
        Column::new("from_steady", "from steady"),
        in_mean("first_take_ms", "first take").drop(4),
        in_mean("steady_ms", "steady").machine_only(),
        Column::new("n", "takes").drop(5),
        Column::new("processes", "processes").drop(6),
    ]
}

fn cells(row: &WarmUpRow, case: &WarmUpRows, axes: &Axes) -> Vec<Cell> {
    let takes = row.takes.as_ref();
    let cv = takes.and_then(|takes| takes.std.filter(|_| takes.mean > 0.0).map(|std| 100.0 * std / takes.mean));
    let shift = |off: Option<Distance>| Cell::from(off.map(|off| Cell::Shift(off.nanos.round() as i64)));
    let change = |off: Option<Distance>| Cell::from(off.map(|off| Cell::Change(off.share)));
    let count = |count: usize| Cell::Count(count as u64);
    let mut cells = vec![
        count(row.warmup_takes),
        nanos(takes.map(|takes| takes.mean)),
        nanos(takes.and_then(|takes| takes.std)),
        Cell::from(cv.map(Cell::Number)),
        shift(row.from_reference),
        change(row.from_reference),
        shift(row.from_steady),
        change(row.from_steady),
        nanos(row.first_ns),
        nanos(case.steady_ns),
        Cell::from(takes.map(|takes| count(takes.n))),
        Cell::from(takes.map(|takes| count(takes.processes))),
    ];
    cells.extend(axes.cells(&case.id));
    cells
}

/// Says what the first take paid for, as far as that is known.
fn add_notes(table: &mut Table, case: &WarmUpRows) {
    let Some(steady) = case.steady_ns else {
        table.note("No steady state was found over the takes of the largest warm-up. Next: more takes, with `--measure-steps`.");
        return;
    };
    let cold = case.rows.iter().filter(|row| row.warmup_takes == 0).find_map(|row| row.first_ns);
    let first = cold.or_else(|| case.rows.iter().find_map(|row| row.first_ns));
    let Some(first) = first.filter(|first| *first > steady * (1.0 + LEAST_SLOWER)) else {
        table.note("The first take of a fresh process is as fast as later ones (limit: 5 % slower).");
        return;
    };
    let times = [first, steady, first - steady].map(|time| nanos(Some(time)));
    let [first, steady, beyond] = in_one_unit(times);
    table.note(format!(
        "The first take of a fresh process took {first}, {beyond} beyond the steady {steady}. A first take pays for {}. The parts are not told apart here, and what else ran is in them too.",
        paid(&case.id.device)
    ));
}

/// What a first take pays for on a device. What is no part of a take is not in it: weights are made before.
fn paid(device: &str) -> &'static str {
    if device.starts_with("cuda") {
        "kernels that are loaded when they are first launched, cuBLAS's choice of products, and clocks that rise; the context and compiled kernels are part of preparation"
    } else {
        "pages of memory that are touched for the first time, threads that start, and empty caches"
    }
}
