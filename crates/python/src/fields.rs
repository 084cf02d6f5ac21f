//! Functions `f(name, **fields)` with the vectorcall protocol, which needs no dictionary.
//!
//! Stages with fields are used in the innermost loops of a program, where the dictionary would cost more than the rest.
#![allow(unsafe_code, reason = "the arguments of a vector call are an array in C; the blocks have their reasons")]

use std::panic::{self, AssertUnwindSafe};
use std::{ptr, slice};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::{ffi, prelude::*, types::PyTuple};

/// The fields of one call.
pub struct Fields {
    /// The same object in every call from the same place in the source.
    pub names: Py<PyTuple>,
    pub values: Vec<Py<PyAny>>,
}

pub struct Call<'a, 'py> {
    pub py: Python<'py>,
    function: &'static str,
    positional: &'a [Bound<'py, PyAny>],
    fields: Option<Fields>,
}

impl<'a, 'py> Call<'a, 'py> {
    pub fn named(self) -> PyResult<(&'a Bound<'py, PyAny>, Option<Fields>)> {
        let function = self.function;
        let (name, fields) = self.perhaps_named()?;
        let missing = || PyTypeError::new_err(format!("{function}() missing 1 required positional argument: 'name'"));
        Ok((name.ok_or_else(missing)?, fields))
    }

    /// The name, if there is one, and the fields.
    pub fn perhaps_named(self) -> PyResult<(Option<&'a Bound<'py, PyAny>>, Option<Fields>)> {
        let (function, given) = (self.function, self.positional.len());
        if given > 1 {
            let message =
                format!("{function}() takes at most 1 positional argument ({given} given); fields have names");
            return Err(PyTypeError::new_err(message));
        }
        Ok((self.positional.first(), self.fields))
    }
}

/// The implementation of a function.
pub type Body = for<'a, 'py> fn(Call<'a, 'py>) -> PyResult<Bound<'py, PyAny>>;

/// Calls a function with vectorcall arguments.
///
/// # Safety
///
/// As for `METH_FASTCALL | METH_KEYWORDS`: `args` has `count` positional values and one for each of `names`.
pub unsafe fn call(
    function: &'static str,
    body: Body,
    (args, count, names): (*const *mut ffi::PyObject, ffi::Py_ssize_t, *mut ffi::PyObject),
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: Python keeps all arguments alive during the call, and `names` is a tuple or null.
            let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) };
            let names = names.map(|names| names.cast_into::<PyTuple>()).transpose()?;
            let named = names.as_ref().map_or(0, |names| names.len());
            let count = usize::try_from(count).unwrap_or(0);
            // SAFETY: `args` has `count` values plus one per name; it may be null if there are none.
            let all = if count + named == 0 { &[] } else { unsafe { slice::from_raw_parts(args, count + named) } };
            // SAFETY: `Bound` is a pointer to an object, which Python keeps alive during the call.
            let all = unsafe { slice::from_raw_parts(all.as_ptr().cast::<Bound<'_, PyAny>>(), all.len()) };
            let (positional, values) = all.split_at(count);
            let values = values.iter().map(|value| value.clone().unbind()).collect();
            let fields = names.map(|names| Fields { names: names.unbind(), values });
            body(Call { py, function, positional, fields })
        }));
        let failed = |_| Err(PyRuntimeError::new_err(format!("laptime.{function} failed; nothing was recorded")));
        match called.unwrap_or_else(failed) {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    })
}

/// Creates a function of a module.
pub fn function<'py>(
    module: &Bound<'py, PyModule>,
    definition: &'static mut ffi::PyMethodDef,
) -> PyResult<Bound<'py, PyAny>> {
    let name = module.name()?;
    // SAFETY: the definition is static, and the name an object.
    unsafe {
        Bound::from_owned_ptr_or_err(module.py(), ffi::PyCFunction_NewEx(definition, ptr::null_mut(), name.as_ptr()))
    }
}

/// Creates a function of a module with its name, signature and documentation.
#[macro_export]
macro_rules! function_with_fields {
    ($module:expr, $body:ident, $signature:literal, $text:literal) => {{
        #[allow(unsafe_code, reason = "Python calls it as METH_FASTCALL | METH_KEYWORDS")]
        unsafe extern "C" fn called(
            _module: *mut pyo3::ffi::PyObject,
            args: *const *mut pyo3::ffi::PyObject,
            count: pyo3::ffi::Py_ssize_t,
            names: *mut pyo3::ffi::PyObject,
        ) -> *mut pyo3::ffi::PyObject {
            // SAFETY: these are the arguments of METH_FASTCALL | METH_KEYWORDS.
            unsafe { $crate::fields::call(stringify!($body), $body, (args, count, names)) }
        }
        let definition = pyo3::ffi::PyMethodDef {
            ml_name: concat!(stringify!($body), "\0").as_ptr().cast(),
            ml_meth: pyo3::ffi::PyMethodDefPointer { PyCFunctionFastWithKeywords: called },
            ml_flags: pyo3::ffi::METH_FASTCALL | pyo3::ffi::METH_KEYWORDS,
            ml_doc: concat!($signature, "\n--\n\n", $text, "\0").as_ptr().cast(),
        };
        $crate::fields::function($module, Box::leak(Box::new(definition)))
    }};
}
