//! The tables of a trace: spans, flows, marks and values.

use super::{Column, Part};
use crate::trace::{NO_PARENT, Trace};
use crate::{format::WriteError, track::TrackId};

/// Writes the spans. A span's `id` is its number in the trace, which `parent` and flows refer to.
pub fn spans(trace: &Trace, part: &Part) -> Result<(), WriteError> {
    let spans = &trace.spans;
    let parent = |row| Some(spans.parent.get(row)).filter(|&parent| parent != NO_PARENT).map(u64::from);
    let mut columns = vec![
        Column::delta("id", |row| row as u64),
        Column::delta("start_ns", |row| spans.start[row]),
        Column::delta("duration_ns", |row| spans.duration.get(row)),
        Column::text("name", |row| trace.names.name(spans.name.get(row))),
        Column::text("category", |row| trace.names.name(spans.category.get(row))),
        Column::optional_delta("parent", parent),
    ];
    columns.extend(track_columns(trace, |row| spans.track.get(row)));
    part.write("spans", trace.span_count(), &columns)
}

/// Writes the flows, such as launches: the ids of two spans each.
pub fn flows(trace: &Trace, part: &Part) -> Result<(), WriteError> {
    let flows = trace.flows();
    let columns = [
        Column::delta("from_span", |row| flows[row].from.index() as u64),
        Column::delta("to_span", |row| flows[row].to.index() as u64),
    ];
    part.write("flows", flows.len(), &columns)
}

/// Writes the marks.
pub fn marks(trace: &Trace, part: &Part) -> Result<(), WriteError> {
    let marks = &trace.marks;
    let mut columns = vec![
        Column::delta("time_ns", |row| marks.time[row]),
        Column::text("name", |row| trace.names.name(marks.name.get(row))),
        Column::text("category", |row| trace.names.name(marks.category.get(row))),
    ];
    columns.extend(track_columns(trace, |row| marks.track.get(row)));
    part.write("marks", trace.mark_count(), &columns)
}

/// Writes the points of all curves.
pub fn values(trace: &Trace, part: &Part) -> Result<(), WriteError> {
    let values = &trace.values;
    let mut columns = vec![
        Column::delta("time_ns", |row| values.time[row]),
        Column::number("value", |row| Some(values.number[row].as_f64())),
        Column::text("unit", |row| trace.name(trace.track(values.track.get(row)).unit)),
    ];
    columns.extend(track_columns(trace, |row| values.track.get(row)));
    part.write("values", values.time.len(), &columns)
}

/// The columns of the track of a row.
fn track_columns<'a>(trace: &'a Trace, track: impl Fn(usize) -> TrackId + Copy + 'a) -> [Column<'a>; 6] {
    let of = move |row| trace.track(track(row));
    [
        Column::whole("track", move |row| Some(i64::from(track(row).0))),
        Column::text("track_name", move |row| trace.name(of(row).name)),
        Column::text("track_kind", move |row| of(row).kind.words()),
        Column::whole("process", move |row| Some(trace.process(of(row).process).number)),
        Column::text("process_name", move |row| trace.name(trace.process(of(row).process).name)),
        Column::whole("device", move |row| of(row).device),
    ]
}
