//! One pipeline with several kinds of timing, as a table.

use laptime_analyze::{TimedStage, TimingFigures, Timings};

use super::cases::nanos;
use crate::{Cell, Column, Table};

/// Lays out the times and the overhead of each timing: one row for the iteration and one for each stage.
pub fn timings(answer: &Timings) -> Table {
    let mut table = Table::new(
        "timings",
        [
            Column::new("timing", "timing"),
            Column::new("stage", "stage"),
            Column::new("iterations", "iterations").drop(2),
            Column::new("host_ms", "host"),
            Column::new("device_ms", "device").in_unit_of("host_ms"),
            Column::new("busy_ms", "busy").in_unit_of("host_ms"),
            Column::new("overhead", "overhead"),
            Column::new("overhead_lo", "").machine_only(),
            Column::new("overhead_hi", "").machine_only(),
            Column::new("overhead_ci", "95 % CI").human_only().drop(1),
        ],
    );
    let unrecorded =
        TimedStage { name: "iteration".to_owned(), host_ns: answer.unrecorded_ns, device_ns: None, busy_ns: None };
    table.push(row("none", 0, &unrecorded, None));
    for timing in &answer.timings {
        table.push(row(timing.timing.word(), 0, &timing.iteration, Some(timing)));
        timing.stages.iter().for_each(|stage| table.push(row(timing.timing.word(), 1, stage, None)));
    }
    table.legend(
        "`host` is host time, `device` the time between the start and end of a stage on the stream, idle time included, \
         and `busy` the time in which the device ran work of the stage. All are medians over iterations. `none` was not \
         recorded; `overhead` is relative to it, from pairs of iterations.",
    );
    table
}

fn row(timing: &'static str, depth: usize, stage: &TimedStage, iteration: Option<&TimingFigures>) -> Vec<Cell> {
    let cost = iteration.and_then(|iteration| iteration.cost);
    let interval = cost.and_then(|cost| cost.interval);
    vec![
        Cell::text(timing),
        Cell::tree(depth, stage.name.clone(), stage.name.clone()),
        Cell::from(iteration.map(|iteration| Cell::Count(iteration.iterations as u64))),
        nanos(stage.host_ns),
        nanos(stage.device_ns),
        nanos(stage.busy_ns),
        Cell::from(cost.map(|cost| Cell::Change(cost.share))),
        Cell::from(interval.map(|interval| Cell::Change(interval.low))),
        Cell::from(interval.map(|interval| Cell::Change(interval.high))),
        Cell::from(interval.map(|ends| Cell::range(Cell::Change(ends.low), Cell::Change(ends.high)))),
    ]
}
