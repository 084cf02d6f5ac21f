//! Nests the spans of one track, and puts overlapping spans on separate lanes.

use std::collections::BTreeSet;

/// The number of lanes that are tried before a new one is opened. More concurrent work on one track is not readable
/// anyway, and trying all lanes would take quadratic time.
const TRIED: usize = 64;

/// The position of a span: its lane, and the index of its parent on that lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub lane: u32,
    pub parent: Option<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    index: u32,
    start: u64,
    end: u64,
}

impl Open {
    /// Whether a span that begins at `start`, not before this one, is inside.
    ///
    /// A span without length contains nothing, and a span that begins where another ends is outside it.
    fn holds(&self, start: u64, end: u64) -> bool {
        start < self.end && end <= self.end
    }
}

/// Places the spans of one track, given as start and end, sorted by start and longer first. Indices count from `first`.
pub fn place(spans: impl Iterator<Item = (u64, u64)>, first: u32) -> impl Iterator<Item = Place> {
    let mut lanes: Vec<Vec<Open>> = vec![Vec::new()];
    let mut idle: BTreeSet<usize> = BTreeSet::new();
    let mut busy: BTreeSet<(u64, usize)> = BTreeSet::new();
    spans.enumerate().map(move |(at, (start, end))| {
        while let Some(&(ends, lane)) = busy.first().filter(|(ends, _)| *ends <= start) {
            busy.remove(&(ends, lane));
            idle.insert(lane);
        }
        let lane = lanes
            .iter_mut()
            .take(TRIED)
            .position(|open| accepts(open, start, end))
            .or_else(|| idle.first().copied())
            .unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        let open = &mut lanes[lane];
        close_ended(open, start, end);
        let parent = open.last().map(|open| open.index);
        if lane >= TRIED {
            idle.remove(&lane);
            busy.insert((end, lane));
        }
        open.push(Open { index: first + at as u32, start, end });
        Place { lane: lane as u32, parent }
    })
}

fn close_ended(open: &mut Vec<Open>, start: u64, end: u64) {
    while open.last().is_some_and(|top| !top.holds(start, end) && top.end <= start) {
        open.pop();
    }
}

/// Whether a lane is free: ended spans are closed, and the span is inside the remaining one.
fn accepts(open: &mut Vec<Open>, start: u64, end: u64) -> bool {
    close_ended(open, start, end);
    open.last().is_none_or(|top| {
        debug_assert!(top.start <= start, "spans come in order of start");
        top.holds(start, end)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(spans: &[(u64, u64)]) -> Vec<(u32, Option<u32>)> {
        place(spans.iter().copied(), 0).map(|place| (place.lane, place.parent)).collect()
    }

    #[test]
    fn a_span_inside_another_is_its_child() {
        assert_eq!(placed(&[(0, 10), (2, 8), (3, 4), (9, 10)]), [(0, None), (0, Some(0)), (0, Some(1)), (0, Some(0))]);
    }

    #[test]
    fn spans_that_overlap_go_to_lanes() {
        assert_eq!(placed(&[(0, 10), (5, 15), (6, 7), (15, 20)]), [(0, None), (1, None), (0, Some(0)), (0, None)]);
    }

    #[test]
    fn a_span_that_begins_where_another_ends_follows_it() {
        assert_eq!(placed(&[(0, 10), (10, 20)]), [(0, None), (0, None)]);
    }

    #[test]
    fn spans_without_length_hold_nothing() {
        assert_eq!(placed(&[(5, 5), (5, 5), (5, 9), (5, 5)]), [(0, None), (0, None), (0, None), (0, Some(2))]);
        assert_eq!(placed(&[(0, 5), (5, 5)]), [(0, None), (0, None)]);
    }

    #[test]
    fn a_hundred_thousand_overlapping_spans_take_no_quadratic_time() {
        let overlapping: Vec<_> = (0..100_000_u64).map(|i| (i, i + 200_000)).collect();
        let places = placed(&overlapping);
        assert_eq!(places.iter().map(|(lane, _)| lane).max(), Some(&99_999));
    }
}
