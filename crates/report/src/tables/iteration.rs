//! The stages of one measured iteration as a table.

use std::collections::BTreeSet;

use laptime_analyze::{Measured, Per, Stage, Stages, plural};

use crate::{Cell, Table, figures, layout::single, table::table};

/// Lays out the stages of one iteration: medians per iteration, and per lap of an inner loop.
///
/// `answer` is about [`Measured::trace`]. At most `most` stages are shown, those with the most time.
pub fn iteration(answer: &Stages, measured: &Measured, most: usize) -> Table {
    let inner = answer.stages.iter().filter(|stage| stage.is_lap && stage.depth > 0);
    let inner: BTreeSet<&str> = inner.map(|stage| stage.name.as_str()).collect();
    let per_lap = match inner.first() {
        Some(only) if inner.len() == 1 => format!("per {only}"),
        _ => "per lap".to_owned(),
    };
    let has_device = answer.stages.iter().any(|stage| stage.outer.is_some_and(|outer| outer.device.is_some()));
    let root = answer.stages.iter().find(|stage| stage.depth == 0 && stage.is_lap);
    let whole = root.and_then(|root| root.outer).and_then(|outer| outer.host).unwrap_or(0.0);
    let mut rows: Vec<(usize, &Stage)> =
        answer.stages.iter().enumerate().filter(|(_, stage)| stage.depth > 0).collect();
    let left_out = limit(&mut rows, most);
    let mut table = table!("stages", rows, (at, stage): (usize, &Stage) => {
        let label = if stage.is_wait { format!("{} (sync)", stage.name) } else { stage.name.clone() };
        let (host, device) = stage.outer.map_or((None, None), |outer| (outer.host, outer.device));
        let share = device.or(host).filter(|_| whole > 0.0).map(|time| time / whole);
        let is_inner = matches!(&stage.per, Per::Lap(lap) if !matches!(lap.as_str(), "iteration" | "take"));
    } [
        ("path", "stage") => Cell::tree(stage.depth - 1, label, answer.path(at)[1..].join("/")),
        ("calls", "calls").drop(2) => Cell::Number(stage.count as f64 / measured.iterations.max(1) as f64),
        ("host_ms", "host") => Cell::nanos(host),
        ("device_ms", "device").shown_if(has_device) => Cell::nanos(device),
        ("share", "share") => Cell::share(share),
        ("per_lap_ms", per_lap).shown_if(!inner.is_empty()) => Cell::nanos(is_inner.then_some(stage.median)),
    ]);
    if has_device {
        table.columns[2] = table.columns[2].clone().in_unit_of("device_ms").drop(1);
    }
    table.note(heading(whole, measured.iterations));
    table.note(setup(measured, left_out));
    table
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
        more => format!("{} not shown. ", plural(more, "shorter stage is", "shorter stages are")),
    };
    format!("{short}Setup: {}. `--all` shows every stage.", parts.join(", "))
}
