//! What recording cost: the takes that were recorded against those that were not.

use laptime_stats::{Cost, cost_of_first};
use laptime_trace::Trace;

use crate::measured::is_iteration;

/// The share of a take that recording may cost at pipeline depth: the upper end of the interval stays below it.
pub const MOST_OVERHEAD: f64 = 0.01;

/// What recording cost.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overhead {
    /// What a recorded take cost over one that was not; none without pairs.
    pub cost: Option<Cost>,
    /// Spans in a recorded take, on the median of takes; none if no take was recorded.
    pub spans_a_take: Option<f64>,
}

impl Overhead {
    /// Whether the interval excludes zero: else the cost cannot be distinguished from none.
    pub fn is_distinguishable(&self) -> bool {
        self.cost.and_then(|cost| cost.interval).is_some_and(|interval| !interval.contains(0.0))
    }

    /// Whether even the lower end of the interval lies beyond what recording may cost.
    pub fn is_too_large(&self) -> bool {
        self.cost.and_then(|cost| cost.interval).is_some_and(|interval| interval.low > MOST_OVERHEAD)
    }
}

/// What the resampling starts from.
const SEED: u64 = 17;

/// Says what recording cost, from pairs of a recorded and an unrecorded take in nanoseconds, and from the trace.
pub fn overhead(pairs: &[(f64, f64)], trace: &Trace) -> Overhead {
    let takes = trace.spans().filter(is_iteration).count();
    let first = trace.spans().find(is_iteration);
    let inside = first.map_or(0, |first| trace.spans().filter(|span| span.start >= first.start).count());
    let spans_a_take = (takes > 0).then(|| inside as f64 / takes as f64);
    Overhead { cost: cost_of_first(pairs, SEED), spans_a_take }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{LAP, Nanos, TraceBuilder};

    fn trace() -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(10), "prepare", "");
        for take in 0..2 {
            let start = 100 + 100 * take;
            builder.span(main, Nanos(start), Nanos(50), "take", LAP);
            builder.span(main, Nanos(start + 10), Nanos(5), "matmul", "");
            builder.span(main, Nanos(start + 20), Nanos(5), "matmul", "");
        }
        builder.build().unwrap()
    }

    #[test]
    fn spans_before_the_first_take_belong_to_no_take() {
        assert_eq!(overhead(&[], &trace()).spans_a_take, Some(3.0));
        assert_eq!(overhead(&[], &TraceBuilder::default().build().unwrap()).spans_a_take, None);
    }

    #[test]
    fn an_overhead_is_too_large_when_all_of_its_interval_is() {
        let at = |share: f64| overhead(&vec![(1.0 + share, 1.0); 30], &trace());
        assert!(at(0.02).is_too_large() && !at(0.005).is_too_large());
        assert!(!overhead(&[], &trace()).is_too_large());
    }
}
