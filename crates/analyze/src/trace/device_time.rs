//! The device time behind each span of the host, found through flows.

use laptime_trace::{Column, Nanos, SpanId, Trace};

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
        let is_on_device = |id| trace.track(trace.span_track(id)).kind.is_device();
        if is_on_device(flow.from) || !is_on_device(flow.to) {
            continue;
        }
        let stretch = (trace.span_start(flow.to).0, trace.span_end(flow.to).0);
        let around = std::iter::successors(Some(flow.from), |&id| trace.span_parent(id));
        led_to.extend(around.map(|id| (id, stretch)));
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
