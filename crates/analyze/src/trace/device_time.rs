//! The device time behind each span of the host, found through flows.

use hashbrown::HashMap;

use laptime_trace::{Nanos, Span, SpanId, Trace};

use crate::intervals::union_length;

/// For each span of the host, the device time of what it or anything inside it led to.
///
/// Overlapping device spans count once, on one stream or several. Spans that led to nothing have no entry.
pub fn device_time(trace: &Trace) -> HashMap<SpanId, Nanos> {
    let mut led_to: HashMap<SpanId, Vec<(u64, u64)>> = HashMap::new();
    for flow in trace.flows() {
        let (from, to) = (trace.span(flow.from), trace.span(flow.to));
        if is_on_device(trace, &from) || !is_on_device(trace, &to) {
            continue;
        }
        let stretch = (to.start.0, to.end().0);
        for id in std::iter::once(from.id).chain(trace.ancestors(from)) {
            led_to.entry(id).or_default().push(stretch);
        }
    }
    led_to.into_iter().map(|(id, mut stretches)| (id, union_length(&mut stretches))).collect()
}

/// Whether a span lies on a device's track.
pub fn is_on_device(trace: &Trace, span: &Span<'_>) -> bool {
    trace.track(span.track).kind.is_device()
}
