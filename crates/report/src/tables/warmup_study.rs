//! A warm-up study as a table: one row per number of warm-up iterations.

use laptime_analyze::{ColdPart, ColdStart, ColdWork, Distance, Note, SharedDoubt, WarmUpRow, WarmUpRows};

use super::axes::{Axes, UsedKeys};
use super::course::cv_percent;
use super::troubles;
use crate::{Cell, Column, Table, table::fields};

/// Lays out the results for different numbers of warm-up iterations: the columns of CS336 assignment 2, then more, with
/// doubts as notes.
pub fn warmup_study(answer: &[WarmUpRows], doubts: &[SharedDoubt]) -> Table {
    let axes = Axes::of(answer.iter().map(|case| &case.id));
    let cold_times = cold_times(answer);
    let (mut columns, cells) = fields!((case, row): (&WarmUpRows, &WarmUpRow) => {
        let iterations = row.iterations.as_ref();
        let shift = |off: Option<Distance>| Cell::from(off.map(|off| Cell::Shift(off.nanos.round() as i64)));
        let change = |off: Option<Distance>| Cell::from(off.map(|off| Cell::Change(off.share)));
        let count = |count: usize| Cell::Count(count as u64);
    } [
        ("warmup_steps", "warm-up") => count(row.warmup_iterations),
        ("mean_time_ms", "mean") => Cell::nanos(iterations.map(|iterations| iterations.all.mean)),
        ("std_time_ms", "std").in_unit_of("mean_time_ms") =>
            Cell::nanos(iterations.and_then(|iterations| iterations.all.std)),
        ("cv_percent", "cv (%)") => Cell::number(iterations.and_then(cv_percent)),
        ("from_5_ms", "from 5").in_unit_of("mean_time_ms").drop(3) => shift(row.from_reference),
        ("from_5", "from 5") => change(row.from_reference),
        ("from_steady_ms", "from steady").in_unit_of("mean_time_ms").drop(2) => shift(row.from_steady),
        ("from_steady", "from steady") => change(row.from_steady),
        ("first_iteration_ms", "first iteration").in_unit_of("mean_time_ms").drop(4) => Cell::nanos(row.first_ns),
        ("steady_ms", "steady").in_unit_of("mean_time_ms").machine_only() => Cell::nanos(case.steady_ns),
        ("n", "iterations").drop(5) => Cell::from(iterations.map(|iterations| count(iterations.all.n))),
        ("processes", "processes").drop(6) => Cell::from(iterations.map(|iterations| count(iterations.processes))),
    ]);
    columns.extend(cold_times.iter().map(|(key, _)| Column::new(key.clone(), "").machine_only()));
    let of_axes = axes.columns(&mut UsedKeys::by(&columns));
    columns.extend(of_axes);
    let mut table = Table::new("warmup_study", columns);
    for (case, row) in answer.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row))) {
        let time = |(_, time): &(_, ColdTime)| Cell::from(case.cold.as_ref().and_then(time).map(Cell::Shift));
        table.push([cells((case, row)), cold_times.iter().map(time).collect(), axes.cells(&case.id)].concat());
    }
    axes.add_common(&mut table);
    add_notes(&mut table, answer, &axes);
    let processes = |case: &WarmUpRows| case.rows.iter().filter_map(|row| Some(row.iterations?.processes)).sum();
    let outcomes = answer.iter().map(|case| (&case.id, &case.troubles[..], processes(case)));
    troubles::add_notes(&mut table, &axes, outcomes);
    add_doubts(&mut table, answer, doubts);
    table
}

/// Every iteration of every row, for a chart: one row per iteration.
pub fn warmup_laps(answer: &[WarmUpRows]) -> Table {
    let axes = Axes::of(answer.iter().map(|case| &case.id));
    let own = ["warmup_steps", "run", "step", "time_ms", "counts"].map(|key| Column::new(key, key));
    let mut columns = own.to_vec();
    columns.extend(axes.columns(&mut UsedKeys::by(&own)));
    let mut table = Table::new("warmup_laps", columns);
    for (case, row) in answer.iter().flat_map(|case| case.rows.iter().map(move |row| (case, row))) {
        for series in &row.series {
            for (step, &iteration) in series.iterations_ns.iter().enumerate() {
                let count = |count: usize| Cell::Count(count as u64);
                let run = Cell::Count(u64::from(series.run));
                let counts = Cell::Bool(step >= row.warmup_iterations);
                let own = [count(row.warmup_iterations), run, count(step), Cell::Nanos(iteration), counts];
                table.push(own.into_iter().chain(axes.cells(&case.id)).collect::<Vec<_>>());
            }
        }
    }
    table
}

/// A part of the cost of a cold start, in nanoseconds.
type ColdTime = Box<dyn Fn(&ColdStart) -> Option<i64>>;

/// The cost of a cold start by part, for machines: the parts that at least one case has, with their keys.
fn cold_times(answer: &[WarmUpRows]) -> Vec<(String, ColdTime)> {
    type Whole = fn(&ColdStart) -> Option<i64>;
    type Part = fn(&ColdStart, ColdWork) -> Option<&ColdPart>;
    let places: [(&str, Whole, Part); 2] = [
        ("cold_before", |start| i64::try_from(start.before_ns).ok(), ColdStart::before_part),
        ("cold_first", ColdStart::beyond_ns, ColdStart::beyond_part),
    ];
    let mut times: Vec<(String, ColdTime)> = Vec::new();
    for (place, whole, part) in places {
        let has = |work: &ColdWork| {
            answer.iter().any(|case| case.cold.as_ref().is_some_and(|start| part(start, *work).is_some()))
        };
        let works: Vec<ColdWork> = ColdWork::ALL.into_iter().filter(has).collect();
        times.extend((!works.is_empty()).then(|| (format!("{place}_ms"), Box::new(whole) as ColdTime)));
        times.extend(works.into_iter().map(|work| {
            let time: ColdTime = Box::new(move |start| part(start, work).map(|part| part.nanos));
            (format!("{place}_{}_ms", work.word()), time)
        }));
    }
    times
}

/// Notes cases without a steady state, for which rows have no reference.
fn add_notes(table: &mut Table, answer: &[WarmUpRows], axes: &Axes) {
    let unsteady = answer.iter().filter(|case| case.steady_ns.is_none() && case.troubles.is_empty());
    let ids: Vec<_> = unsteady.map(|case| &case.id).collect();
    if !ids.is_empty() {
        let names = axes.names(ids.into_iter());
        let text = format!("{names}: no steady state after the largest warm-up; use more `--measure-steps`");
        table.warn(Note::new("unsteady", text));
    }
}

/// Doubts about iterations only cover the largest warm-up: earlier iterations are expected to differ.
fn add_doubts(table: &mut Table, answer: &[WarmUpRows], doubts: &[SharedDoubt]) {
    let largest = answer.iter().flat_map(|case| &case.rows).map(|row| row.warmup_iterations).max().unwrap_or(0);
    for doubt in doubts {
        let mut note = doubt.note();
        if !doubt.doubt.is_of_run() {
            note.text = format!("with {largest} warm-up iterations: {}", note.text);
        }
        table.warn(note);
    }
}
