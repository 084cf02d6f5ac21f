//! Warm-ups as a table.

use laptime_analyze::{Averaged, WarmUp, WarmUpProcess, capital, grouped};

use super::{axes::Axes, troubles};
use crate::layout::{in_one_unit, single};
use crate::{Cell, Table, curve::curve, table::fields};

/// How many iterations the curve shows.
const SHOWN: usize = 12;

/// Smaller errors of an average are not reported.
const LEAST_ERROR: f64 = 0.01;

/// Lays out how the first iterations of each process behave.
pub fn warmup<'a>(answer: &'a [WarmUp]) -> Table {
    let axes = Axes::of(answer.iter().map(|case| &case.id));
    let is_several = answer.iter().any(|case| case.processes.len() > 1);
    let fields = fields!((case, process): (&WarmUp, &WarmUpProcess) => {
        let count = |count: Option<usize>| Cell::from(count.map(|count| Cell::Count(count as u64)));
        let error = process.steady_ns.map(|steady| Cell::Change(process.mean_ns / steady - 1.0));
        let shown = &process.iterations_ns[..process.iterations_ns.len().min(SHOWN)];
    } [
        ("run", "run").shown_if(is_several) => Cell::Count(u64::from(process.run)),
        ("answer", "timings") => Cell::text(process.answer.words()),
        ("n", "iterations").drop(4) => count(Some(process.iterations_ns.len())),
        ("prepare_ms", "prepare").drop(6) => Cell::Nanos(process.prepare_ns),
        ("check_ms", "check").drop(5) => Cell::Nanos(process.check_ns),
        ("first_iteration_ms", "first") => Cell::from(process.iterations_ns.first().map(|&first| Cell::Nanos(first))),
        ("steady_ms", "steady").in_unit_of("first_iteration_ms") => Cell::nanos(process.steady_ns),
        ("iterations_until_steady", "leave out") => count(process.until_steady),
        ("extra_ms", "extra").in_unit_of("first_iteration_ms").drop(2) => Cell::nanos(process.extra_ns),
        ("mean_ms", "mean").in_unit_of("first_iteration_ms").drop(3) => Cell::nanos(process.mean_ns),
        ("mean_error", "error").drop(3) => error.into(),
        ("leave_out", "").machine_only() => count(case.leave_out()),
        ("curve", "first iterations").human_only().drop(1) => Cell::text(curve(shown)),
    ]);
    let processes = |case: &'a WarmUp| case.processes.iter().map(move |process| (&case.id, (case, process)));
    let mut table = axes.rows("warmups", fields, answer.iter().flat_map(processes));
    axes.add_common(&mut table);
    add_advice(&mut table, answer, &axes);
    add_averaged(&mut table, answer, &axes);
    let outcomes = answer.iter().map(|case| (&case.id, &case.troubles[..], case.processes.len()));
    troubles::add_notes(&mut table, &axes, outcomes);
    table
}

/// One sentence per advice, with the cases it applies to.
fn add_advice(table: &mut Table, answer: &[WarmUp], axes: &Axes) {
    let groups = grouped(answer.iter().filter_map(|case| Some((case.advice()?, &case.id))));
    let is_one = groups.len() == 1;
    for (advice, ids) in groups {
        let who = if is_one { String::new() } else { format!("{}: ", axes.names(ids.into_iter())) };
        table.note(capital(&format!("{who}{advice}")));
    }
}

/// Reports the case in which the average of all iterations is most wrong.
fn add_averaged(table: &mut Table, answer: &[WarmUp], axes: &Axes) {
    let averaged = answer.iter().filter_map(|case| Some((case, case.averaged?)));
    let worst = averaged.max_by(|(_, one), (_, other)| one.error.abs().total_cmp(&other.error.abs()));
    let Some((case, averaged)) = worst.filter(|(_, averaged)| averaged.error.abs() >= LEAST_ERROR) else { return };
    let of = axes.name(&case.id).map_or_else(String::new, |name| format!(" of `{name}`"));
    table.note(format!("An average of all iterations{of} would be {}.", sentence(averaged)));
}

fn sentence(averaged: Averaged) -> String {
    let times = [Some(averaged.mean_ns), averaged.std_ns, Some(averaged.steady_ns)];
    let [mean, std, steady] = in_one_unit(times.map(Cell::nanos));
    let spread = if std.is_empty() { mean } else { format!("{mean} (standard deviation {std})") };
    format!("{spread}, {} against the steady {steady}", single(&Cell::Change(averaged.error)))
}
