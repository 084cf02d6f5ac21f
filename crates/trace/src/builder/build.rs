//! Creates a trace from the collected parts: checks, sorts and nests the spans.
//!
//! The collected columns become the columns of the trace. Each is sorted separately, so that only one column at a time
//! is in memory twice.

use std::thread;

use super::{DISCARDED, FlowPlace, SpanEntry, TraceBuilder};
use crate::invariants::{InvalidTrace, check_blocks};
use crate::trace::{Flow, MarkColumns, NO_PARENT, SpanColumns, SpanId, Trace, ValueColumns};
use crate::track::{Track, TrackId, TrackKind};
use crate::{column::Column, lanes, names::NameId, time::Nanos};

impl TraceBuilder {
    /// Sorts, nests and checks the collected parts.
    ///
    /// Drops units of tracks that are not counters and devices of host tracks, and clamps counts to what the formats
    /// can store.
    pub fn build(mut self) -> Result<Trace, InvalidTrace> {
        const LARGE: usize = 100_000;
        self.check()?;
        let mut fields = std::mem::take(&mut self.fields);
        let (is_large, names) = (self.spans.start.len() >= LARGE, self.names.len());
        let check = || check_blocks(names, &fields);
        let mut trace = thread::scope(|scope| {
            // The other work is done meanwhile.
            let checked = is_large.then(|| thread::Builder::new().spawn_scoped(scope, check));
            let trace = self.build_without_fields()?;
            match checked.map(|thread| thread.map(thread::ScopedJoinHandle::join)) {
                Some(Ok(Ok(checked))) => checked.map(|()| trace),
                _ => check().map(|()| trace),
            }
        })?;
        fields.shrink();
        trace.fields = fields;
        Ok(trace)
    }

    fn build_without_fields(mut self) -> Result<Trace, InvalidTrace> {
        for track in &mut self.tracks {
            track.unit = if track.kind == TrackKind::Counter { track.unit } else { NameId::EMPTY };
            track.device = track.device.filter(|_| track.kind.may_have_device());
        }
        let order = span_order(&self.spans, self.tracks.len());
        let flows = std::mem::take(&mut self.flows);
        let entries = self.spans.start.len();
        let mut trace = Trace { flows: renumbered(flows, order.as_deref(), entries), ..Trace::default() };
        trace.spans = ordered_spans(std::mem::take(&mut self.spans), order);
        self.find_placed_flows(&mut trace);
        trace.flows.sort_unstable();
        trace.flows.dedup();
        self.put_marks(&mut trace);
        self.put_values(&mut trace);
        trace.names = self.names;
        trace.processes = self.processes;
        trace.tracks = self.tracks;
        trace.origin = self.origin;
        trace.clock_uncertainty = self.clock_uncertainty.map(|uncertainty| uncertainty.min(Nanos::MAX));
        trace.lost = self.lost.min(i64::MAX as u64);
        trace.warnings = self.warnings;
        trace.metadata = self.metadata;
        trace.is_cut_off = self.is_cut_off;
        trace.check_columns()?;
        Ok(trace)
    }

    fn check(&self) -> Result<(), InvalidTrace> {
        let most = u64::from(u32::MAX) - 1;
        let (spans, marks, values) = (&self.spans, &self.marks, &self.values);
        for (what, count) in [("spans", spans.start.len()), ("marks", marks.time.len())] {
            if count as u64 > most {
                return Err(InvalidTrace::TooMany { what, most });
            }
        }
        let bad = self.misplaced_spans().next();
        bad.map_or(Ok(()), |at| self.check_row(spans.track.get(at), spans.name.get(at), end_of(spans, at), false))?;
        for at in 0..marks.time.len() {
            self.check_row(marks.track.get(at), marks.name.get(at), u128::from(marks.time[at]), false)?;
        }
        for (track, &time) in values.track.iter().zip(&values.time) {
            let name = self.tracks.get(track.index()).map_or(NameId::EMPTY, |track| track.name);
            self.check_row(track, name, u128::from(time), true)?;
        }
        Ok(())
    }

    /// The spans that are on a wrong track or end too late.
    fn misplaced_spans(&self) -> impl Iterator<Item = usize> {
        let is_counter: Vec<bool> = self.tracks.iter().map(|track| track.kind == TrackKind::Counter).collect();
        let spans = &self.spans;
        (0..spans.start.len()).filter(move |&at| {
            let is_time = spans.start[at].checked_add(spans.duration.get(at)).is_some_and(|end| end <= Nanos::MAX.0);
            let is_wrong = !is_time || is_counter.get(spans.track.get(at).index()) != Some(&false);
            is_wrong && spans.flags.get(at) & DISCARDED == 0
        })
    }

    fn check_row(&self, track: TrackId, name: NameId, end: u128, is_value: bool) -> Result<(), InvalidTrace> {
        let Some(Track { kind, .. }) = self.tracks.get(track.index()) else {
            return Err(InvalidTrace::Foreign { what: "track" });
        };
        let name = || self.names.name(name).to_owned();
        if (*kind == TrackKind::Counter) != is_value {
            return Err(InvalidTrace::WrongTrack { name: name(), kind: kind.words() });
        }
        if end > u128::from(Nanos::MAX.0) {
            return Err(InvalidTrace::TooLate { name: name(), nanos: end });
        }
        Ok(())
    }

