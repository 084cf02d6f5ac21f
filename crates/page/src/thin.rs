//! Level of detail: the shortest spans of a large trace become blocks.
//!
//! A row is one depth of one lane of one track, so its spans are disjoint. A block replaces neighbours of a row. It
//! keeps their number and the exact sum of their times, so the total of every row is unchanged.

use std::ops::Range;

use hashbrown::HashMap;
use laptime_trace::{Span, SpanId, Trace};

/// How a trace is thinned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Thinning {
    /// Spans that are shorter become part of blocks, in nanoseconds.
    pub shortest: u64,
    /// A block lasts this long at most, in nanoseconds.
    pub longest_block: u64,
}

/// A span of the page: one of the trace, or a block.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Item {
    pub(crate) start: u64,
    pub(crate) duration: u64,
    /// The span, or the longest one of a block.
    pub(crate) span: SpanId,
    pub(crate) depth: u32,
    pub(crate) lane: u32,
    /// How many spans; 1 for a span of the trace.
    pub(crate) count: u64,
    /// The time of all spans.
    pub(crate) busy: u64,
    /// The time of the longest one.
    longest: u64,
}

impl Item {
    pub(crate) fn of(span: &Span<'_>, depth: u32) -> Self {
        let duration = span.duration.0;
        let (start, span, lane) = (span.start.0, span.id, span.lane);
        Self { start, duration, span, depth, lane, count: 1, busy: duration, longest: duration }
    }

    fn end(&self) -> u64 {
        self.start.saturating_add(self.duration)
    }

    fn absorb(&mut self, other: &Self) {
        self.duration = other.end().max(self.end()) - self.start;
        self.count += other.count;
        self.busy += other.busy;
        if other.longest > self.longest {
            (self.span, self.longest) = (other.span, other.longest);
        }
    }
}

/// A half-open time interval, in nanoseconds.
pub type Window = Range<u64>;

/// Whether a span is in a window, if only in part.
pub(crate) fn is_in(span: &Span<'_>, window: &Window) -> bool {
    span.start.0 < window.end && span.end().0 >= window.start
}

/// Chooses how to thin the spans of a window to at most `most`; none if there are no more.
pub(crate) fn choose(trace: &Trace, depths: &[u32], window: &Window, most: usize) -> Option<Thinning> {
    if trace.span_count() <= most || trace.spans().filter(|span| is_in(span, window)).count() <= most {
        return None;
    }
    let length = (window.end - window.start).max(1);
    let shortest = shortest_kept(trace, window, most / 2);
    let mut thinning = Thinning { shortest, longest_block: (length >> 14).max(shortest).max(1) };
    let count = |thinning| {
        let items = |track| thinned(trace.spans_on(track), depths, window, thinning).len();
        trace.tracks().map(|(track, _)| items(track)).sum::<usize>()
    };
    while thinning.longest_block < length && count(thinning) > most {
        thinning.longest_block *= 2;
    }
    Some(thinning)
}

/// The smallest power of two with at most `most` spans that are as long.
fn shortest_kept(trace: &Trace, window: &Window, most: usize) -> u64 {
    let mut spans_of = [0_usize; 65];
    for span in trace.spans().filter(|span| is_in(span, window)) {
        spans_of[64 - span.duration.0.leading_zeros() as usize] += 1;
    }
    let mut kept = 0;
    for bits in (1..65).rev() {
        kept += spans_of[bits];
        if kept > most {
            return 1_u64.checked_shl(bits as u32).unwrap_or(u64::MAX);
        }
    }
    1
}

/// The spans of one track in a window, thinned, in order of start.
pub(crate) fn thinned<'a>(
    spans: impl Iterator<Item = Span<'a>>,
    depths: &[u32],
    window: &Window,
    thinning: Thinning,
) -> Vec<Item> {
    let mut items: Vec<Item> = Vec::new();
    let mut open: HashMap<(u32, u32), Item> = HashMap::new();
    for span in spans.filter(|span| is_in(span, window)) {
        let item = Item::of(&span, depths[span.id.index()]);
        let row = (item.lane, item.depth);
        if item.duration >= thinning.shortest {
            items.extend(open.remove(&row));
            items.push(item);
            continue;
        }
        match open.get_mut(&row) {
            Some(block) if item.end() - block.start <= thinning.longest_block => block.absorb(&item),
            _ => items.extend(open.insert(row, item)),
        }
    }
    items.extend(open.into_values());
    // Longer ones first, so that a parent precedes its children.
    items.sort_unstable_by_key(|item| (item.start, item.depth, item.lane));
    items
}
