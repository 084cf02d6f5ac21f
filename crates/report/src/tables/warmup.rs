//! Warm-ups as a table.

use laptime_analyze::{Advice, Averaged, CaseId, WarmUp, WarmUpProcess, WarmUps};

use super::{
    axes::{Axes, Taken},
    cases::nanos,
    troubles,
};
use crate::{
    Cell, Column, Table,
    curve::curve,
    layout::{in_one_unit, single},
};

/// How many iterations the curve shows.
const SHOWN: usize = 12;

/// Smaller errors of an average are not reported.
const LEAST_ERROR: f64 = 0.01;

/// Lays out how the first iterations of each process behave.
pub fn warmup(answer: &WarmUps) -> Table {
    let axes = Axes::of(answer.cases.iter().map(|case| &case.id));
    let own = columns(answer);
    let mut columns = axes.columns(&mut Taken::by(&own));
    columns.extend(own);
    let mut table = Table::new("warmups", columns);
    for case in &answer.cases {
        for process in &case.processes {
            table.push(row(case, process, &axes));
        }
    }
    if let Some(first) = answer.cases.first() {
        axes.add_common(&mut table, &first.id);
    }
    add_advice(&mut table, answer, &axes);
    add_averaged(&mut table, answer, &axes);
    let outcomes = answer.cases.iter().map(|case| troubles::Outcome {
        id: &case.id,
        troubles: &case.troubles,
        measured: case.processes.len(),
    });
    troubles::add_notes(&mut table, &axes, outcomes);
    table
}

fn columns(answer: &WarmUps) -> Vec<Column> {
    let in_first = |key: &'static str, label: &'static str| Column::new(key, label).in_unit_of("first_iteration_ms");
    let run = Column::new("run", "run");
    let is_several = answer.cases.iter().any(|case| case.processes.len() > 1);
    vec![
        if is_several { run } else { run.machine_only() },
        Column::new("answer", "timings"),
        Column::new("n", "iterations").drop(4),
        Column::new("prepare_ms", "prepare").drop(6),
        Column::new("check_ms", "check").drop(5),
        Column::new("first_iteration_ms", "first"),
        in_first("steady_ms", "steady"),
        Column::new("iterations_until_steady", "leave out"),
        in_first("extra_ms", "extra").drop(2),
        in_first("mean_ms", "mean").drop(3),
        Column::new("mean_error", "error").drop(3),
        Column::new("leave_out", "").machine_only(),
        Column::new("curve", "first iterations").human_only().drop(1),
    ]
}

fn row(case: &WarmUp, process: &WarmUpProcess, axes: &Axes) -> Vec<Cell> {
    let count = |count: Option<usize>| Cell::from(count.map(|count| Cell::Count(count as u64)));
    let error = process.steady_ns.map(|steady| Cell::Change(process.mean_ns / steady - 1.0));
    let shown = &process.iterations_ns[..process.iterations_ns.len().min(SHOWN)];
    let mut cells = axes.cells(&case.id);
    cells.extend([
        Cell::Count(u64::from(process.run)),
        Cell::text(process.answer.words()),
        count(Some(process.iterations_ns.len())),
        Cell::Nanos(process.prepare_ns),
        Cell::Nanos(process.check_ns),
        Cell::from(process.iterations_ns.first().map(|&first| Cell::Nanos(first))),
        nanos(process.steady_ns),
        count(process.until_steady),
        nanos(process.extra_ns),
        nanos(Some(process.mean_ns)),
        error.into(),
        count(case.leave_out()),
        Cell::text(curve(shown)),
    ]);
    cells
}

/// One sentence per advice, with the cases it applies to.
fn add_advice(table: &mut Table, answer: &WarmUps, axes: &Axes) {
    let mut groups: Vec<(Advice, Vec<&CaseId>)> = Vec::new();
    for case in &answer.cases {
        let Some(advice) = case.advice() else { continue };
        match groups.iter_mut().find(|(known, _)| *known == advice) {
            Some((_, ids)) => ids.push(&case.id),
            None => groups.push((advice, vec![&case.id])),
        }
    }
    let is_one = groups.len() == 1;
    for (advice, ids) in groups {
        let who = if is_one { String::new() } else { format!("{}: ", axes.names(ids.into_iter())) };
        table.note(troubles::capital(&format!("{who}{advice}")));
    }
}

/// Reports the case in which the average of all iterations is most wrong.
fn add_averaged(table: &mut Table, answer: &WarmUps, axes: &Axes) {
    let averaged = answer.cases.iter().filter_map(|case| Some((case, case.averaged?)));
    let worst = averaged.max_by(|(_, one), (_, other)| one.error.abs().total_cmp(&other.error.abs()));
    let Some((case, averaged)) = worst.filter(|(_, averaged)| averaged.error.abs() >= LEAST_ERROR) else { return };
    let of = axes.name(&case.id).map_or_else(String::new, |name| format!(" of `{name}`"));
    table.note(format!("An average of all iterations{of} would be {}.", sentence(averaged)));
}

fn sentence(averaged: Averaged) -> String {
    let times = [Some(averaged.mean_ns), averaged.std_ns, Some(averaged.steady_ns)];
    let [mean, std, steady] = in_one_unit(times.map(nanos));
    let spread = if std.is_empty() { mean } else { format!("{mean} (standard deviation {std})") };
    format!("{spread}, {} against the steady {steady}", single(&Cell::Change(averaged.error)))
}