    /// Discards what a trace cannot represent, and returns the number: a reader skips such events.
    pub(crate) fn discard_misplaced(&mut self) -> u64 {
        let fits = |track, end, is_value| self.check_row(track, NameId::EMPTY, end, is_value).is_ok();
        let bad_spans: Vec<usize> = self.misplaced_spans().collect();
        let marks = &self.marks;
        let good = |at: usize| fits(marks.track.get(at), u128::from(marks.time[at]), false);
        let good_marks: Vec<bool> = (0..marks.time.len()).map(good).collect();
        let values = &self.values;
        let good = |at: usize| fits(values.track.get(at), u128::from(values.time[at]), true);
        let good_values: Vec<bool> = (0..values.time.len()).map(good).collect();
        for &at in &bad_spans {
            self.discard_span(SpanEntry(at as u32));
        }
        let bad_points = good_marks.iter().chain(&good_values).filter(|good| !**good).count();
        if bad_points > 0 {
            self.keep_points(&good_marks, &good_values);
        }
        (bad_spans.len() + bad_points) as u64
    }

    pub(crate) fn keep_points(&mut self, good_marks: &[bool], good_values: &[bool]) {
        let rows = |good: &[bool]| (0..good.len() as u32).filter(|&row| good[row as usize]).collect::<Vec<_>>();
        self.marks.permute(Some(&rows(good_marks)));
        self.values.permute(Some(&rows(good_values)));
    }

    /// Connects the flows of which only the places are known, and counts those without a target.
    fn find_placed_flows(&mut self, trace: &mut Trace) {
        let mut lost = 0_u64;
        for (from, to) in std::mem::take(&mut self.placed_flows) {
            match (span_at(trace, from), span_at(trace, to)) {
                (Some(from), Some(to)) if from != to => trace.flows.push(Flow { from, to }),
                _ => lost += 1,
            }
        }
        self.warn(lost, "flows lack one of their spans");
    }

    fn put_marks(&mut self, trace: &mut Trace) {
        let mut marks = std::mem::take(&mut self.marks);
        let order = point_order(&marks.track, &marks.time);
        marks.permute(order.as_deref());
        trace.marks = marks;
    }

    fn put_values(&mut self, trace: &mut Trace) {
        let mut values = std::mem::take(&mut self.values);
        let order = point_order(&values.track, &values.time);
        values.permute(order.as_deref());
        trace.values = values;
    }
}

fn end_of(spans: &SpanColumns, at: usize) -> u128 {
    u128::from(spans.start[at]) + u128::from(spans.duration.get(at))
}

impl MarkColumns {
    fn permute(&mut self, order: Option<&[u32]>) {
        permute(&mut self.time, order);
        self.track.permute(order);
        self.name.permute(order);
        self.category.permute(order);
        self.fields.permute(order);
    }
}

impl ValueColumns {
    fn permute(&mut self, order: Option<&[u32]>) {
        permute(&mut self.time, order);
        self.track.permute(order);
        permute(&mut self.number, order);
    }
}

/// The order of the spans by track, start, and longer first; equal spans keep their insertion order. Discarded spans
/// are left out. None if the spans are already sorted.
///
/// Sorted per track: most tracks of most files are already sorted or consist of a few sorted runs.
fn span_order(spans: &SpanColumns, tracks: usize) -> Option<Vec<u32>> {
    let kept = |at: usize| spans.flags.get(at) & DISCARDED == 0;
    let place = |at: usize| (spans.track.get(at), spans.start[at], std::cmp::Reverse(spans.duration.get(at)));
    let is_in_order = |at: usize| kept(at) && (at == 0 || place(at - 1) <= place(at));
    if (0..spans.start.len()).all(is_in_order) {
        return None;
    }
    let mut next = vec![0_usize; tracks + 1];
    for at in (0..spans.start.len()).filter(|&at| kept(at)) {
        next[spans.track.get(at).index() + 1] += 1;
    }
    for track in 1..next.len() {
        next[track] += next[track - 1];
    }
    let bounds = next.clone();
    let mut order = vec![0; bounds[tracks]];
    for at in (0..spans.start.len()).filter(|&at| kept(at)) {
        let place = &mut next[spans.track.get(at).index()];
        order[*place] = at as u32;
        *place += 1;
    }
    let key = |&at: &u32| (spans.start[at as usize], std::cmp::Reverse(spans.duration.get(at as usize)));
    for pair in bounds.windows(2) {
        let of_track = &mut order[pair[0]..pair[1]];
        if !of_track.is_sorted_by_key(key) {
            sort_by_key(of_track, key);
        }
    }
    Some(order)
}

/// Sorts with the keys next to each other: looking each one up in its column is several times slower. Many numbers are
/// sorted in parts, which are then merged, because all keys at once would need more memory than the trace.
pub(crate) fn sort_by_key<K: Ord + Copy>(numbers: &mut [u32], key: impl Fn(&u32) -> K) {
    sort_parts_by_key(numbers, key, 1 << 20);
}

