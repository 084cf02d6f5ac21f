//! Nests the spans of one track, with overlapping spans on separate lanes.

use std::{collections::BTreeSet, ops::Range};

/// The number of lanes that are tried before a new one is opened. More concurrent work on one track is not readable
/// anyway, and trying all lanes would take quadratic time.
const TRIED: usize = 64;

/// The position of a span: its lane, and the index of its parent on that lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub lane: u32,
    pub parent: Option<u32>,
}

/// Places the spans of one track, sorted by start and longer first; `times` returns the start and end of an index.
///
/// Open spans are stored as indices: a hostile file nests millions of them.
pub fn place(spans: Range<u32>, times: impl Fn(u32) -> (u64, u64)) -> impl Iterator<Item = Place> {
    let mut lanes: Vec<Vec<u32>> = vec![Vec::new()];
    let mut idle: BTreeSet<usize> = BTreeSet::new();
    let mut busy: BTreeSet<(u64, usize)> = BTreeSet::new();
    spans.map(move |at| {
        let (start, end) = times(at);
        let end_of = |open: u32| times(open).1;
        while let Some(&(ends, lane)) = busy.first().filter(|(ends, _)| *ends <= start) {
            busy.remove(&(ends, lane));
            idle.insert(lane);
        }
        let lane = lanes
            .iter_mut()
            .take(TRIED)
            .position(|open| accepts(open, start, end, &end_of))
            .or_else(|| idle.first().copied())
            .unwrap_or(lanes.len());
        if lane == lanes.len() {
            lanes.push(Vec::new());
        }
        let open = &mut lanes[lane];
        close_ended(open, start, &end_of);
        let parent = open.last().copied();
        if lane >= TRIED {
            idle.remove(&lane);
            busy.insert((end, lane));
        }
        open.push(at);
        Place { lane: lane as u32, parent }
    })
}

fn close_ended(open: &mut Vec<u32>, start: u64, end_of: &impl Fn(u32) -> u64) {
    while open.pop_if(|top| end_of(*top) <= start).is_some() {}
}

/// Whether a lane is free: ended spans are closed, and the span is inside the remaining one.
///
/// A span without length contains nothing, and a span that begins where another ends is outside it.
fn accepts(open: &mut Vec<u32>, start: u64, end: u64, end_of: &impl Fn(u32) -> u64) -> bool {
    close_ended(open, start, end_of);
    open.last().is_none_or(|top| end <= end_of(*top))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(spans: &[(u64, u64)]) -> Vec<(u32, Option<u32>)> {
        let placed = place(0..spans.len() as u32, |at| spans[at as usize]);
        placed.map(|place| (place.lane, place.parent)).collect()
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
    fn a_hundred_thousand_overlapping_spans_do_not_take_quadratic_time() {
        let overlapping: Vec<_> = (0..100_000_u64).map(|i| (i, i + 200_000)).collect();
        let places = placed(&overlapping);
        assert_eq!(places.iter().map(|(lane, _)| lane).max(), Some(&99_999));
    }
}
