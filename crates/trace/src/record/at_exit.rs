//! `std::process::exit` drops no guard. So that the last tenth of a second of a recording is not lost with it, the file is
//! brought up to date when the process exits.

// The standard library has no way to be called at the exit of a process; C has.
#![allow(unsafe_code)]

use std::{
    sync::{Arc, Mutex, Once, Weak},
    thread::Thread,
};

use super::Control;

/// The recording that runs; there is one at a time.
static RUNNING: Mutex<Option<(Weak<Control>, Thread)>> = Mutex::new(None);

/// Brings this recording up to date when the process exits, if it still runs then.
pub(super) fn flush(control: &Arc<Control>, writer: Thread) {
    static ONCE: Once = Once::new();
    if let Ok(mut running) = RUNNING.lock() {
        *running = Some((Arc::downgrade(control), writer));
    }
    ONCE.call_once(register);
}

fn register() {
    #[cfg(unix)]
    {
        unsafe extern "C" {
            fn atexit(function: extern "C" fn()) -> std::ffi::c_int;
        }
        // SAFETY: the function lives as long as the program, takes nothing, gives nothing and does not unwind.
        let _ = unsafe { atexit(flush_running) };
    }
}

/// Other threads still run, the writing one among them. Nothing here waits for ever: who calls `exit` may hold any lock.
#[cfg(unix)]
extern "C" fn flush_running() {
    let Ok(running) = RUNNING.try_lock() else { return };
    if let Some((control, writer)) = &*running
        && let Some(control) = control.upgrade()
    {
        control.flush(writer);
    }
}
