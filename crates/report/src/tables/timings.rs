//! One pipeline timed in several ways, as a table.

use laptime_analyze::{TimedStage, TimingFigures, Timings};

use super::cases::nanos;
use crate::{Cell, Column, Table};

/// Lays out what each timing saw and cost: a row for the iteration and for each stage in it.
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
            Column::new("overhead_lo", "low").drop(1),
            Column::new("overhead_hi", "high").drop(1),
        ],
    );
    let unrecorded =
        TimedStage { name: "iteration".to_owned(), host_ns: answer.unrecorded_ns, device_ns: None, busy_ns: None };
    table.push(row("none", 0, &unrecorded, None));
    for timing in &answer.timings {
        table.push(row(timing.timing.word(), 0, &timing.iteration, Some(timing)));
        timing.stages.iter().for_each(|stage| table.push(row(timing.timing.word(), 1, stage, None)));
    }
    table.note(
        "`host` is host time; `device` the time between a stage's marks on the stream, idle time included; `busy` the time in \
         which the device worked on what the stage launched. Medians over iterations; `none` was not recorded, and `overhead` is \
         against it, take by iteration, with its 95 % interval.",
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
    ]
}
