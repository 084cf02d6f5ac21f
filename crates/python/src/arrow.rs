//! Exports columns as an Arrow stream of one batch, zero-copy, by the C data interface.
//!
//! See <https://arrow.apache.org/docs/format/CDataInterface.html>.

// The interface is made of pointers.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::{ptr, sync::Arc};

use pyo3::{prelude::*, types::PyCapsule};

use crate::columns::{Column, Texts, Values};

type Columns = Arc<Vec<Column>>;

#[repr(C)]
pub struct ArrowSchema {
    format: *const c_char,
    name: *const c_char,
    metadata: *const c_char,
    flags: i64,
    n_children: i64,
    children: *mut *mut ArrowSchema,
    dictionary: *mut ArrowSchema,
    release: Option<unsafe extern "C" fn(*mut ArrowSchema)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct ArrowArray {
    length: i64,
    null_count: i64,
    offset: i64,
    n_buffers: i64,
    n_children: i64,
    buffers: *mut *const c_void,
    children: *mut *mut ArrowArray,
    dictionary: *mut ArrowArray,
    release: Option<unsafe extern "C" fn(*mut ArrowArray)>,
    private_data: *mut c_void,
}

#[repr(C)]
pub struct ArrowArrayStream {
    get_schema: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowSchema) -> c_int>,
    get_next: Option<unsafe extern "C" fn(*mut ArrowArrayStream, *mut ArrowArray) -> c_int>,
    get_last_error: Option<unsafe extern "C" fn(*mut ArrowArrayStream) -> *const c_char>,
    release: Option<unsafe extern "C" fn(*mut ArrowArrayStream)>,
    private_data: *mut c_void,
}

const NULLABLE: i64 = 2;

/// The private data of a schema.
struct OwnedSchema {
    _format: CString,
    _name: CString,
    children: Vec<*mut ArrowSchema>,
}

/// The private data of an array. Keeps the columns alive that the buffers point into.
struct OwnedArray {
    buffers: Vec<*const c_void>,
    children: Vec<*mut ArrowArray>,
    _columns: Columns,
}

/// The private data of a stream.
struct OwnedStream {
    columns: Columns,
    is_done: bool,
}

fn schema(
    format: &str,
    name: &str,
    flags: i64,
    children: Vec<ArrowSchema>,
    dictionary: Option<ArrowSchema>,
) -> ArrowSchema {
    // A name with a zero byte ends there.
    let text = |text: &str| CString::new(text.split('\0').next().unwrap_or_default()).unwrap_or_default();
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut owned = Box::new(OwnedSchema { _format: text(format), _name: text(name), children });
    ArrowSchema {
        format: owned._format.as_ptr(),
        name: owned._name.as_ptr(),
        metadata: ptr::null(),
        flags,
        n_children: owned.children.len() as i64,
        children: owned.children.as_mut_ptr(),
        dictionary: dictionary.map_or(ptr::null_mut(), |texts| Box::into_raw(Box::new(texts))),
        release: Some(release_schema),
        private_data: Box::into_raw(owned).cast(),
    }
}

fn schema_of(column: &Column) -> ArrowSchema {
    let (format, dictionary) = match &column.values {
        Values::Int(_) => ("l", None),
        Values::Uint(_) => ("L", None),
        Values::Float(_) => ("g", None),
        Values::Bool(..) => ("b", None),
        Values::Text(_) => ("U", None),
        Values::Coded(..) => ("i", Some(schema("U", "", 0, Vec::new(), None))),
    };
    schema(format, &column.name, if column.valid.is_some() { NULLABLE } else { 0 }, Vec::new(), dictionary)
}

fn schema_of_all(columns: &Columns) -> ArrowSchema {
    schema("+s", "", 0, columns.iter().map(schema_of).collect(), None)
}

/// Defines the release function of a structure with children and a dictionary.
macro_rules! release {
    ($name:ident, $structure:ty, $owned:ty) => {
        unsafe extern "C" fn $name(released: *mut $structure) {
            // SAFETY: the consumer passes a structure from here that it has not released; all pointers are from
            // `Box::into_raw`.
            unsafe {
                let released = &mut *released;
                let owned = Box::from_raw(released.private_data.cast::<$owned>());
                let dictionary = (!released.dictionary.is_null()).then_some(&released.dictionary);
                for &child in owned.children.iter().chain(dictionary) {
                    // Moving a child out clears its `release`.
                    if let Some(release) = (*child).release {
                        release(child);
                    }
                    drop(Box::from_raw(child));
                }
                released.release = None;
            }
        }
    };
}

release!(release_schema, ArrowSchema, OwnedSchema);
release!(release_array, ArrowArray, OwnedArray);

