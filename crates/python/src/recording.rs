//! Recordings of this process.

use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use laptime::library::{Failure, in_process};
use laptime_trace::Recording;
use pyo3::prelude::*;

use crate::raise;

/// The recording of this process, and the number of the process that began it.
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

/// Prepares recording the GPU work of this process. Returns the library to inject, and the folder that it writes to.
#[pyfunction]
fn prepare_gpu(py: Python<'_>) -> PyResult<(PathBuf, PathBuf)> {
    let prepared = py.detach(in_process::prepare).map_err(|error| raise(py, "RecordError", &Failure::from(error)))?;
    Ok((prepared.library, prepared.folder))
}

/// Records GPU work from here on.
#[pyfunction]
fn begin_gpu(py: Python<'_>) -> PyResult<()> {
    py.detach(in_process::begin).map_err(|error| raise(py, "RecordError", &Failure::from(error)))
}

/// Ends recording GPU work, and adds it to a trace. Returns the number of kernels; none if CUDA was not used.
#[pyfunction]
fn finish_gpu(py: Python<'_>, trace: PathBuf) -> PyResult<Option<usize>> {
    let finished = py.detach(|| in_process::finish(&trace));
    finished.map_err(|error| raise(py, "RecordError", &Failure::from(error)))
}

/// Removes what the recorder keeps in folders, at the end of the process.
#[pyfunction]
fn remove_gpu(py: Python<'_>) {
    py.detach(in_process::remove);
}

/// Begins a recording of all threads.
#[pyfunction]
fn start_recording(py: Python<'_>, path: PathBuf) -> PyResult<()> {
    let started = py.detach(|| laptime_trace::record_to(&path));
    let recording = started.map_err(|error| raise(py, "RecordError", &Failure::from(anyhow::Error::new(error))))?;
    *current() = Some((std::process::id(), recording));
    Ok(())
}

/// Ends it. Returns the number of spans, dropped events and bytes; none if there is no recording.
#[pyfunction]
fn finish_recording(py: Python<'_>) -> PyResult<Option<(u64, u64, u64)>> {
    let Some((process, recording)) = current().take() else { return Ok(None) };
    if process != std::process::id() {
        // Its writer is a thread of the parent.
        std::mem::forget(recording);
        return Ok(None);
    }
    let recorded = py.detach(|| recording.finish());
    let recorded = recorded.map_err(|error| raise(py, "RecordError", &Failure::from(anyhow::Error::new(error))))?;
    Ok(Some((recorded.spans, recorded.lost, recorded.bytes)))
}

/// Call this first in a forked process: the recording belongs to the parent.
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
