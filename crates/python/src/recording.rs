//! Recordings of this process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use laptime::library::{Failure, in_process};
use laptime_trace::Recording;
use pyo3::prelude::*;

use crate::raise;

/// The current recording, and the pid of the process that started it.
static CURRENT: Mutex<Option<(u32, Recording)>> = Mutex::new(None);

pub fn add_to(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(start_recording, module)?)?;
    module.add_function(wrap_pyfunction!(finish_recording, module)?)?;
    module.add_function(wrap_pyfunction!(prepare_gpu, module)?)?;
    module.add_function(wrap_pyfunction!(begin_gpu, module)?)?;
    module.add_function(wrap_pyfunction!(finish_gpu, module)?)?;
    module.add_function(wrap_pyfunction!(remove_gpu, module)?)?;
    module.add_function(wrap_pyfunction!(forget_after_fork, module)?)
}

fn record_error(py: Python<'_>, error: impl Into<anyhow::Error>) -> PyErr {
    raise(py, "RecordError", &Failure::from(error.into()))
}

/// Prepares recording the GPU work of this process. Returns the library to inject and the folder of the recording.
#[pyfunction]
fn prepare_gpu(py: Python<'_>) -> PyResult<(PathBuf, PathBuf)> {
    let prepared = py.detach(in_process::prepare).map_err(|error| record_error(py, error))?;
    Ok((prepared.library, prepared.folder))
}

/// Starts recording GPU work.
#[pyfunction]
fn begin_gpu(py: Python<'_>) -> PyResult<()> {
    py.detach(in_process::begin).map_err(|error| record_error(py, error))
}

/// Stops recording GPU work and adds it to a trace. Returns the number of kernels; none if CUDA was not used.
#[pyfunction]
fn finish_gpu(py: Python<'_>, trace: PathBuf) -> PyResult<Option<usize>> {
    py.detach(|| in_process::finish(&trace)).map_err(|error| record_error(py, error))
}

/// Removes the files of the recorder at the end of the process.
#[pyfunction]
fn remove_gpu(py: Python<'_>) {
    py.detach(in_process::remove);
}

/// Starts a recording of all threads.
#[pyfunction]
fn start_recording(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let recording = py.detach(|| laptime_trace::record_to(&path)).map_err(|error| record_error(py, error))?;
    *current() = Some((std::process::id(), recording));
    Ok(())
}

/// Stops the recording. Returns the number of spans, dropped events and bytes; none if there is no recording.
#[pyfunction]
fn finish_recording(py: Python<'_>) -> PyResult<Option<(u64, u64, u64)>> {
    let Some((process, recording)) = current().take() else { return Ok(None) };
    if process != std::process::id() {
        // Its writer thread is in the parent process.
        std::mem::forget(recording);
        return Ok(None);
    }
    let recorded = py.detach(|| recording.finish()).map_err(|error| record_error(py, error))?;
    Ok(Some((recorded.spans, recorded.lost, recorded.bytes)))
}

/// Must be called first in a forked process, since the recording belongs to the parent.
#[pyfunction]
fn forget_after_fork() {
    laptime_probe::forget_after_fork();
    in_process::forget_after_fork();
    if let Ok(mut current) = CURRENT.try_lock() {
        std::mem::forget(current.take());
    }
}

fn current() -> std::sync::MutexGuard<'static, Option<(u32, Recording)>> {
    CURRENT.lock().unwrap_or_else(PoisonError::into_inner)
}
