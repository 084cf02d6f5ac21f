//! What every table about a trace shows of the trace as a whole.

use laptime_analyze::{Finding, Note, Overview, Waits, plural};

use crate::{Cell, Table};

/// Adds the totals of a trace to a table, and notes about what is wrong with the trace.
pub fn add(table: &mut Table, overview: &Overview) {
    table.fact("wall_ms", "wall time", Cell::Nanos(overview.wall.0));
    table.fact("spans", "spans", Cell::Count(overview.spans));
    table.fact("threads", "threads", Cell::Count(overview.threads));
    if overview.streams > 0 {
        table.fact("streams", "device streams", Cell::Count(overview.streams));
    }
    if let Some(uncertainty) = overview.clock_uncertainty {
        table.machine_fact("clock_uncertainty_ms", Cell::Nanos(uncertainty.0));
    }
    table.fact("dropped_events", "dropped events", Cell::Count(overview.dropped));
    if overview.not_recorded.0 > 0 {
        table.fact("not_recorded_ms", "not recorded", Cell::Nanos(overview.not_recorded.0));
        table.warn(Note::new("not-recorded", not_recorded(overview)));
    }
    if overview.spans == 0 {
        table.warn(Note::new("empty-trace", "the trace is empty: it contains no spans"));
    }
    if overview.dropped > 0 {
        let events = plural(overview.dropped, "event was", "events were");
        let text = format!("{events} dropped while recording; counts and sums are too low");
        table.warn(Note::new("dropped-events", text));
    }
    if overview.open > 0 {
        let (spans, count) =
            (plural(overview.open, "span", "spans"), if overview.open == 1 { "it counts" } else { "they count" });
        let text = format!("{spans} had no end when the recording stopped; {count} up to that moment");
        table.warn(Note::new("open-spans", text));
    }
    for finding in &overview.findings {
        table.warn(finding.note());
        table.machine_fact(key(finding), Cell::text(finding.to_string()));
    }
    if let Some(waits) = overview.waits {
        table.legend(waited(overview, waits));
        table.machine_fact("waits", Cell::Count(waits.count));
        table.machine_fact("waits_ms", Cell::Nanos(waits.time.0));
    }
}

/// The key of a finding for machines: `finding_before_launch`.
pub fn key(finding: &Finding) -> String {
    format!("finding_{}", finding.rule.replace('-', "_"))
}

fn not_recorded(overview: &Overview) -> String {
    let share = 100.0 * overview.not_recorded.0 as f64 / overview.wall.0.max(1) as f64;
    format!("recording was paused for {share:.1} % of the wall time; counts and sums leave that time out")
}

/// The smallest percentage that is printed as a number.
const LEAST: f64 = 0.1;

/// How often and how long the host waited; without the time if no length is known.
pub fn waited(overview: &Overview, waits: Waits) -> String {
    let times = if waits.count == 1 { "once".to_owned() } else { format!("{} times", waits.count) };
    let share = 100.0 * waits.time.0 as f64 / overview.wall.0.max(1) as f64;
    let share = match share {
        0.0 => String::new(),
        _ if share < LEAST => format!(", <{LEAST} % of the wall time"),
        _ => format!(", {share:.1} % of the wall time"),
    };
    // Without a device, the program waited for something else: a thread or a file.
    let on = if overview.streams > 0 { " for a device" } else { "" };
    format!("The host waited{on} {times}{share}.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{Nanos, TraceBuilder};

    #[test]
    fn a_paused_recording_gives_a_note_with_the_missing_share() {
        let trace = TraceBuilder::default().build().unwrap();
        let paused = Overview { wall: Nanos(100_000), not_recorded: Nanos(4_300), ..laptime_analyze::overview(&trace) };
        let note = "recording was paused for 4.3 % of the wall time; counts and sums leave that time out";
        assert_eq!(not_recorded(&paused), note);
    }

    #[test]
    fn the_share_of_wall_time_is_shown_if_known() {
        let trace = TraceBuilder::default().build().unwrap();
        let overview = Overview { wall: Nanos(100_000), streams: 1, ..laptime_analyze::overview(&trace) };
        let shown = |count, time| waited(&overview, Waits { count, time: Nanos(time) });
        assert_eq!(shown(2, 50_000), "The host waited for a device 2 times, 50.0 % of the wall time.");
        assert_eq!(shown(1, 99), "The host waited for a device once, <0.1 % of the wall time.");
        assert_eq!(shown(1, 100), "The host waited for a device once, 0.1 % of the wall time.");
        assert_eq!(shown(1, 0), "The host waited for a device once.");
        let on_cpu = Overview { streams: 0, ..overview.clone() };
        let shown = waited(&on_cpu, Waits { count: 177, time: Nanos(1_000) });
        assert_eq!(shown, "The host waited 177 times, 1.0 % of the wall time.", "there is no device to wait for");
    }
}
