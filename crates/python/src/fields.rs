//! Functions of the form `f(name, **fields)`, which Python calls without making a dictionary of the fields.
//!
//! A stage with a field is called in the innermost loops of a program, and the dictionary would cost more than all the rest.
#![allow(unsafe_code, reason = "the arguments of a vector call are an array in C; the blocks have their reasons")]

use std::panic::{self, AssertUnwindSafe};
use std::{ptr, slice};

use pyo3::exceptions::{PyRuntimeError, PyTypeError};
use pyo3::{ffi, prelude::*, types::PyTuple};

/// The fields of one call.
pub struct Fields {
    /// The same object in every call of a place in the source.
    pub names: Py<PyTuple>,
    pub values: Vec<Py<PyAny>>,
}

/// The arguments of a call.
pub struct Call<'a, 'py> {
    pub py: Python<'py>,
    function: &'static str,
    positional: &'a [Bound<'py, PyAny>],
    fields: Option<Fields>,
}

impl<'a, 'py> Call<'a, 'py> {
    /// The name and the fields.
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

/// What a function does with its arguments.
pub type Body = for<'a, 'py> fn(Call<'a, 'py>) -> PyResult<Bound<'py, PyAny>>;

/// Calls a function with the arguments of a vector call.
///
/// # Safety
///
/// As for a function of the kind `METH_FASTCALL | METH_KEYWORDS`: `args` has `count` values, and one for each of `names`.
pub unsafe fn call(
    function: &'static str,
    body: Body,
    (args, count, names): (*const *mut ffi::PyObject, ffi::Py_ssize_t, *mut ffi::PyObject),
) -> *mut ffi::PyObject {
    Python::attach(|py| {
        let called = panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: Python holds all arguments until this returns, and `names` is a tuple or null.
            let names = unsafe { Bound::from_borrowed_ptr_or_opt(py, names) };
            let names = names.map(|names| names.cast_into::<PyTuple>()).transpose()?;
            let named = names.as_ref().map_or(0, |names| names.len());
            let count = usize::try_from(count).unwrap_or(0);
            // SAFETY: there are `count` positional arguments and then one for each name; without any, `args` may be null.
            let all = if count + named == 0 { &[] } else { unsafe { slice::from_raw_parts(args, count + named) } };
            // SAFETY: a `Bound` is a pointer to an object that Python keeps alive during the call.
            let all = unsafe { slice::from_raw_parts(all.as_ptr().cast::<Bound<'_, PyAny>>(), all.len()) };
            let (positional, values) = all.split_at(count);
            let values = values.iter().map(|value| value.clone().unbind()).collect();
            let fields = names.map(|names| Fields { names: names.unbind(), values });
            body(Call { py, function, positional, fields })
        }));
        let failed =
            |_| Err(PyRuntimeError::new_err(format!("laptime.{function} failed inside; nothing was recorded")));
        match called.unwrap_or_else(failed) {
            Ok(object) => object.into_ptr(),
            Err(error) => {
                error.restore(py);
                ptr::null_mut()
            }
        }
    })
}

/// Makes a function of a module from its [`Body`].
///
/// # Errors
///
/// If Python has no memory for it.
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

/// A function of a module with its name, its signature and its documentation.
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
            // SAFETY: Python passes the arguments as `call` wants them.
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
