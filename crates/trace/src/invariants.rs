//! The invariants of every trace, and why one cannot be built.

use crate::fields::{FieldBlock, FieldBlocks, StoredFields, StoredValue};
use crate::names::{NameId, differ_in_lowest_bits};
use crate::trace::{NO_PARENT, Trace};
use crate::track::{TrackId, TrackKind};
use crate::{column::Column, time::Nanos};

/// Why a trace cannot be built.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum InvalidTrace {
    #[error("`{name}` does not belong on a track of kind `{kind}`")]
    WrongTrack { name: String, kind: &'static str },
    #[error("`{name}` ends {nanos} ns after the origin, beyond the range of a trace")]
    TooLate { name: String, nanos: u128 },
    #[error("the trace has more than {most} {what}")]
    TooMany { what: &'static str, most: u64 },
    #[error("a {what} of another trace was used")]
    Foreign { what: &'static str },
    #[error("the trace violates an invariant: {rule}")]
    Broken { rule: &'static str },
}

impl Trace {
    /// Checks the invariants of a trace (see the list in `trace.rs`) in one pass over its columns.
    ///
    /// Every trace was checked when it was built; tests check again.
    pub fn check(&self) -> Result<(), InvalidTrace> {
        self.check_columns()?;
        let mut blocks =
            self.spans.fields.iter().chain(self.marks.fields.iter()).filter(|&block| block != FieldBlock::NONE);
        let mut seen = Vec::new();
        blocks.try_for_each(|block| check_block(self.names.len(), &mut self.fields.fields(block), &mut seen))
    }

    /// Checks everything but the fields.
    pub(crate) fn check_columns(&self) -> Result<(), InvalidTrace> {
        self.check_handles()?;
        self.check_span_order()?;
        self.check_nesting()?;
        self.check_points()
    }

    fn check_handles(&self) -> Result<(), InvalidTrace> {
        let (spans, marks, values) = (&self.spans, &self.marks, &self.values);
        let columns = [
            spans.duration.len(),
            spans.track.len(),
            spans.lane.len(),
            spans.name.len(),
            spans.category.len(),
            spans.parent.len(),
            spans.fields.len(),
            spans.flags.len(),
        ];
        rule(columns.iter().all(|&len| len == spans.start.len()), "the columns of the spans are equally long")?;
        let names = self.tracks.iter().flat_map(|track| [track.name, track.unit]);
        let names = names.chain(self.processes.iter().map(|process| process.name));
        let names = names.chain(spans.name.iter().chain(spans.category.iter()));
        let mut names = names.chain(marks.name.iter().chain(marks.category.iter()));
        let is_name = |name: NameId| name.index() < self.names.len();
        foreign(names.all(is_name), "name")?;
        foreign(self.tracks.iter().all(|track| track.process.index() < self.processes.len()), "process")?;
        let mut tracks = spans.track.iter().chain(marks.track.iter()).chain(values.track.iter());
        foreign(tracks.all(|track| track.index() < self.tracks.len()), "track")?;
        let is_span = |place: u32| (place as usize) < self.span_count();
        rule(self.flows.iter().all(|flow| is_span(flow.from.0) && is_span(flow.to.0)), "flows lead to spans")?;
        rule(self.flows.is_sorted_by(|a, b| a < b), "flows are sorted without duplicates")
    }

    fn check_span_order(&self) -> Result<(), InvalidTrace> {
        let spans = &self.spans;
        let key = |at: usize| (spans.track.get(at), spans.start[at], std::cmp::Reverse(spans.duration.get(at)));
        rule((0..self.span_count()).map(key).is_sorted(), "spans are sorted by track, start and length")?;
        let mut ends = spans.start.iter().zip(spans.duration.iter());
        rule(ends.all(|(start, length)| start.checked_add(length).is_some_and(is_time)), "no span ends too late")
    }

    /// Follows the parents: the innermost open span of each lane must be the parent of the next.
    fn check_nesting(&self) -> Result<(), InvalidTrace> {
        let spans = &self.spans;
        let end = |at: usize| spans.start[at] + spans.duration.get(at);
        let mut last_on_lane: Vec<Option<usize>> = Vec::new();
        for at in 0..self.span_count() {
            if at == 0 || spans.track.get(at) != spans.track.get(at - 1) {
                last_on_lane.clear();
            }
            let lane = spans.lane.get(at) as usize;
            rule(lane <= last_on_lane.len(), "lanes are numbered without gaps")?;
            last_on_lane.resize(last_on_lane.len().max(lane + 1), None);
            let parent = (spans.parent.get(at) != NO_PARENT).then_some(spans.parent.get(at) as usize);
            rule(parent.is_none_or(|parent| parent < at), "a parent comes before its children")?;
            // Everything between the last span of the lane and the parent has ended.
            let mut around = last_on_lane[lane];
            while around != parent {
                let Some(ended) = around else { return rule(false, "a parent is on its children's lane") };
                rule(end(ended) <= spans.start[at], "spans on one lane nest")?;
                around = (spans.parent.get(ended) != NO_PARENT).then_some(spans.parent.get(ended) as usize);
            }
            let lies_inside = |parent| spans.start[parent] <= spans.start[at] && end(at) <= end(parent);
            rule(parent.is_none_or(lies_inside), "a child is within its parent")?;
            last_on_lane[lane] = Some(at);
        }
        Ok(())
    }

    fn check_points(&self) -> Result<(), InvalidTrace> {
        let (marks, values) = (&self.marks, &self.values);
        let ordered = |tracks: &Column<TrackId>, times: &[u64]| tracks.iter().zip(times).is_sorted();
        rule(ordered(&marks.track, &marks.time), "marks are sorted by track and time")?;
        rule(ordered(&values.track, &values.time), "values are sorted by track and time")?;
        rule(marks.time.iter().chain(&values.time).all(|&time| is_time(time)), "no time is too late")?;
        let is_counter = |track: TrackId| self.tracks[track.index()].kind == TrackKind::Counter;
        rule(values.track.iter().all(is_counter), "values are on counters")?;
        rule(
            !self.spans.track.iter().chain(marks.track.iter()).any(is_counter),
            "spans and marks are not on counters",
        )?;
        let has_unit = |track: &&crate::Track| track.unit != NameId::EMPTY;
        let units = self.tracks.iter().filter(has_unit).all(|track| track.kind == TrackKind::Counter);
        rule(units, "units belong to counters")?;
        let may_have = |track: &crate::Track| track.device.is_none() || track.kind.may_have_device();
        rule(self.tracks.iter().all(may_have), "devices belong to streams, copy engines and counters")
    }
}

/// Checks all blocks of fields, without knowing whose they are: they lie one after another.
pub(crate) fn check_blocks(names: usize, blocks: &FieldBlocks) -> Result<(), InvalidTrace> {
    let mut seen = Vec::new();
    blocks.for_each(|fields| check_block(names, fields, &mut seen))
}

fn check_block(names: usize, fields: &mut StoredFields<'_>, seen: &mut Vec<NameId>) -> Result<(), InvalidTrace> {
    let promised = fields.len();
    seen.clear();
    for (name, value) in fields {
        foreign(name.index() < names, "name")?;
        foreign(!matches!(value, StoredValue::Str(text) if text.index() >= names), "name")?;
        seen.push(name);
    }
    rule(promised > 0 && seen.len() == promised, "fields exist")?;
    rule(is_each_once(seen), "a field name occurs once per span or mark")
}

/// Whether no name occurs twice. The names of a span's fields mostly differ in the lowest bits of their ids.
fn is_each_once(names: &mut [NameId]) -> bool {
    if differ_in_lowest_bits(names.iter().copied()) {
        return true;
    }
    names.sort_unstable();
    names.windows(2).all(|pair| pair[0] != pair[1])
}

fn is_time(nanos: u64) -> bool {
    nanos <= Nanos::MAX.0
}

fn rule(holds: bool, rule: &'static str) -> Result<(), InvalidTrace> {
    if holds { Ok(()) } else { Err(InvalidTrace::Broken { rule }) }
}

fn foreign(is_ours: bool, what: &'static str) -> Result<(), InvalidTrace> {
    if is_ours { Ok(()) } else { Err(InvalidTrace::Foreign { what }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Number, TraceBuilder};

    fn nested() -> Trace {
        let mut builder = TraceBuilder::default();
        let (main, memory) = (builder.thread(1, 1, "main"), builder.counter(1, "memory", "bytes"));
        for (start, length) in [(0, 10), (2, 4), (8, 6)] {
            builder.span(main, Nanos(start), Nanos(length), "stage", "");
        }
        builder.mark(main, Nanos(3), "mark", "");
        builder.value(memory, Nanos(3), Number::Int(7));
        builder.build().unwrap()
    }

    fn broken(breaking: impl FnOnce(&mut Trace)) -> InvalidTrace {
        let mut trace = nested();
        assert_eq!(trace.check(), Ok(()));
        breaking(&mut trace);
        trace.check().unwrap_err()
    }

    #[test]
    fn each_broken_rule_is_found() {
        let rule = |rule| InvalidTrace::Broken { rule };
        let found = broken(|trace| trace.spans.start[0] = 3);
        assert_eq!(found, rule("spans are sorted by track, start and length"));
        let found = broken(|trace| trace.spans.duration.set(2, u64::MAX));
        assert_eq!(found, rule("no span ends too late"));
        let found = broken(|trace| trace.spans.parent.set(1, NO_PARENT));
        assert_eq!(found, rule("spans on one lane nest"));
        let found = broken(|trace| trace.spans.lane.set(2, 0));
        assert_eq!(found, rule("spans on one lane nest"));
        let found = broken(|trace| trace.spans.parent.set(2, 0));
        assert_eq!(found, rule("a parent is on its children's lane"));
        let found = broken(|trace| trace.spans.lane.set(1, 5));
        assert_eq!(found, rule("lanes are numbered without gaps"));
        let found = broken(|trace| trace.values.track.set(0, TrackId(0)));
        assert_eq!(found, rule("values are on counters"));
        let found = broken(|trace| trace.marks.track.set(0, TrackId(9)));
        assert_eq!(found, InvalidTrace::Foreign { what: "track" });
        let found = broken(|trace| trace.marks.fields.set(0, FieldBlock(1)));
        assert_eq!(found, rule("fields exist"));
    }
}
