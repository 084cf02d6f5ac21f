//! Whether a span is inside another of the same name.

use hashbrown::HashMap;

use laptime_trace::{NameId, Span, SpanId, TrackId};

/// The open names of each lane, counted, so that a lookup does not depend on the depth.
#[derive(Default)]
pub struct OpenNames(HashMap<(TrackId, u32), Lane>);

/// What is open on one lane: the spans, innermost last, and how often each name.
#[derive(Default)]
struct Lane {
    around: Vec<SpanId>,
    names: HashMap<NameId, u32>,
}

impl OpenNames {
    /// Advances to a span, under the name of its family; true if it is inside another span of that name. `name_of`
    /// returns the name of a span that was entered before.
    pub fn enter(&mut self, span: &Span<'_>, name: NameId, name_of: impl Fn(SpanId) -> Option<NameId>) -> bool {
        let Lane { around, names } = self.0.entry((span.track, span.lane)).or_default();
        while let Some(ended) = around.pop_if(|top| Some(*top) != span.parent) {
            if let Some(count) = name_of(ended).and_then(|ended| names.get_mut(&ended)) {
                *count -= 1;
            }
        }
        around.push(span.id);
        let count = names.entry(name).or_default();
        *count += 1;
        *count > 1
    }
}
