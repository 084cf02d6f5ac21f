//! The stage tree as a table.

use laptime_analyze::{Per, Stage, Stages};
use laptime_trace::{DEEPEST, Nanos};

use super::overview;
use crate::{Cell, Column, Table};

/// Lays out the stage tree.
pub fn stages(answer: &Stages) -> Table {
    let mut table = Table::new(
        "stages",
        [
            Column::new("path", "stage"),
            Column::new("name", "name").machine_only(),
            Column::new("depth", "depth").machine_only(),
            Column::new("kind", "kind").machine_only(),
            Column::new("count", "count"),
            Column::new("host_ms", "host"),
            Column::new("host_share", "share").drop(1),
            Column::new("host_self_ms", "self").in_unit_of("host_ms").drop(3),
            Column::new("device_ms", "device").in_unit_of("host_ms"),
            Column::new("median_ms", "median"),
            Column::new("p95_ms", "p95").in_unit_of("median_ms").drop(2),
            Column::new("unit", "per").human_only(),
            Column::new("per", "per").machine_only(),
            Column::new("open", "open").machine_only(),
        ],
    );
    for (at, stage) in answer.stages.iter().enumerate() {
        table.push(row(stage, answer.path(at).join("/")));
    }
    overview::add(&mut table, &answer.overview);
    if answer.too_deep > 0 {
        let told = "spans nested deeper than";
        table.note(format!("{} {told} {DEEPEST} levels count with the stage at that depth.", answer.too_deep));
    }
    if answer.overview.threads > 1 {
        table.note(format!("Times of {} threads are added; shares are of the wall time.", answer.overview.threads));
    }
    table
}

fn row(stage: &Stage, path: String) -> Vec<Cell> {
    let nanos = |time: Option<Nanos>| Cell::from(time.map(|time| Cell::Nanos(time.0)));
    let kind = match (stage.is_lap, stage.is_wait, stage.host) {
        (true, ..) => "lap",
        (_, true, _) => "wait",
        (_, _, None) => "device",
        _ => "stage",
    };
    // The tree shows which lap it is; machines get its name.
    let (unit, per) = match &stage.per {
        Per::Call => ("call", "call"),
        Per::Lap(name) => ("lap", name.as_str()),
    };
    vec![
        Cell::tree(stage.depth, label(stage), path),
        Cell::text(stage.name.clone()),
        Cell::Count(stage.depth as u64),
        Cell::text(kind),
        Cell::Count(stage.count),
        nanos(stage.host),
        Cell::from(stage.share.map(Cell::Share)),
        nanos(stage.host_self),
        nanos(stage.device),
        Cell::Nanos(stage.median.round() as u64),
        Cell::Nanos(stage.p95.round() as u64),
        Cell::text(unit),
        Cell::text(per),
        Cell::Count(stage.open),
    ]
}

/// A lap and a wait are told by their look, and by the column `kind` for machines.
fn label(stage: &Stage) -> String {
    match (stage.is_lap, stage.is_wait) {
        (true, _) => format!("{} (lap)", stage.name),
        (_, true) => format!("{} (wait)", stage.name),
        _ => stage.name.clone(),
    }
}
