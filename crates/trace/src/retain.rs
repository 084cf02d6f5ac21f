//! A part of a trace.

use crate::{
    builder::TraceBuilder,
    invariants::InvalidTrace,
    trace::{SpanId, Trace},
};

impl Trace {
    /// The trace with only the spans that `is_kept` accepts, and the flows between them. Marks and values stay.
    pub fn retain(self, is_kept: impl Fn(&Self, SpanId) -> bool) -> Result<Self, InvalidTrace> {
        let kept: Vec<bool> = self.spans().map(|span| is_kept(&self, span.id)).collect();
        let mut builder = TraceBuilder::extending(self);
        builder.retain_spans(&kept);
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::Nanos;

    #[test]
    fn spans_that_are_refused_go_with_their_flows() {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        for start in [0, 100] {
            let launch = builder.span(main, Nanos(start), Nanos(10), "launch", "");
            let kernel = builder.span(stream, Nanos(start + 20), Nanos(30), "kernel", "");
            builder.flow(launch, kernel);
        }
        let trace = builder.build().unwrap();
        let part = trace.retain(|trace, id| trace.span_start(id) >= Nanos(100)).unwrap();
        assert_eq!(part.outline(), "main\n  launch  100..110\nstream 7\n  kernel  120..150\n");
        assert_eq!(part.flows().len(), 1);
    }
}
