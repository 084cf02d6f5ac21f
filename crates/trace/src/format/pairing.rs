//! Pairs the beginnings and ends of spans on one track.

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
    /// It was still open and was closed there.
    Open,
    /// This piece of it does not count.
    Void,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Begin(SpanEntry),
    End(FieldBlock, Ending),
}

/// What did not pair.
#[derive(Debug, Default)]
pub struct Unpaired {
    /// Ends that had no beginning.
    pub ends: u64,
    /// Beginnings that had no end.
    pub begins: u64,
}

impl Unpaired {
    /// What there is to say of it.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        if self.ends > 0 {
            warnings.push(counted(self.ends, "ends of spans have no beginning and were passed over"));
        }
        if self.begins > 0 {
            warnings.push(counted(self.begins, "spans have no end and were closed where the trace ends"));
        }
        warnings
    }
}

/// Beginnings and ends with their times, in the order of the file.
#[derive(Debug, Default)]
pub struct Pairs(Vec<(u64, Event)>);

impl Pairs {
    pub fn begin(&mut self, time: u64, span: SpanEntry) {
        self.0.push((time, Event::Begin(span)));
    }

    pub fn end(&mut self, time: u64, added: FieldBlock, ending: Ending) {
        self.0.push((time, Event::End(added, ending)));
    }

    /// Gives every span its end; the innermost open one ends first. What has none ends at `last_time`.
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
        // One that began at the very end lasts a nanosecond, so that it still lies inside those around it.
        let end = open.last().map_or(last_time, |innermost| last_time.max(builder.start_of(*innermost).0 + 1));
        for span in open {
            unpaired.begins += 1;
            builder.end_span(span, Nanos(end));
            builder.leave_open(span);
        }
    }
}
