//! The recording overhead, shown below a table of a recording.

use laptime_analyze::{MOST_OVERHEAD, Note, Overhead, plural};
use laptime_stats::Cost;

use crate::table::{Cell, Table};

/// Adds the recording overhead to a table.
pub fn add_overhead(table: &mut Table, overhead: &Overhead) {
    let Some(cost) = overhead.cost else { return };
    let interval = cost.interval;
    // Without an interval, the share is not reported.
    table.machine_fact("overhead", interval.map(|_| Cell::Number(cost.share)));
    table.machine_fact("overhead_lo", interval.map(|interval| Cell::Number(interval.low)));
    table.machine_fact("overhead_hi", interval.map(|interval| Cell::Number(interval.high)));
    table.machine_fact("overhead_pairs", Cell::Count(cost.pairs as u64));
    table.machine_fact("spans_per_iteration", overhead.spans_per_iteration.map(Cell::Number));
    table.note(format!("{}.", sentence(overhead, cost)));
    if let Some(spans) = overhead.spans_per_iteration {
        table.legend(format!("{spans:.0} spans were recorded per iteration."));
    }
    table.legend("The wall time includes iterations that were not recorded; stages do not.");
    if overhead.is_too_large() {
        let most = 100.0 * MOST_OVERHEAD;
        let text = format!("recording costs more than {most} %; mark fewer stages in the innermost loop");
        table.warn(Note::new("recording-overhead", text));
    }
}

/// The overhead, if it differs from zero.
fn sentence(overhead: &Overhead, cost: Cost) -> String {
    let pairs = cost.pairs;
    let Some(interval) = cost.interval else {
        let pairs = plural(pairs, "pair", "pairs");
        return format!("Recording overhead: unknown ({pairs} of iterations; at least 6 are needed)");
    };
    let [share, low, high] = [cost.share, interval.low, interval.high].map(|share| 100.0 * share);
    let digits = if high.abs() < 1.0 { 2 } else { 1 };
    let range = format!("({low:.digits$} to {high:.digits$} %)");
    if overhead.is_distinguishable() {
        format!("Recording overhead: {share:.digits$} % {range}")
    } else {
        format!("Recording overhead: none measurable {range}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_stats::cost_of_first;

    fn text(pairs: &[(f64, f64)]) -> String {
        let cost = cost_of_first(pairs, 1).unwrap();
        sentence(&Overhead { cost: Some(cost), spans_per_iteration: None }, cost)
    }

    #[test]
    fn overhead_is_stated_only_if_its_interval_excludes_zero() {
        assert!(text(&[(1.02, 1.0); 30]).starts_with("Recording overhead: 2.0 % (2.0 to 2.0 %)"));
        let noise: Vec<(f64, f64)> = (0..30).map(|at| (1.0 + 0.01 * f64::from(at % 7 - 3), 1.0)).collect();
        assert!(text(&noise).starts_with("Recording overhead: none measurable (-"), "{}", text(&noise));
        assert_eq!(text(&[(1.111, 1.0)]), "Recording overhead: unknown (1 pair of iterations; at least 6 are needed)");
    }
}
