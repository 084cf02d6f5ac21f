//! Pairs begin and end events of spans on one track.

use hashbrown::HashMap;

use crate::builder::{SpanEntry, TraceBuilder, sort_by_key};
use crate::{column::Column, fields::FieldBlock, time::Nanos};

/// How a span ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Usual,
    /// It was still open and was closed at this time.
    Open,
    /// This part of the span does not count.
    Void,
}

/// Unpaired events.
#[derive(Debug, Default)]
pub struct Unpaired {
    /// End events without a begin event.
    pub ends: u64,
    /// Begin events without an end event.
    pub begins: u64,
}

/// The warning about spans that were open at the end of a file.
pub const NO_END: &str = "spans have no end and were closed at the end of the trace";

/// The begin and end events of a file, in file order. Each belongs to a sequence: a track, or one asynchronous span.
///
/// Stored as columns: tens of millions of events need twelve bytes each.
#[derive(Debug, Default)]
pub struct Pairs {
    sequence: Column<u32>,
    /// One more than the highest sequence.
    sequences: usize,
    time: Vec<u64>,
    /// The span that begins; [`END`] for an end.
    begins: Column<u32>,
    /// What an end adds to its span.
    fields: Column<FieldBlock>,
    ending: Column<u8>,
}

/// Sequences whose open spans are found by index.
const MOST_TRACKS: usize = 1 << 12;

/// In place of the span that begins.
const END: u32 = u32::MAX;

impl Pairs {
    pub fn begin(&mut self, sequence: u32, time: u64, span: SpanEntry) {
        self.add(sequence, time, span.number(), FieldBlock::NONE, Ending::Usual);
    }

    pub fn end(&mut self, sequence: u32, time: u64, added: FieldBlock, ending: Ending) {
        self.add(sequence, time, END, added, ending);
    }

    fn add(&mut self, sequence: u32, time: u64, begins: u32, fields: FieldBlock, ending: Ending) {
        self.sequences = self.sequences.max(sequence as usize + 1);
        self.sequence.push(sequence);
        self.time.push(time);
        self.begins.push(begins);
        self.fields.push(fields);
        self.ending.push(ending as u8);
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        let fields = self.fields.bytes() + self.ending.bytes();
        (self.sequence.bytes() + size_of_val(self.time.as_slice()) + self.begins.bytes() + fields) as u64
    }

    /// Sets the end of every span; the innermost open one ends first. A span without an end event ends at `last_time`.
    pub fn settle(self, last_time: u64, builder: &mut TraceBuilder, unpaired: &mut Unpaired) {
        // Tracks are few and come first; asynchronous spans may be millions, and few of them are open.
        let mut open: Vec<Vec<SpanEntry>> = vec![Vec::new(); self.sequences.min(MOST_TRACKS)];
        let mut others: HashMap<u32, Vec<SpanEntry>> = HashMap::new();
        let order = self.order();
        for row in 0..self.time.len() {
            let row = order.as_ref().map_or(row, |order| order[row] as usize);
            let sequence = self.sequence.get(row);
            let begun = builder.entry(u64::from(self.begins.get(row)));
            let around = match open.get_mut(sequence as usize) {
                Some(track) => track,
                None => others.entry(sequence).or_default(),
            };
            let ended = match begun {
                Some(span) => {
                    around.push(span);
                    continue;
                }
                None => around.pop(),
            };
            if around.is_empty() && sequence as usize >= open.len() {
                others.remove(&sequence);
            }
            match ended {
                Some(span) => self.end_span(span, row, builder),
                None => unpaired.ends += 1,
            }
        }
        let left = open.into_iter().filter(|spans| !spans.is_empty()).chain(others.into_values());
        left.for_each(|spans| leave_open(&spans, last_time, builder, unpaired));
    }

    fn end_span(&self, span: SpanEntry, row: usize, builder: &mut TraceBuilder) {
        builder.end_span(span, Nanos(self.time[row]));
        match self.ending.get(row) {
            ending if ending == Ending::Open as u8 => builder.leave_open(span),
            ending if ending == Ending::Void as u8 => builder.discard_span(span),
            _ => builder.add_kept_fields(span, self.fields.get(row)),
        }
    }

    /// The rows in order of time; none if the rows of each sequence are.
    fn order(&self) -> Option<Vec<u32>> {
        let mut last = vec![0; self.sequences];
        let mut rows = self.sequence.iter().zip(&self.time);
        let is_in_order =
            |(sequence, &time): (u32, &u64)| std::mem::replace(&mut last[sequence as usize], time) <= time;
        if rows.all(is_in_order) {
            return None;
        }
        let mut order: Vec<u32> = (0..self.time.len() as u32).collect();
        sort_by_key(&mut order, |&row| self.time[row as usize]);
        Some(order)
    }
}

/// Closes spans without an end, the innermost one last.
fn leave_open(spans: &[SpanEntry], last_time: u64, builder: &mut TraceBuilder, unpaired: &mut Unpaired) {
    // A span that began at the very end lasts one nanosecond, so that it stays inside the enclosing ones.
    let end = spans.last().map_or(last_time, |innermost| last_time.max(builder.start_of(*innermost).0 + 1));
    for &span in spans {
        unpaired.begins += 1;
        builder.end_span(span, Nanos(end));
        builder.leave_open(span);
    }
}