fn array(
    (length, null_count): (usize, usize),
    buffers: Vec<*const c_void>,
    children: Vec<ArrowArray>,
    dictionary: Option<ArrowArray>,
    columns: &Columns,
) -> ArrowArray {
    let children = children.into_iter().map(|child| Box::into_raw(Box::new(child))).collect();
    let mut owned = Box::new(OwnedArray { buffers, children, _columns: Arc::clone(columns) });
    ArrowArray {
        length: length as i64,
        null_count: null_count as i64,
        offset: 0,
        n_buffers: owned.buffers.len() as i64,
        n_children: owned.children.len() as i64,
        buffers: owned.buffers.as_mut_ptr(),
        children: owned.children.as_mut_ptr(),
        dictionary: dictionary.map_or(ptr::null_mut(), |texts| Box::into_raw(Box::new(texts))),
        release: Some(release_array),
        private_data: Box::into_raw(owned).cast(),
    }
}

fn start<T>(values: &[T]) -> *const c_void {
    values.as_ptr().cast()
}

fn array_of(column: &Column, columns: &Columns) -> ArrowArray {
    let valid = column.valid.as_deref().map_or(ptr::null(), start);
    let nulls = (0..column.len()).filter(|&at| !column.is_valid(at));
    let size = (column.len(), if column.valid.is_some() { nulls.count() } else { 0 });
    let texts_of = |texts: &Texts, valid| vec![valid, start(&texts.offsets), start(&texts.bytes)];
    let (buffers, dictionary) = match &column.values {
        Values::Int(all) => (vec![valid, start(all)], None),
        Values::Uint(all) => (vec![valid, start(all)], None),
        Values::Float(all) => (vec![valid, start(all)], None),
        Values::Bool(bytes, _) => (vec![valid, start(bytes)], None),
        Values::Text(texts) => (texts_of(texts, valid), None),
        Values::Coded(codes, texts) => {
            let dictionary = array((texts.len(), 0), texts_of(texts, ptr::null()), Vec::new(), None, columns);
            (vec![valid, start(codes)], Some(dictionary))
        }
    };
    array(size, buffers, Vec::new(), dictionary, columns)
}

fn array_of_all(columns: &Columns) -> ArrowArray {
    let rows = columns.first().map_or(0, Column::len);
    let children = columns.iter().map(|column| array_of(column, columns)).collect();
    array((rows, 0), vec![ptr::null()], children, None, columns)
}

unsafe extern "C" fn get_schema(stream: *mut ArrowArrayStream, out: *mut ArrowSchema) -> c_int {
    // SAFETY: the consumer passes our stream, and a place for the schema.
    unsafe {
        let owned = &*(*stream).private_data.cast::<OwnedStream>();
        out.write(schema_of_all(&owned.columns));
    }
    0
}

unsafe extern "C" fn get_next(stream: *mut ArrowArrayStream, out: *mut ArrowArray) -> c_int {
    // SAFETY: likewise. An array without `release` is the end of the stream, and all zeros are valid for the rest.
    unsafe {
        let owned = &mut *(*stream).private_data.cast::<OwnedStream>();
        if std::mem::replace(&mut owned.is_done, true) {
            ptr::write_bytes(out, 0, 1);
        } else {
            out.write(array_of_all(&owned.columns));
        }
    }
    0
}

unsafe extern "C" fn get_last_error(_: *mut ArrowArrayStream) -> *const c_char {
    ptr::null()
}

unsafe extern "C" fn release_stream(stream: *mut ArrowArrayStream) {
    // SAFETY: the consumer passes our stream, which it has not released.
    unsafe {
        drop(Box::from_raw((*stream).private_data.cast::<OwnedStream>()));
        (*stream).release = None;
    }
}

// SAFETY: the structures own what they point to, or share it immutably.
unsafe impl Send for ArrowArrayStream {}
// SAFETY: likewise.
unsafe impl Send for ArrowSchema {}

impl Drop for ArrowArrayStream {
    fn drop(&mut self) {
        if let Some(release) = self.release {
            // SAFETY: releasing or moving it would have cleared `release`.
            unsafe { release(self) }
        }
    }
}

/// A capsule with the schema. A consumer clears its `release`.
pub fn schema_capsule<'py>(py: Python<'py>, columns: &Columns) -> PyResult<Bound<'py, PyCapsule>> {
    PyCapsule::new_with_value(py, OwnedBySchema(schema_of_all(columns)), c"arrow_schema")
}

/// Releases the schema unless a consumer has taken it.
#[repr(transparent)]
struct OwnedBySchema(ArrowSchema);

impl Drop for OwnedBySchema {
    fn drop(&mut self) {
        if let Some(release) = self.0.release {
            // SAFETY: releasing or moving it would have cleared `release`.
            unsafe { release(&mut self.0) }
        }
    }
}

/// A capsule with a stream of one batch.
pub fn stream_capsule<'py>(py: Python<'py>, columns: &Columns) -> PyResult<Bound<'py, PyCapsule>> {
    let owned = OwnedStream { columns: Arc::clone(columns), is_done: false };
    let stream = ArrowArrayStream {
        get_schema: Some(get_schema),
        get_next: Some(get_next),
        get_last_error: Some(get_last_error),
        release: Some(release_stream),
        private_data: Box::into_raw(Box::new(owned)).cast(),
    };
    PyCapsule::new_with_value(py, stream, c"arrow_array_stream")
}
