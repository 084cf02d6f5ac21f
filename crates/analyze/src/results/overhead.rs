//! The recording overhead: recorded iterations compared with unrecorded ones.

use laptime_stats::{Cost, cost_of_first};
use laptime_trace::Trace;

use crate::measured::is_iteration;

/// The acceptable overhead at pipeline depth, as a share of an iteration.
pub const MOST_OVERHEAD: f64 = 0.01;

/// The recording overhead.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Overhead {
    /// The overhead of a recorded iteration; none without pairs.
    pub cost: Option<Cost>,
    /// Spans per recorded iteration, the median; none if no iteration was recorded.
    pub spans_per_iteration: Option<f64>,
}

impl Overhead {
    /// Whether the interval excludes zero.
    pub fn is_distinguishable(&self) -> bool {
        self.cost.and_then(|cost| cost.interval).is_some_and(|interval| !interval.contains(0.0))
    }

    /// Whether the lower end of the interval exceeds the acceptable overhead.
    pub fn is_too_large(&self) -> bool {
        self.cost.and_then(|cost| cost.interval).is_some_and(|interval| interval.low > MOST_OVERHEAD)
    }
}

/// The seed of the resampling.
const SEED: u64 = 17;

/// Computes the overhead from pairs of a recorded and an unrecorded iteration in nanoseconds, and from the trace.
pub fn overhead(pairs: &[(f64, f64)], trace: &Trace) -> Overhead {
    let iterations = trace.spans().filter(is_iteration).count();
    let first = trace.spans().find(is_iteration);
    let inside = first.map_or(0, |first| trace.spans().filter(|span| span.start >= first.start).count());
    let spans_per_iteration = (iterations > 0).then(|| inside as f64 / iterations as f64);
    Overhead { cost: cost_of_first(pairs, SEED), spans_per_iteration }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{LAP, Nanos, TraceBuilder};

    fn trace() -> Trace {
        let mut builder = TraceBuilder::default();
        let main = builder.thread(1, 1, "main");
        builder.span(main, Nanos(0), Nanos(10), "prepare", "");
        for iteration in 0..2 {
            let start = 100 + 100 * iteration;
            builder.span(main, Nanos(start), Nanos(50), "iteration", LAP);
            builder.span(main, Nanos(start + 10), Nanos(5), "matmul", "");
            builder.span(main, Nanos(start + 20), Nanos(5), "matmul", "");
        }
        builder.build().unwrap()
    }

    #[test]
    fn spans_before_the_first_iteration_belong_to_no_iteration() {
        assert_eq!(overhead(&[], &trace()).spans_per_iteration, Some(3.0));
        assert_eq!(overhead(&[], &TraceBuilder::default().build().unwrap()).spans_per_iteration, None);
    }

    #[test]
    fn an_overhead_is_too_large_if_its_whole_interval_is() {
        let at = |share: f64| overhead(&vec![(1.0 + share, 1.0); 30], &trace());
        assert!(at(0.02).is_too_large() && !at(0.005).is_too_large());
        assert!(!overhead(&[], &trace()).is_too_large());
    }
}
