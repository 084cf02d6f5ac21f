//! The Python module `laptime._native`: marks, recordings, traces, tables and benchmarks.
//!
//! The public API is written in Python (`python/laptime`). This module has what must be fast or uses our crates.

mod arrow;
mod bench;
mod columns;
mod fields;
mod frames;
mod marks;
mod models;
mod reading;
mod recording;
mod table;
mod tasks;

use std::sync::{Mutex, PoisonError, mpsc};
use std::{ffi::OsString, path::PathBuf, time::Duration};

use laptime::library::Failure;
use laptime_bench::Launch;
use pyo3::prelude::*;

#[global_allocator]
static HEAP: laptime::CountingHeap = laptime::CountingHeap;

/// The extension module.
#[pymodule(gil_used = true)]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add_function(wrap_pyfunction!(run_command, module)?)?;
    marks::add_to(module)?;
    recording::add_to(module)?;
    reading::add_to(module)?;
    module.add_class::<table::NativeTable>()?;
    module.add_class::<columns::NativeColumn>()?;
    bench::add_to(module)?;
    models::add_to(module)
}

/// Runs the command line and returns the exit status.
#[pyfunction]
fn run_command(
    py: Python<'_>,
    program: PathBuf,
    arguments: Vec<OsString>,
    binary: PathBuf,
    words: Vec<OsString>,
) -> u8 {
    py.detach(|| laptime::main_of_module(Launch { program, arguments, binary, words }))
}

/// Creates an exception of `laptime._errors`.
fn raise(py: Python<'_>, class: &str, failure: &Failure) -> PyErr {
    let build = || -> PyResult<PyErr> {
        let class = py.import("laptime._errors")?.getattr(class)?;
        Ok(PyErr::from_value(class.call1((&failure.message, &failure.hint))?))
    };
    build().unwrap_or_else(|error| error)
}

/// How often a long call checks for Ctrl-C.
const SIGNALS_EVERY: Duration = Duration::from_millis(50);

/// Runs work on another thread, without the GIL. Ctrl-C raises at once and abandons the work.
fn interruptible<T: Send + 'static>(py: Python<'_>, work: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    let (sender, receiver) = mpsc::channel();
    // `detach` needs a `Sync` closure.
    let receiver = Mutex::new(receiver);
    std::thread::Builder::new().name("laptime".to_owned()).spawn(move || drop(sender.send(work())))?;
    loop {
        match py.detach(|| receiver.lock().unwrap_or_else(PoisonError::into_inner).recv_timeout(SIGNALS_EVERY)) {
            Ok(done) => return Ok(done),
            Err(mpsc::RecvTimeoutError::Timeout) => py.check_signals()?,
            Err(mpsc::RecvTimeoutError::Disconnected) => {
                let failure = Failure { message: "laptime failed".to_owned(), hint: Some(BUG.to_owned()) };
                return Err(raise(py, "LaptimeError", &failure));
            }
        }
    }
}

const BUG: &str = "this is a bug in laptime; please report it with what you called and its input file";
