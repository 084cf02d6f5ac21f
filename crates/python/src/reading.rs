//! Traces in memory, and commands on them.

use std::{collections::HashMap, ffi::OsString, path::PathBuf, sync::Arc};

use laptime::library;
use laptime_trace::{NameId, SpanId, Trace, Value};
use pyo3::prelude::*;

use crate::columns::{Column, Texts, Uints, Values};
use crate::table::{NativeTable, Scalar, column_of};
use crate::{interruptible, raise};

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<NativeTrace>()?;
    module.add_function(wrap_pyfunction!(read_trace, module)?)?;
    module.add_function(wrap_pyfunction!(read_cases, module)?)?;
    module.add_function(wrap_pyfunction!(ask, module)?)
}

/// A trace in memory.
#[pyclass(frozen, module = "laptime._native")]
pub struct NativeTrace {
    trace: Arc<Trace>,
}

/// Reads a trace.
#[pyfunction]
fn read_trace(py: Python<'_>, path: PathBuf) -> PyResult<NativeTrace> {
    let read = interruptible(py, move || library::read_trace(&path))?;
    let trace = read.map_err(|failure| raise(py, "ReadError", &failure))?;
    Ok(NativeTrace { trace: Arc::new(trace) })
}

/// Reads the cases of a benchmark run.
#[pyfunction]
fn read_cases(py: Python<'_>, path: PathBuf) -> PyResult<NativeTable> {
    let cases = interruptible(py, move || library::cases(&path))?;
    cases.map(NativeTable::from).map_err(|failure| raise(py, "ReadError", &failure))
}

/// Runs a command on traces in memory. Returns its tables, its messages and its other output.
#[pyfunction]
fn ask(
    py: Python<'_>,
    words: Vec<OsString>,
    traces: Vec<(PathBuf, Py<NativeTrace>)>,
) -> PyResult<(Vec<NativeTable>, Vec<String>, String)> {
    let traces = traces.into_iter().map(|(path, trace)| (path, Arc::clone(&trace.get().trace))).collect();
    let answer = interruptible(py, move || library::ask(&words, traces))?;
    let answer = answer.map_err(|failure| raise(py, "LaptimeError", &failure))?;
    Ok((answer.tables.into_iter().map(NativeTable::from).collect(), answer.messages, answer.text))
}

#[pymethods]
impl NativeTrace {
    #[getter]
    fn span_count(&self) -> usize {
        self.trace.span_count()
    }

    #[getter]
    fn warnings(&self) -> Vec<String> {
        self.trace.warnings.clone()
    }

    #[getter]
    fn lost(&self) -> u64 {
        self.trace.lost
    }

    /// First and last time of any event, in nanoseconds.
    #[getter]
    fn bounds(&self) -> Option<(u64, u64)> {
        self.trace.bounds().map(|(first, last)| (first.0, last.0))
    }

    /// All spans as columns, plus a column for each of these fields.
    fn spans(&self, py: Python<'_>, fields: Vec<String>) -> PyResult<NativeTable> {
        let trace = Arc::clone(&self.trace);
        interruptible(py, move || NativeTable::from(span_columns(&trace, &fields)))
    }
}

fn span_columns(trace: &Arc<Trace>, fields: &[String]) -> Vec<Column> {
    let ids = || trace.spans().map(|span| span.id);
    let mut columns = vec![
        coded("name", trace.span_count(), ids().map(|id| trace.span_name(id)), |name| trace.name(name)),
        coded("category", trace.span_count(), ids().map(|id| trace.span_category(id)), |name| trace.name(name)),
        Column::new("start_ns", Values::Uint(Uints::Starts(Arc::clone(trace)))),
        Column::new("duration_ns", Values::Uint(Uints::Own(ids().map(|id| duration(trace, id)).collect()))),
        Column::new("self_ns", Values::Uint(Uints::Own(trace.own_times().iter().map(|own| own.0).collect()))),
        parents(trace),
    ];
    columns.extend(track_columns(trace));
    columns.extend(fields.iter().map(|field| field_column(trace, field)));
    columns
}

fn duration(trace: &Trace, id: SpanId) -> u64 {
    trace.span_end(id).0 - trace.span_start(id).0
}

/// The row of the enclosing span.
fn parents(trace: &Trace) -> Column {
    let all: Vec<Option<i64>> =
        trace.spans().map(|span| trace.span_parent(span.id).map(|parent| parent.index() as i64)).collect();
    Column::with_gaps("parent", &all, Values::Int(all.iter().map(|row| row.unwrap_or(-1)).collect()))
}

/// Columns on the track of each span.
fn track_columns(trace: &Trace) -> [Column; 4] {
    let tracks: Vec<_> = trace.tracks().collect();
    let place: HashMap<_, i32> = tracks.iter().enumerate().map(|(at, (id, _))| (*id, at as i32)).collect();
    let rows: Vec<i32> = trace.spans().map(|span| place[&trace.span_track(span.id)]).collect();
    let track = |row: &i32| tracks[*row as usize].1;
    let (names, name_texts) = distinct(tracks.iter().map(|(_, track)| trace.name(track.name)));
    let (kinds, kind_texts) = distinct(tracks.iter().map(|(_, track)| track.kind.words()));
    let coded = |codes: &[i32]| rows.iter().map(|row| codes[*row as usize]).collect();
    let devices: Vec<Option<i64>> = rows.iter().map(|row| track(row).device).collect();
    let processes = rows.iter().map(|row| trace.process(track(row).process).number).collect();
    let device = Values::Int(devices.iter().map(|device| device.unwrap_or(-1)).collect());
    [
        Column::new("track", Values::Coded(coded(&names), name_texts)),
        Column::new("kind", Values::Coded(coded(&kinds), kind_texts)),
        Column::new("process", Values::Int(processes)),
        Column::with_gaps("device", &devices, device),
    ]
}

/// Dictionary-encodes strings.
fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> (Vec<i32>, Texts) {
    let (mut known, mut used) = (HashMap::new(), Vec::new());
    let codes = texts.map(|text| {
        *known.entry(text).or_insert_with(|| {
            used.push(text);
            used.len() as i32 - 1
        })
    });
    (codes.collect(), used.into_iter().collect())
}

/// Dictionary-encodes names, in the order of their first use.
fn coded<'a>(name: &str, count: usize, ids: impl Iterator<Item = NameId>, text: impl Fn(NameId) -> &'a str) -> Column {
    let (mut known, mut used, mut codes) = (HashMap::new(), Vec::new(), Vec::with_capacity(count));
    for id in ids {
        codes.push(*known.entry(id).or_insert_with(|| {
            used.push(id);
            used.len() as i32 - 1
        }));
    }
    Column::new(name, Values::Coded(codes, used.into_iter().map(text).collect()))
}

fn field_column(trace: &Trace, field: &str) -> Column {
    let Some(id) = trace.known_name(field) else {
        return column_of(field, &vec![Scalar::Missing; trace.span_count()]);
    };
    let cells: Vec<Scalar> = trace.spans().map(|span| span.fields.named(id).map_or(Scalar::Missing, scalar)).collect();
    column_of(field, &cells)
}

fn scalar(value: Value<'_>) -> Scalar {
    match value {
        Value::Int(number) => Scalar::Int(number),
        Value::Uint(number) => i64::try_from(number).map_or(Scalar::Float(number as f64), Scalar::Int),
        Value::Float(number) => Scalar::Float(number),
        Value::Bool(yes) => Scalar::Bool(yes),
        Value::Str(text) => Scalar::Text(text.to_owned()),
    }
}
