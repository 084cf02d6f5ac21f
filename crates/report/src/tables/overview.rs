//! What every table about a trace says of the trace as a whole.

use laptime_analyze::{Overview, Waits};

use crate::{Cell, Table, layout::single};

/// Adds the facts of a trace to a table. What was lost is always told, also when it is nothing.
pub fn add(table: &mut Table, overview: &Overview) {
    table.fact("wall_ms", "wall time", Cell::Nanos(overview.wall.0));
    table.fact("spans", "spans", Cell::Count(overview.spans));
    table.fact("threads", "threads", Cell::Count(overview.threads));
    if overview.streams > 0 {
        table.fact("streams", "device streams", Cell::Count(overview.streams));
    }
    if let Some(uncertainty) = overview.clock_uncertainty {
        table.fact("clock_uncertainty_ms", "clock uncertainty", Cell::Nanos(uncertainty.0));
    }
    table.fact("lost_events", "events lost", Cell::Count(overview.lost));
    if overview.open > 0 {
        let told = match overview.open {
            1 => "1 span was still open when the recording ended, and counts up to there.".to_owned(),
            open => format!("{open} spans were still open when the recording ended, and count up to there."),
        };
        table.note(told);
    }
    for finding in &overview.findings {
        table.note(format!("Check: {finding}"));
        table.machine_fact(format!("finding_{}", finding.rule), Cell::text(finding.to_string()));
    }
    if let Some(waits) = overview.waits {
        let times = if waits.count == 1 { "once".to_owned() } else { format!("{} times", waits.count) };
        table.note(format!("The host waited for a device {times}{}.", of_wall(overview, waits)));
        table.machine_fact("waits", Cell::Count(waits.count));
        table.machine_fact("waits_ms", Cell::Nanos(waits.time.0));
    }
}

/// The share of the wall time that was waited; nothing where no length is known.
fn of_wall(overview: &Overview, waits: Waits) -> String {
    let share = waits.time.0 as f64 / overview.wall.0.max(1) as f64;
    if share > 0.0 { format!(", {} of the wall time", single(&Cell::Share(share))) } else { String::new() }
}
