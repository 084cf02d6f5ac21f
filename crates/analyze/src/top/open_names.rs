//! Whether a span lies inside one of its own name.

use std::collections::HashMap;

use laptime_trace::{NameId, Span, SpanId, Trace, TrackId};

/// The names that are open on each lane, counted, so that a look at them does not depend on the depth.
#[derive(Default)]
pub struct OpenNames(HashMap<(TrackId, u32), Lane>);

/// What is open on one lane: the spans, innermost last, and how often each name.
#[derive(Default)]
struct Lane {
    around: Vec<SpanId>,
    names: HashMap<NameId, u32>,
}

impl OpenNames {
    /// Goes on to a span; true if it lies inside one of its own name.
    pub fn enter(&mut self, trace: &Trace, span: &Span<'_>) -> bool {
        let Lane { around, names } = self.0.entry((span.track, span.lane)).or_default();
        while let Some(ended) = around.pop_if(|top| Some(*top) != span.parent) {
            if let Some(count) = names.get_mut(&trace.span_name(ended)) {
                *count -= 1;
            }
        }
        around.push(span.id);
        let count = names.entry(trace.span_name(span.id)).or_default();
        *count += 1;
        *count > 1
    }
}
