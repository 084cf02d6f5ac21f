//! What recording cost, told below a table of what was recorded.

use laptime_analyze::{MOST_OVERHEAD, Overhead};
use laptime_stats::Cost;

use crate::table::{Cell, Table};

/// Adds what recording cost to a table.
pub fn add_overhead(table: &mut Table, overhead: &Overhead) {
    let Some(cost) = overhead.cost else { return };
    let interval = cost.interval;
    // Without an interval the share supports no claim.
    table.machine_fact("overhead", interval.map(|_| Cell::Number(cost.share)));
    table.machine_fact("overhead_lo", interval.map(|interval| Cell::Number(interval.low)));
    table.machine_fact("overhead_hi", interval.map(|interval| Cell::Number(interval.high)));
    table.machine_fact("overhead_pairs", Cell::Count(cost.pairs as u64));
    table.machine_fact("spans_a_take", overhead.spans_a_take.map(Cell::Number));
    let spans = overhead.spans_a_take.map_or_else(String::new, |spans| format!("; {spans:.0} spans per iteration"));
    table.note(format!("{}{spans}.", sentence(overhead, cost)));
    table.legend("Iterations that were not recorded are part of the wall time but of no stage.");
    if overhead.is_too_large() {
        let most = 100.0 * MOST_OVERHEAD;
        table.note(format!(
            "That is more than {most} %: mark fewer stages in the innermost loop, or read shares rather than times."
        ));
    }
}

/// What recording cost, if the interval supports that it cost something.
fn sentence(overhead: &Overhead, cost: Cost) -> String {
    let pairs = cost.pairs;
    let Some(interval) = cost.interval else {
        let pairs = if pairs == 1 { "1 pair".to_owned() } else { format!("{pairs} pairs") };
        return format!("Recording cost: not distinguishable from zero ({pairs} of iterations; at least 6 are needed)");
    };
    let [share, low, high] = [cost.share, interval.low, interval.high].map(|share| 100.0 * share);
    let range = format!("({low:+.2} to {high:+.2} %, {pairs} recorded iterations against {pairs} unrecorded)");
    if overhead.is_distinguishable() {
        format!("Recording cost {share:+.2} % per iteration {range}")
    } else {
        format!("Recording cost: not distinguishable from zero {range}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_stats::cost_of_first;

    fn told(pairs: &[(f64, f64)]) -> String {
        let cost = cost_of_first(pairs, 1).unwrap();
        sentence(&Overhead { cost: Some(cost), spans_a_take: None }, cost)
    }

    #[test]
    fn a_cost_is_stated_only_where_its_interval_excludes_zero() {
        assert!(told(&[(1.02, 1.0); 30]).starts_with("Recording cost +2.00 % per iteration (+2.00 to +2.00 %, 30"));
        let noise: Vec<(f64, f64)> = (0..30).map(|at| (1.0 + 0.01 * f64::from(at % 7 - 3), 1.0)).collect();
        assert!(told(&noise).starts_with("Recording cost: not distinguishable from zero (-"), "{}", told(&noise));
        assert_eq!(
            told(&[(1.111, 1.0)]),
            "Recording cost: not distinguishable from zero (1 pair of iterations; at least 6 are needed)"
        );
    }
}