fn sort_parts_by_key<K: Ord + Copy>(numbers: &mut [u32], key: impl Fn(&u32) -> K, part: usize) {
    let mut keyed: Vec<(K, u32)> = Vec::new();
    for part in numbers.chunks_mut(part) {
        keyed.clear();
        keyed.extend(part.iter().map(|at| (key(at), *at)));
        keyed.sort_by_key(|(key, _)| *key);
        for (number, (_, at)) in part.iter_mut().zip(&keyed) {
            *number = *at;
        }
    }
    if numbers.len() > part {
        // The standard sort merges runs that are in order.
        numbers.sort_by_key(key);
    }
}

fn point_order(tracks: &Column<TrackId>, times: &[u64]) -> Option<Vec<u32>> {
    let key = |&at: &u32| (tracks.get(at as usize), times[at as usize]);
    let count = tracks.len() as u32;
    if (0..count).is_sorted_by_key(|at| key(&at)) {
        return None;
    }
    let mut order: Vec<u32> = (0..count).collect();
    sort_by_key(&mut order, key);
    Some(order)
}

/// Reorders a column; none means that it is already sorted.
fn permute<T: Copy>(column: &mut Vec<T>, order: Option<&[u32]>) {
    match order {
        Some(order) => *column = order.iter().map(|&at| column[at as usize]).collect(),
        None => column.shrink_to_fit(),
    }
}

fn renumbered(flows: Vec<(SpanEntry, SpanEntry)>, order: Option<&[u32]>, entries: usize) -> Vec<Flow> {
    if flows.is_empty() {
        return Vec::new();
    }
    let Some(order) = order else {
        let flow = |(from, to): (SpanEntry, SpanEntry)| Flow { from: SpanId(from.0), to: SpanId(to.0) };
        return flows.into_iter().map(flow).collect();
    };
    let mut places = vec![NO_PARENT; entries];
    for (place, &entry) in order.iter().enumerate() {
        places[entry as usize] = place as u32;
    }
    let place = |entry: SpanEntry| Some(places[entry.at()]).filter(|&place| place != NO_PARENT).map(SpanId);
    flows.into_iter().filter_map(|(from, to)| Some(Flow { from: place(from)?, to: place(to)? })).collect()
}

fn ordered_spans(mut spans: SpanColumns, order: Option<Vec<u32>>) -> SpanColumns {
    let rows = order.as_deref();
    permute(&mut spans.start, rows);
    spans.duration.permute(rows);
    spans.track.permute(rows);
    spans.name.permute(rows);
    spans.category.permute(rows);
    spans.fields.permute(rows);
    spans.flags.permute(rows);
    drop(order);
    let count = spans.start.len();
    (spans.lane, spans.parent) = (Column::default(), Column::default());
    let mut first = 0;
    while first < count {
        let track = spans.track.get(first);
        let end = spans.track.partition_point(first, count, |known| known == track);
        let times = |at: u32| (spans.start[at as usize], spans.start[at as usize] + spans.duration.get(at as usize));
        for place in lanes::place(first as u32..end as u32, times) {
            spans.lane.push(place.lane);
            spans.parent.push(place.parent.unwrap_or(NO_PARENT));
        }
        first = end;
    }
    spans
}

/// The innermost span around a moment of a track, or the first that begins at or after it.
fn span_at(trace: &Trace, place: FlowPlace) -> Option<SpanId> {
    let spans = &trace.spans;
    let count = spans.start.len();
    let first = spans.track.partition_point(0, count, |track| track < place.track);
    let end = spans.track.partition_point(first, count, |track| track == place.track);
    if place.is_next {
        let next = first + spans.start[first..end].partition_point(|&start| start < place.time);
        return (next < end).then_some(SpanId(next as u32));
    }
    let after = first + spans.start[first..end].partition_point(|&start| start <= place.time);
    let holds = |at: usize| spans.start[at] + spans.duration.get(at) >= place.time;
    // Spans of other lanes may be in between; a match further back would be a coincidence.
    const LOOKED_AT: usize = 64;
    let nearest = (first..after).rev().take(LOOKED_AT).find(|&at| holds(at));
    let around = nearest.or_else(|| {
        let last = (after > first).then(|| after - 1)?;
        let parents = std::iter::successors(Some(last), |&at| {
            (spans.parent.get(at) != NO_PARENT).then_some(spans.parent.get(at) as usize)
        });
        parents.into_iter().find(|&at| holds(at))
    })?;
    Some(SpanId(around as u32))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn numbers_sorted_in_parts_are_sorted_and_equal_ones_keep_their_order(
            keys in prop::collection::vec(0_u8..9, 0..60), part in 1_usize..20,
        ) {
            let mut sorted: Vec<u32> = (0..keys.len() as u32).collect();
            let mut expected = sorted.clone();
            sort_parts_by_key(&mut sorted, |at| keys[*at as usize], part);
            expected.sort_by_key(|at| keys[*at as usize]);
            prop_assert_eq!(sorted, expected);
        }
    }
}
