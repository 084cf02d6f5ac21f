//! Selects a part of a trace.

use crate::{
    builder::TraceBuilder,
    invariants::InvalidTrace,
    time::Nanos,
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

    /// The trace with only the marks and values at times that `is_kept` accepts. Spans stay.
    pub fn retain_points(self, is_kept: impl Fn(Nanos) -> bool) -> Result<Self, InvalidTrace> {
        let kept = |times: &[u64]| -> Vec<bool> { times.iter().map(|&time| is_kept(Nanos(time))).collect() };
        let (marks, values) = (kept(&self.marks.time), kept(&self.values.time));
        let mut builder = TraceBuilder::extending(self);
        builder.keep_points(&marks, &values);
        builder.build()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_selected_by_time() {
        let mut builder = TraceBuilder::default();
        let (main, curve) = (builder.thread(1, 1, "main"), builder.counter(1, "clock", "MHz"));
        builder.span(main, Nanos(0), Nanos(500), "all", "");
        for time in [100, 200, 300] {
            builder.mark(main, Nanos(time), "sample", "");
            builder.value(curve, Nanos(time), crate::Number::Int(1));
        }
        let part = builder.build().unwrap().retain_points(|time| time == Nanos(200)).unwrap();
        let marks: Vec<u64> = part.marks_on(main).map(|mark| mark.time.0).collect();
        assert_eq!((marks, part.values().count(), part.span_count()), (vec![200], 1, 1));
    }

    #[test]
    fn discarded_spans_lose_their_flows() {
        let mut builder = TraceBuilder::default();
        let (main, stream) = (builder.thread(1, 1, "main"), builder.stream(1, 7, "stream 7"));
        for start in [0, 100] {
            let launch = builder.span(main, Nanos(start), Nanos(10), "launch", "");
            let kernel = builder.span(stream, Nanos(start + 20), Nanos(30), "kernel", "");
            builder.flow(launch, kernel);
        }
        let trace = builder.build().unwrap();
        let part = trace.retain(|trace, id| trace.span_start(id) >= Nanos(100)).unwrap();
        assert_eq!(
            part.outline(),
            "main\n  launch  100..110\nstream 7 (device stream)\n  kernel  120..150\nflow launch 100 -> kernel 120\n"
        );
        assert_eq!(part.flows().len(), 1);
    }
}
