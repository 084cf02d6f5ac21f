//! Makes a trace of what was gathered: checks it, orders it, nests the spans.

use super::{DISCARDED, SpanEntry, TraceBuilder};
use crate::{
    invariants::InvalidTrace,
    lanes,
    names::NameId,
    time::Nanos,
    trace::{Flow, NO_PARENT, SpanColumns, SpanId, Trace},
    track::{Track, TrackId, TrackKind},
};

impl TraceBuilder {
    /// Orders, nests and checks what was gathered.
    ///
    /// Units of tracks that are no counters are dropped, and counts beyond what the formats hold are cut to that.
    pub fn build(mut self) -> Result<Trace, InvalidTrace> {
        self.check()?;
        for track in self.tracks.iter_mut().filter(|track| track.kind != TrackKind::Counter) {
            track.unit = NameId::EMPTY;
        }
        let order = self.span_order();
        let mut trace = Trace { spans: self.span_columns(&order), ..Trace::default() };
        let mut place_of = vec![None; self.spans.len()];
        for (place, &entry) in order.iter().enumerate() {
            place_of[entry as usize] = Some(SpanId(place as u32));
        }
        let id = |entry: SpanEntry| place_of[entry.0 as usize];
        let flow = |&(from, to): &(SpanEntry, SpanEntry)| Some(Flow { from: id(from)?, to: id(to)? });
        trace.flows = self.flows.iter().filter_map(flow).collect();
        trace.flows.sort_unstable();
        trace.flows.dedup();
        self.put_marks(&mut trace);
        self.put_values(&mut trace);
        trace.names = self.names;
        trace.processes = self.processes;
        trace.tracks = self.tracks;
        trace.fields = self.fields;
        trace.origin = self.origin;
        trace.clock_uncertainty = self.clock_uncertainty.map(|uncertainty| uncertainty.min(Nanos::MAX));
        trace.lost = self.lost.min(i64::MAX as u64);
        trace.warnings = self.warnings;
        trace.check()?;
        Ok(trace)
    }

    fn check(&self) -> Result<(), InvalidTrace> {
        let most = u64::from(u32::MAX) - 1;
        for (what, count) in [("spans", self.spans.len()), ("marks", self.marks.len()), ("fields", self.fields.len())] {
            if count as u64 > most {
                return Err(InvalidTrace::TooMany { what, most });
            }
        }
        for span in self.spans.iter().filter(|span| span.flags & DISCARDED == 0) {
            self.check_row(span.track, span.name, span.end(), false)?;
        }
        for mark in &self.marks {
            self.check_row(mark.track, mark.name, u128::from(mark.time), false)?;
        }
        for &(track, time, _) in &self.values {
            let name = self.tracks.get(track.index()).map_or(NameId::EMPTY, |track| track.name);
            self.check_row(track, name, u128::from(time), true)?;
        }
        Ok(())
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

    /// Takes back what no trace can hold, and says how much that was: a reader passes over what does not fit.
    pub(crate) fn discard_misplaced(&mut self) -> u64 {
        let mut spans = std::mem::take(&mut self.spans);
        let mut marks = std::mem::take(&mut self.marks);
        let mut values = std::mem::take(&mut self.values);
        let mut misplaced = 0;
        let mut fits = |track, end, is_value| {
            let fits = self.check_row(track, NameId::EMPTY, end, is_value).is_ok();
            misplaced += u64::from(!fits);
            fits
        };
        for span in spans.iter_mut().filter(|span| span.flags & DISCARDED == 0) {
            if !fits(span.track, span.end(), false) {
                span.flags |= DISCARDED;
            }
        }
        marks.retain(|mark| fits(mark.track, u128::from(mark.time), false));
        values.retain(|&(track, time, _)| fits(track, u128::from(time), true));
        (self.spans, self.marks, self.values) = (spans, marks, values);
        misplaced
    }

    /// The spans' numbers by track, start, longer first; equal ones stay in the order they came.
    fn span_order(&self) -> Vec<u32> {
        let key = |&at: &u32| {
            let span = &self.spans[at as usize];
            (span.track, span.start, std::cmp::Reverse(span.duration))
        };
        let kept = |&at: &u32| !self.is_discarded(SpanEntry(at));
        let mut order: Vec<u32> = (0..self.spans.len() as u32).filter(kept).collect();
        if !order.is_sorted_by_key(key) {
            order.sort_by_key(key);
        }
        order
    }

    fn span_columns(&self, order: &[u32]) -> SpanColumns {
        let mut columns = SpanColumns::default();
        for &at in order {
            let span = &self.spans[at as usize];
            columns.start.push(span.start);
            columns.duration.push(span.duration);
            columns.track.push(span.track);
            columns.name.push(span.name);
            columns.category.push(span.category);
            columns.fields.push(span.fields);
            columns.flags.push(span.flags);
        }
        let mut first = 0;
        while first < order.len() {
            let track = columns.track[first];
            let end = first + columns.track[first..].partition_point(|&known| known == track);
            let spans = (first..end).map(|at| (columns.start[at], columns.start[at] + columns.duration[at]));
            for place in lanes::place(spans, first as u32) {
                columns.lane.push(place.lane);
                columns.parent.push(place.parent.unwrap_or(NO_PARENT));
            }
            first = end;
        }
        columns
    }

    fn put_marks(&mut self, trace: &mut Trace) {
        self.marks.sort_by_key(|mark| (mark.track, mark.time));
        for mark in &self.marks {
            trace.marks.time.push(mark.time);
            trace.marks.track.push(mark.track);
            trace.marks.name.push(mark.name);
            trace.marks.category.push(mark.category);
            trace.marks.fields.push(mark.fields);
        }
    }

    fn put_values(&mut self, trace: &mut Trace) {
        self.values.sort_by_key(|&(track, time, _)| (track, time));
        for &(track, time, number) in &self.values {
            trace.values.time.push(time);
            trace.values.track.push(track);
            trace.values.number.push(number);
        }
    }
}
