//! Tables for Python.

use std::sync::{Arc, OnceLock};

use laptime_report::{Cell, Format, Show, Table, TextStyle};
use pyo3::{prelude::*, types::PyCapsule};

use crate::arrow;
use crate::columns::{Column, NativeColumn, Texts, Values, bits};

/// A table of a command, or only columns.
#[pyclass(frozen, module = "laptime._native")]
pub struct NativeTable {
    table: Option<Table>,
    columns: OnceLock<Arc<Vec<Column>>>,
}

impl From<Table> for NativeTable {
    fn from(table: Table) -> Self {
        Self { table: Some(table), columns: OnceLock::new() }
    }
}

impl From<Vec<Column>> for NativeTable {
    fn from(columns: Vec<Column>) -> Self {
        Self { table: None, columns: OnceLock::from(Arc::new(columns)) }
    }
}

impl NativeTable {
    fn columns(&self) -> &Arc<Vec<Column>> {
        self.columns.get_or_init(|| Arc::new(self.table.as_ref().map(columns_of).unwrap_or_default()))
    }

    fn written(&self, format: Format, style: TextStyle) -> PyResult<String> {
        let mut out = Vec::new();
        if let Some(table) = &self.table {
            laptime_report::write(table, format, style, &mut out)?;
        }
        Ok(String::from_utf8_lossy(&out).into_owned())
    }
}

#[pymethods]
impl NativeTable {
    #[getter]
    fn name(&self) -> Option<&str> {
        self.table.as_ref().map(|table| table.name)
    }

    fn __len__(&self) -> usize {
        self.columns().first().map_or(0, Column::len)
    }

    /// All columns.
    fn all_columns(&self) -> Vec<NativeColumn> {
        (0..self.columns().len()).map(|at| NativeColumn { columns: Arc::clone(self.columns()), at }).collect()
    }

    /// The text format.
    fn text(&self, width: usize, verbose: bool) -> PyResult<String> {
        self.written(Format::Text, TextStyle { width, colour: false, verbose })
    }

    /// Everything as JSON.
    fn json(&self) -> PyResult<String> {
        self.written(Format::Json, TextStyle::plain(80))
    }

    /// The table in HTML.
    fn html(&self) -> String {
        self.table.as_ref().map(|table| laptime_report::html::html(table, |_| None)).unwrap_or_default()
    }

    fn arrow_schema<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::schema_capsule(py, self.columns())
    }

    fn arrow_stream<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyCapsule>> {
        arrow::stream_capsule(py, self.columns())
    }
}

/// The columns of machine formats.
fn columns_of(table: &Table) -> Vec<Column> {
    let seen = table.columns.iter().enumerate().filter(|(_, column)| column.show != Show::HumanOnly);
    seen.map(|(at, column)| {
        let cells: Vec<Scalar> =
            table.rows.iter().map(|row| row.get(at).map_or(Scalar::Missing, Scalar::from)).collect();
        column_of(&column.key, &cells)
    })
    .collect()
}

/// A cell as a plain value. Times are in milliseconds, as in machine formats.
#[derive(Debug, Clone, PartialEq)]
pub enum Scalar {
    Missing,
    Bool(bool),
    Int(i64),
    Float(f64),
    Text(String),
}

impl From<&Cell> for Scalar {
    fn from(cell: &Cell) -> Self {
        let whole = |number: u64| i64::try_from(number).map_or(Self::Float(number as f64), Self::Int);
        match cell {
            cell if cell.is_empty() => Self::Missing,
            Cell::Empty | Cell::Range(_) => Self::Missing,
            Cell::Text(text) | Cell::Name(text) | Cell::Tree { path: text, .. } => Self::Text(text.clone()),
            Cell::Bool(yes) => Self::Bool(*yes),
            Cell::Json(value) => Self::Text(value.to_string()),
            Cell::Count(number) | Cell::Bytes(number) => whole(*number),
            Cell::Whole(number) => Self::Int(*number),
            Cell::Number(number) | Cell::Share(number) | Cell::Change(number) => Self::Float(*number),
            Cell::Nanos(nanos) => Self::Float(*nanos as f64 / 1e6),
            Cell::Shift(nanos) => Self::Float(*nanos as f64 / 1e6),
        }
    }
}

impl Scalar {
    fn int(&self) -> Option<i64> {
        if let Self::Int(number) = self { Some(*number) } else { None }
    }

    fn float(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Float(number) => Some(*number),
            _ => None,
        }
    }

    fn bool(&self) -> Option<bool> {
        if let Self::Bool(yes) = self { Some(*yes) } else { None }
    }

    fn text(&self) -> Option<String> {
        match self {
            Self::Missing => None,
            Self::Bool(yes) => Some(yes.to_string()),
            Self::Int(number) => Some(number.to_string()),
            Self::Float(number) => Some(number.to_string()),
            Self::Text(text) => Some(text.clone()),
        }
    }
}

/// A column of the narrowest type for its values.
pub fn column_of(name: &str, cells: &[Scalar]) -> Column {
    let known = || cells.iter().filter(|cell| **cell != Scalar::Missing);
    if known().next().is_some() && known().all(|cell| cell.bool().is_some()) {
        let all: Vec<Option<bool>> = cells.iter().map(Scalar::bool).collect();
        let values = Values::Bool(bits(all.iter().map(|yes| yes.unwrap_or(false))), all.len());
        return Column::with_gaps(name, &all, values);
    }
    if known().next().is_some() && known().all(|cell| cell.int().is_some()) {
        let all: Vec<Option<i64>> = cells.iter().map(Scalar::int).collect();
        return Column::with_gaps(name, &all, Values::Int(all.iter().map(|number| number.unwrap_or(0)).collect()));
    }
    if known().all(|cell| cell.float().is_some()) {
        let all: Vec<Option<f64>> = cells.iter().map(Scalar::float).collect();
        let values = all.iter().map(|number| number.unwrap_or(f64::NAN)).collect();
        return Column::with_gaps(name, &all, Values::Float(values));
    }
    let all: Vec<Option<String>> = cells.iter().map(Scalar::text).collect();
    let texts: Texts = all.iter().map(|text| text.as_deref().unwrap_or("")).collect();
    Column::with_gaps(name, &all, Values::Text(texts))
}
