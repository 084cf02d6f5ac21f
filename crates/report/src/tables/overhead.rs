//! What recording cost, told below a table of what was recorded.

use laptime_analyze::{MOST_OVERHEAD, Overhead};

use crate::table::{Cell, Table};

/// Adds what recording cost to a table.
pub fn add_overhead(table: &mut Table, overhead: &Overhead) {
    let Some(cost) = overhead.cost else { return };
    let interval = cost.interval;
    table.machine_fact("overhead", Cell::Number(cost.share));
    table.machine_fact("overhead_lo", interval.map(|interval| Cell::Number(interval.low)));
    table.machine_fact("overhead_hi", interval.map(|interval| Cell::Number(interval.high)));
    table.machine_fact("overhead_pairs", Cell::Count(cost.pairs as u64));
    table.machine_fact("spans_a_take", overhead.spans_a_take.map(Cell::Number));
    let within = interval.map_or_else(String::new, |interval| {
        format!(" (95 % interval {:+.2} to {:+.2} %)", 100.0 * interval.low, 100.0 * interval.high)
    });
    let spans = overhead.spans_a_take.map_or_else(String::new, |spans| format!(", {spans:.0} spans a take"));
    let share = 100.0 * cost.share;
    let pairs = cost.pairs;
    table.note(format!(
        "Recording cost {share:+.2} % of a take{within}: {pairs} recorded takes beside {pairs} that were not{spans}."
    ));
    table.legend("Iterations that were not recorded are part of the wall time but of no stage.");
    if overhead.is_too_large() {
        let most = 100.0 * MOST_OVERHEAD;
        table.note(format!(
            "That is more than {most} %: mark fewer stages in the innermost loop, or read shares rather than times."
        ));
    }
}
