//! `std::process::exit` drops no guard. The file is flushed at exit, so that the last tenth of a second of a recording
//! is not lost.

// The standard library has no exit hook; C has.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, Once, Weak};
use std::thread::Thread;

use super::Control;

/// The running recording; there is one at a time.
static RUNNING: Mutex<Option<(Weak<Control>, Thread, u32)>> = Mutex::new(None);

/// Flushes this recording when the process exits, if it is still running.
pub(super) fn flush(control: &Arc<Control>, writer: Thread) {
    static ONCE: Once = Once::new();
    if let Ok(mut running) = RUNNING.lock() {
        *running = Some((Arc::downgrade(control), writer, std::process::id()));
    }
    ONCE.call_once(register);
}

fn register() {
    #[cfg(unix)]
    {
        unsafe extern "C" {
            fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
        }
        // SAFETY: the function is static, takes and returns nothing, and does not unwind.
        let _ = unsafe { atexit(flush_running) };
    }
}

/// Other threads still run, including the writer. Nothing here waits forever: the caller of `exit` may hold any lock.
#[cfg(unix)]
extern "C" fn flush_running() {
    let Ok(running) = RUNNING.try_lock() else { return };
    // A forked child has no writer thread.
    if let Some((control, writer, process)) = &*running
        && *process == std::process::id()
        && let Some(control) = control.upgrade()
    {
        control.flush(writer);
    }
}
