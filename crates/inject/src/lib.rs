//! The library that `laptime record` injects into CUDA programs.
//!
//! The CUDA driver loads it (`CUDA_INJECTION64_PATH`), and so does NVTX (`NVTX_INJECTION64_PATH`). It writes what CUPTI
//! and NVTX report into part files (see `laptime_capture`), on a thread of its own. It must never change what the
//! program does: no panic leaves it, it installs no signal handler, it exports nothing but the two entry points, it
//! holds no file open, and in a forked child it does nothing until CUDA starts there.
#![allow(unsafe_code)]

mod buffers;
mod devices;
mod hooks;
mod laps;
mod library;
mod nvtx;
mod output;
mod ranges;
mod session;
mod state;
mod worker;

use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Called by the CUDA driver while it initialises.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "the driver looks for this name")]
pub extern "C" fn InitializeInjection() -> c_int {
    guarded(|| {
        if let Some(state) = state::get_or_start() {
            session::start(state);
        }
    });
    // Zero would mean failure to the driver.
    1
}

/// Called by NVTX on its first use; `tables` gives the tables to put our functions into.
#[unsafe(no_mangle)]
#[allow(non_snake_case, reason = "NVTX looks for this name")]
pub extern "C" fn InitializeInjectionNvtx2(tables: Option<extern "C" fn(u32) -> *const c_void>) -> c_int {
    let mut is_attached = false;
    guarded(|| {
        if let Some(tables) = tables
            && state::get_or_start().is_some()
        {
            // SAFETY: NVTX passes its own function.
            is_attached = unsafe { nvtx::attach(tables) };
        }
    });
    c_int::from(is_attached)
}

/// Locks a mutex; a panic of ours that was stopped does not make its content useless.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs our code at the boundary to the program, and stops panics.
fn guarded(work: impl FnOnce()) {
    let _ = catch_unwind(AssertUnwindSafe(work));
}
