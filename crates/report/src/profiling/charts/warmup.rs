//! The first iterations of fresh processes.

use laptime_analyze::{ColdRun, Profiling, plural};
use laptime_stats::spread::median;

use super::device_name;
use crate::chart::charts as drawn;

/// More lines make a chart unreadable.
const MOST_LINES: usize = 8;

/// Fills the chart of warm-ups: one line per process for one run, one line per number of warm-up iterations for several.
pub(super) fn laps(answer: &Profiling) -> drawn::WarmupLaps {
    let runs = &answer.warmups;
    let mut rows: Vec<drawn::WarmupRow> = match runs.as_slice() {
        [only] => processes(only),
        several => {
            let mut runs: Vec<&ColdRun> = several.iter().collect();
            runs.sort_by_key(|run| run.not_counted);
            runs.into_iter().filter_map(first_process).collect()
        }
    };
    rows.truncate(MOST_LINES);
    let levels = runs.iter().flat_map(|run| run.warmups.first()).flat_map(|case| &case.processes);
    let levels: Vec<f64> = levels.filter_map(|process| process.steady_ns).collect();
    drawn::WarmupLaps { subtitle: subtitle(answer), rows, steady_ns: median(&levels) }
}

fn processes(run: &ColdRun) -> Vec<drawn::WarmupRow> {
    let Some(case) = run.warmups.first() else { return Vec::new() };
    let row = |process: &laptime_analyze::WarmUpProcess| drawn::WarmupRow {
        name: format!("process {}", process.run + 1),
        laps_ns: process.iterations_ns.clone(),
        not_counted: run.not_counted,
    };
    case.processes.iter().map(row).collect()
}

fn first_process(run: &ColdRun) -> Option<drawn::WarmupRow> {
    let process = run.warmups.first()?.processes.first()?;
    let name = plural(run.not_counted, "warm-up iteration", "warm-up iterations");
    Some(drawn::WarmupRow { name, laps_ns: process.iterations_ns.clone(), not_counted: run.not_counted })
}

/// The machine, and the case whose iterations are drawn.
fn subtitle(answer: &Profiling) -> String {
    let cold = answer.runs.iter().filter(|run| run.read.is_warm_up());
    let machine =
        cold.filter_map(|run| run.read.run.as_ref()).find_map(|run| device_name(&run.environment.machine, &run.device));
    let case = answer.warmups.iter().find_map(|run| run.warmups.first());
    let text = |axis: &str| Some(case?.id.case.get(axis)?.to_string());
    let pass = if text("test").is_some() { "test" } else { "pass_type" };
    let words = ["model", pass, "size"].into_iter().filter_map(text);
    let parts: Vec<String> = machine.into_iter().chain(words).chain(["fresh processes".to_owned()]).collect();
    parts.join(", ")
}
