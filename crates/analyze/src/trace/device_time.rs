//! The device time behind each span of the host, found through flows.

use laptime_trace::{Column, Nanos, Span, SpanId, Trace};

use crate::intervals::union_length;

/// For each span of the host, the device time of what it or anything inside it led to.
#[derive(Debug)]
pub struct DeviceTime {
    /// The time plus one; zero for spans that led to nothing.
    times: Column<u64>,
}

impl DeviceTime {
    /// The device time of a span; none if it led to nothing.
    pub fn get(&self, span: SpanId) -> Option<Nanos> {
        self.times.get(span.index()).checked_sub(1).map(Nanos)
    }
}

/// Finds the device time of each span. Overlapping device spans count once, on one stream or several.
pub fn device_time(trace: &Trace) -> DeviceTime {
    let mut led_to: Vec<(SpanId, (u64, u64))> = Vec::new();
    for flow in trace.flows() {
        let (from, to) = (trace.span(flow.from), trace.span(flow.to));
        if is_on_device(trace, &from) || !is_on_device(trace, &to) {
            continue;
        }
        let stretch = (to.start.0, to.end().0);
        led_to.extend(std::iter::once(from.id).chain(trace.ancestors(from)).map(|id| (id, stretch)));
    }
    led_to.sort_unstable();
    let mut times = Column::filled(0, trace.span_count());
    let mut stretches = Vec::new();
    for of_span in led_to.chunk_by(|a, b| a.0 == b.0) {
        stretches.clear();
        stretches.extend(of_span.iter().map(|(_, stretch)| *stretch));
        times.set(of_span[0].0.index(), union_length(&mut stretches).0.saturating_add(1));
    }
    DeviceTime { times }
}

/// Whether a span lies on a device's track.
pub fn is_on_device(trace: &Trace, span: &Span<'_>) -> bool {
    trace.track(span.track).kind.is_device()
}
