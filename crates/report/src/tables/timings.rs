//! One pipeline with several kinds of timing, as a table.

use laptime_analyze::{TimedStage, TimingFigures, Timings};

use crate::{Cell, Table, table::table};

/// Lays out the times and the overhead of each timing: one row for the iteration and one for each stage.
pub fn timings(answer: &Timings) -> Table {
    let unrecorded =
        TimedStage { name: "iteration".to_owned(), host_ns: answer.unrecorded_ns, device_ns: None, busy_ns: None };
    let mut rows = vec![("none", 0, &unrecorded, None)];
    for timing in &answer.timings {
        rows.push((timing.timing.word(), 0, &timing.iteration, Some(timing)));
        rows.extend(timing.stages.iter().map(|stage| (timing.timing.word(), 1, stage, None)));
    }
    let mut table = table!("timings", rows, (timing, depth, stage, iteration):
        (&str, usize, &TimedStage, Option<&TimingFigures>) => {
        let cost = iteration.and_then(|iteration| iteration.cost);
        let interval = cost.and_then(|cost| cost.interval);
    } [
        ("timing", "timing") => Cell::text(timing),
        ("stage", "stage") => Cell::tree(depth, stage.name.clone(), stage.name.clone()),
        ("iterations", "iterations").drop(2) =>
            Cell::from(iteration.map(|iteration| Cell::Count(iteration.iterations as u64))),
        ("host_ms", "host") => Cell::nanos(stage.host_ns),
        ("device_ms", "device").in_unit_of("host_ms") => Cell::nanos(stage.device_ns),
        ("busy_ms", "busy").in_unit_of("host_ms") => Cell::nanos(stage.busy_ns),
        ("overhead", "overhead") => Cell::from(cost.map(|cost| Cell::Change(cost.share))),
        ("overhead_lo", "").machine_only() => Cell::from(interval.map(|interval| Cell::Change(interval.low))),
        ("overhead_hi", "").machine_only() => Cell::from(interval.map(|interval| Cell::Change(interval.high))),
        ("overhead_ci", "95 % CI").human_only().drop(1) =>
            Cell::from(interval.map(|ends| Cell::range(Cell::Change(ends.low), Cell::Change(ends.high)))),
    ]);
    table.legend(
        "`host` is host time, `device` the time between the start and end of a stage on the stream, idle time included, \
         and `busy` the time in which the device ran work of the stage. All are medians over iterations. `none` was not \
         recorded; `overhead` is relative to it, from pairs of iterations.",
    );
    table
}
