//! The stages of one measured iteration as a table.

use std::collections::BTreeSet;

use laptime_analyze::{Measured, Per, Stage, Stages};

use crate::{Cell, Column, Table, figures, layout::single};

/// Lays out the stages of one iteration: medians per iteration, and per lap of an inner loop.
///
/// `answer` is about [`Measured::trace`]. At most `most` stages are shown, those with the most time.
pub fn iteration(answer: &Stages, measured: &Measured, most: usize) -> Table {
    let inner = inner_laps(answer);
    let per_lap = match inner.iter().next() {
        Some(only) if inner.len() == 1 => format!("per {only}"),
        _ => "per lap".to_owned(),
    };
    let has_device = answer.stages.iter().any(|stage| device(stage).is_some());
    let (host, on_device) = (Column::new("host_ms", "host"), Column::new("device_ms", "device"));
    let columns = [
        Column::new("path", "stage"),
        Column::new("calls", "calls").drop(2),
        if has_device { host.in_unit_of("device_ms").drop(1) } else { host },
        on_device.shown_if(has_device),
        Column::new("share", "share"),
        Column::new("per_lap_ms", per_lap).shown_if(!inner.is_empty()),
    ];
    let mut table = Table::new("stages", columns);
    let root = answer.stages.iter().find(|stage| stage.depth == 0 && stage.is_lap);
    let whole = root.and_then(|root| root.outer).and_then(|outer| outer.host).unwrap_or(0.0);
    let mut rows: Vec<(usize, &Stage)> =
        answer.stages.iter().enumerate().filter(|(_, stage)| stage.depth > 0).collect();
    let left_out = limit(&mut rows, most);
    for (at, stage) in rows {
        table.push(row(stage, answer.path(at)[1..].join("/"), measured.iterations, whole));
    }
    table.note(heading(whole, measured.iterations));
    table.note(setup(measured, left_out));
    table
}

/// The names of the inner loops of an iteration.
fn inner_laps(answer: &Stages) -> BTreeSet<&str> {
    answer.stages.iter().filter(|stage| stage.is_lap && stage.depth > 0).map(|stage| stage.name.as_str()).collect()
}

fn device(stage: &Stage) -> Option<f64> {
    stage.outer.and_then(|outer| outer.device)
}

/// Keeps the stages with the most time, in order; returns how many were left out.
fn limit(rows: &mut Vec<(usize, &Stage)>, most: usize) -> usize {
    if rows.len() <= most {
        return 0;
    }
    let time = |stage: &Stage| stage.outer.and_then(|outer| outer.device.or(outer.host)).unwrap_or(0.0);
    let mut times: Vec<f64> = rows.iter().map(|(_, stage)| time(stage)).collect();
    times.sort_by(|a, b| b.total_cmp(a));
    let least = times[most];
    let before = rows.len();
    rows.retain(|(_, stage)| time(stage) > least);
    before - rows.len()
}

fn row(stage: &Stage, path: String, iterations: usize, whole: f64) -> Vec<Cell> {
    let nanos = |time: Option<f64>| Cell::from(time.map(|time| Cell::Nanos(time.round() as u64)));
    let (host, device) = stage.outer.map_or((None, None), |outer| (outer.host, outer.device));
    let share = device.or(host).filter(|_| whole > 0.0).map(|time| Cell::Share(time / whole));
    let is_inner = |lap: &str| !matches!(lap, "iteration" | "take");
    let per_lap = matches!(&stage.per, Per::Lap(lap) if is_inner(lap)).then_some(stage.median);
    vec![
        Cell::tree(stage.depth - 1, label(stage), path),
        Cell::Number(stage.count as f64 / iterations.max(1) as f64),
        nanos(host),
        nanos(device),
        Cell::from(share),
        nanos(per_lap),
    ]
}

fn label(stage: &Stage) -> String {
    if stage.is_wait { format!("{} (sync)", stage.name) } else { stage.name.clone() }
}

fn heading(whole: f64, iterations: usize) -> String {
    let whole = single(&Cell::Nanos(whole.round() as u64));
    match iterations {
        1 => format!("One iteration: {whole}."),
        _ => format!("One iteration: {whole} (median of {}).", figures::count(iterations as u64)),
    }
}

fn setup(measured: &Measured, left_out: usize) -> String {
    let parts: Vec<String> = measured
        .setup
        .iter()
        .map(|(name, time)| format!("{} {}", name.replace('_', " "), single(&Cell::Nanos(time.0))))
        .collect();
    let short = match left_out {
        0 => String::new(),
        1 => "1 shorter stage is not shown. ".to_owned(),
        more => format!("{more} shorter stages are not shown. "),
    };
    format!("{short}Setup: {}. `--all` shows every stage.", parts.join(", "))
}
