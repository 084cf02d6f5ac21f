//! Finds the source line of a mark.

use pyo3::{prelude::*, sync::PyOnceLock, types::PyString};

static GET_FRAME: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
static OWN_FOLDER: PyOnceLock<String> = PyOnceLock::new();

/// File and line of the innermost frame outside of this package.
pub fn caller(py: Python<'_>) -> (String, u32) {
    find(py).unwrap_or_default()
}

fn find(py: Python<'_>) -> PyResult<(String, u32)> {
    let get_frame =
        GET_FRAME.get_or_try_init(py, || Ok::<_, PyErr>(py.import("sys")?.getattr("_getframe")?.unbind()))?;
    let own = OWN_FOLDER.get_or_try_init(py, || {
        let file: String = py.import("laptime")?.getattr("__file__")?.extract()?;
        Ok::<_, PyErr>(file.trim_end_matches("__init__.py").to_owned())
    })?;
    let mut frame = get_frame.bind(py).call0()?;
    loop {
        let file = frame.getattr("f_code")?.getattr("co_filename")?.cast_into::<PyString>()?;
        let file = file.to_str()?;
        let outer = frame.getattr("f_back")?;
        if outer.is_none() || !file.starts_with(own.as_str()) {
            return Ok((file.to_owned(), frame.getattr("f_lineno")?.extract().unwrap_or(0)));
        }
        frame = outer;
    }
}
