//! Columns of plain values, the source of Arrow arrays, NumPy arrays and Python lists.

use std::{ops::Deref, sync::Arc};

use laptime_trace::Trace;
use pyo3::{prelude::*, types::PyDict};

#[derive(Debug)]
pub struct Column {
    pub name: String,
    pub values: Values,
    /// The validity bitmap; none if every row has a value.
    pub valid: Option<Vec<u8>>,
}

/// The values of a column. Invalid rows contain zero or an empty string.
#[derive(Debug)]
pub enum Values {
    Int(Vec<i64>),
    Uint(Uints),
    Float(Vec<f64>),
    /// A bitmap, and the number of rows.
    Bool(Vec<u8>, usize),
    Text(Texts),
    /// Dictionary codes, and the dictionary.
    Coded(Vec<i32>, Texts),
}

/// Owned numbers, or those of a trace without a copy.
#[derive(Debug)]
pub enum Uints {
    Own(Vec<u64>),
    Starts(Arc<Trace>),
}

impl Deref for Uints {
    type Target = [u64];

    fn deref(&self) -> &[u64] {
        match self {
            Self::Own(numbers) => numbers,
            Self::Starts(trace) => trace.span_starts(),
        }
    }
}

/// Strings in Arrow's layout.
#[derive(Debug)]
pub struct Texts {
    pub offsets: Vec<i64>,
    pub bytes: Vec<u8>,
}

impl<'a> FromIterator<&'a str> for Texts {
    fn from_iter<I: IntoIterator<Item = &'a str>>(all: I) -> Self {
        let mut texts = Self { offsets: vec![0], bytes: Vec::new() };
        for text in all {
            texts.bytes.extend_from_slice(text.as_bytes());
            texts.offsets.push(texts.bytes.len() as i64);
        }
        texts
    }
}

impl Texts {
    pub fn len(&self) -> usize {
        self.offsets.len() - 1
    }

    pub fn get(&self, at: usize) -> &str {
        let (from, to) = (self.offsets[at] as usize, self.offsets[at + 1] as usize);
        std::str::from_utf8(&self.bytes[from..to]).unwrap_or_default()
    }
}

/// A bitmap, least significant bit first.
pub fn bits(all: impl ExactSizeIterator<Item = bool>) -> Vec<u8> {
    let mut bytes = vec![0; all.len().div_ceil(8)];
    for (at, _) in all.enumerate().filter(|(_, is_set)| *is_set) {
        bytes[at / 8] |= 1 << (at % 8);
    }
    bytes
}

fn bit(bytes: &[u8], at: usize) -> bool {
    bytes[at / 8] & (1 << (at % 8)) != 0
}

impl Column {
    /// A column with optional values.
    pub fn with_gaps<T>(name: &str, cells: &[Option<T>], values: Values) -> Self {
        let valid = cells.iter().any(Option::is_none).then(|| bits(cells.iter().map(Option::is_some)));
        Self { name: name.to_owned(), values, valid }
    }

    /// A column with a value in every row.
    pub fn new(name: &str, values: Values) -> Self {
        Self { name: name.to_owned(), values, valid: None }
    }

    pub fn len(&self) -> usize {
        match &self.values {
            Values::Int(all) => all.len(),
            Values::Uint(all) => all.len(),
            Values::Float(all) => all.len(),
            Values::Bool(_, count) => *count,
            Values::Text(texts) => texts.len(),
            Values::Coded(codes, _) => codes.len(),
        }
    }

    pub fn is_valid(&self, at: usize) -> bool {
        self.valid.as_ref().is_none_or(|valid| bit(valid, at))
    }

    fn value<'py>(&self, py: Python<'py>, at: usize) -> PyResult<Bound<'py, PyAny>> {
        if !self.is_valid(at) {
            return Ok(py.None().into_bound(py));
        }
        Ok(match &self.values {
            Values::Int(all) => all[at].into_pyobject(py)?.into_any(),
            Values::Uint(all) => all[at].into_pyobject(py)?.into_any(),
            Values::Float(all) => all[at].into_pyobject(py)?.into_any(),
            Values::Bool(bytes, _) => bit(bytes, at).into_pyobject(py)?.to_owned().into_any(),
            Values::Text(texts) => texts.get(at).into_pyobject(py)?.into_any(),
            Values::Coded(codes, texts) => texts.get(codes[at] as usize).into_pyobject(py)?.into_any(),
        })
    }
}

/// A column as Python sees it.
#[pyclass(frozen, module = "laptime._native")]
pub struct NativeColumn {
    pub columns: Arc<Vec<Column>>,
    pub at: usize,
}

impl NativeColumn {
    fn column(&self) -> &Column {
        &self.columns[self.at]
    }
}

#[pymethods]
impl NativeColumn {
    #[getter]
    fn name(&self) -> &str {
        &self.column().name
    }

    fn __len__(&self) -> usize {
        self.column().len()
    }

    /// Whether every row has a value.
    #[getter]
    fn is_whole(&self) -> bool {
        self.column().valid.is_none()
    }

    /// The dictionary, if the column is dictionary-encoded.
    #[getter]
    fn categories(&self) -> Option<Vec<&str>> {
        match &self.column().values {
            Values::Coded(_, texts) => Some((0..texts.len()).map(|at| texts.get(at)).collect()),
            _ => None,
        }
    }

    /// The values of a range of rows.
    fn to_list<'py>(&self, py: Python<'py>, from: usize, to: usize) -> PyResult<Vec<Bound<'py, PyAny>>> {
        let column = self.column();
        (from..to.min(column.len())).map(|at| column.value(py, at)).collect()
    }

    /// Zero-copy access for NumPy; none for strings and booleans.
    #[getter]
    fn __array_interface__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyDict>>> {
        let (kind, address) = match &self.column().values {
            Values::Int(all) => ("<i8", all.as_ptr() as usize),
            Values::Uint(all) => ("<u8", all.as_ptr() as usize),
            Values::Float(all) => ("<f8", all.as_ptr() as usize),
            Values::Coded(codes, _) => ("<i4", codes.as_ptr() as usize),
            Values::Bool(..) | Values::Text(_) => return Ok(None),
        };
        let interface = PyDict::new(py);
        interface.set_item("version", 3)?;
        interface.set_item("typestr", kind)?;
        interface.set_item("shape", (self.column().len(),))?;
        // `true`: read-only.
        interface.set_item("data", (address, true))?;
        Ok(Some(interface))
    }
}
