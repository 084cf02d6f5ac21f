//! What every table about a trace says of the trace as a whole.

use laptime_analyze::{Overview, Waits};

use crate::{Cell, Table};

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
    table.fact("lost_events", "dropped events", Cell::Count(overview.lost));
    if overview.spans == 0 {
        table.note("The trace is empty: it has no spans.");
    }
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
        table.note(waited(overview, waits));
        table.machine_fact("waits", Cell::Count(waits.count));
        table.machine_fact("waits_ms", Cell::Nanos(waits.time.0));
    }
}

/// Per cent that are told; less is told as less.
const LEAST: f64 = 0.1;

/// How often and how long the host waited; nothing is said of the time where no length is known.
pub fn waited(overview: &Overview, waits: Waits) -> String {
    let times = if waits.count == 1 { "once".to_owned() } else { format!("{} times", waits.count) };
    let share = 100.0 * waits.time.0 as f64 / overview.wall.0.max(1) as f64;
    let share = match share {
        0.0 => String::new(),
        _ if share < LEAST => format!(", <{LEAST} % of the wall time"),
        _ => format!(", {share:.1} % of the wall time"),
    };
    // Without a device the program waited for something else: a thread, a file.
    let on = if overview.streams > 0 { " for a device" } else { "" };
    format!("The host waited{on} {times}{share}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{Nanos, TraceBuilder};

    #[test]
    fn a_share_of_the_wall_time_is_told_if_there_is_one() {
        let trace = TraceBuilder::default().build().unwrap();
        let overview = Overview { wall: Nanos(100_000), streams: 1, ..laptime_analyze::overview(&trace) };
        let told = |count, time| waited(&overview, Waits { count, time: Nanos(time) });
        assert_eq!(told(2, 50_000), "The host waited for a device 2 times, 50.0 % of the wall time.");
        assert_eq!(told(1, 99), "The host waited for a device once, <0.1 % of the wall time.");
        assert_eq!(told(1, 100), "The host waited for a device once, 0.1 % of the wall time.");
        assert_eq!(told(1, 0), "The host waited for a device once.");
        let on_cpu = Overview { streams: 0, ..overview.clone() };
        let told = waited(&on_cpu, Waits { count: 177, time: Nanos(1_000) });
        assert_eq!(told, "The host waited 177 times, 1.0 % of the wall time.", "there is no device to wait for");
    }
}
