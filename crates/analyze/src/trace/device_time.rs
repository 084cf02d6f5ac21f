//! The device time of the work launched by each host span, found through flows.

use laptime_trace::{Column, Nanos, SpanId, Trace};

use crate::intervals::union_length;

/// For each host span, the device time of the work that it or its children launched.
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
    let is_on_device = |id| trace.track(trace.span_track(id)).kind.is_device();
    let launches = || trace.flows().iter().filter(|flow| !is_on_device(flow.from) && is_on_device(flow.to));
    let around = |id| std::iter::successors(Some(id), |&id| trace.span_parent(id));
    // Where the work of each span begins among all work: counted first, so that nothing must be sorted.
    let mut places: Column<usize> = Column::filled(0, trace.span_count());
    for id in launches().flat_map(|flow| around(flow.from)) {
        places.set(id.index(), places.get(id.index()) + 1);
    }
    let mut all = 0;
    for id in trace.span_ids() {
        let count = places.get(id.index());
        places.set(id.index(), all);
        all += count;
    }
    let mut work = vec![(0, 0); all];
    for flow in launches() {
        let stretch = (trace.span_start(flow.to).0, trace.span_end(flow.to).0);
        for id in around(flow.from) {
            let place = places.get(id.index());
            work[place] = stretch;
            places.set(id.index(), place + 1);
        }
    }
    let (mut times, mut first) = (Column::filled(0, trace.span_count()), 0);
    for id in trace.span_ids() {
        let end = places.get(id.index());
        if end > first {
            times.set(id.index(), union_length(&mut work[first..end]).0.saturating_add(1));
        }
        first = end;
    }
    DeviceTime { times }
}
