//! Pairs begin and end events of spans on one track.

use crate::{
    builder::{SpanEntry, TraceBuilder},
    fields::FieldBlock,
    format::counted,
    time::Nanos,
};

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Usual,
    /// It was still open and was closed at this time.
    Open,
    /// This part of the span does not count.
    Void,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Begin(SpanEntry),
    End(FieldBlock, Ending),
}

/// Unpaired events.
#[derive(Debug, Default)]
pub struct Unpaired {
    /// End events without a begin event.
    pub ends: u64,
    /// Begin events without an end event.
    pub begins: u64,
}

impl Unpaired {
    /// The warnings.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.ends > 0 {
            warnings.push(counted(self.ends, "end events have no begin event and were skipped"));
        }
        if self.begins > 0 {
            warnings.push(counted(self.begins, "spans have no end and were closed at the end of the trace"));
        }
        warnings
    }
}

/// Begin and end events with their times, in file order.
#[derive(Debug, Default)]
pub struct Pairs(Vec<(u64, Event)>);

impl Pairs {
    pub fn begin(&mut self, time: u64, span: SpanEntry) {
        self.0.push((time, Event::Begin(span)));
    }

    pub fn end(&mut self, time: u64, added: FieldBlock, ending: Ending) {
        self.0.push((time, Event::End(added, ending)));
    }

    /// Sets the end of every span; the innermost open one ends first. A span without an end event ends at `last_time`.
    pub fn settle(mut self, last_time: u64, builder: &mut TraceBuilder, unpaired: &mut Unpaired) {
        if !self.0.is_sorted_by_key(|(time, _)| *time) {
            self.0.sort_by_key(|(time, _)| *time);
        }
        let mut open: Vec<SpanEntry> = Vec::new();
        for (time, event) in self.0 {
            let (fields, ending) = match event {
                Event::Begin(span) => {
                    open.push(span);
                    continue;
                }
                Event::End(fields, ending) => (fields, ending),
            };
            let Some(span) = open.pop() else {
                unpaired.ends += 1;
                continue;
            };
            builder.end_span(span, Nanos(time));
            match ending {
                Ending::Usual => builder.add_kept_fields(span, fields),
                Ending::Open => builder.leave_open(span),
                Ending::Void => builder.discard_span(span),
            }
        }
        // A span that began at the very end lasts one nanosecond, so that it stays inside the enclosing ones.
        let end = open.last().map_or(last_time, |innermost| last_time.max(builder.start_of(*innermost).0 + 1));
        for span in open {
            unpaired.begins += 1;
            builder.end_span(span, Nanos(end));
            builder.leave_open(span);
        }
    }
}
