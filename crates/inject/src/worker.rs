//! Our thread: once per second it flushes CUPTI and writes the records, and it follows the recorder's requests.

use std::time::{Duration, Instant};
use std::{ptr, sync::atomic::Ordering, thread};

use laptime_capture::control::{RecordingMode, Resting};
use laptime_capture::{monotonic_nanos, part};

use crate::{devices, guarded, hooks, state::State};

/// The maximum time that a kill can lose.
const PERIOD: Duration = Duration::from_secs(1);
/// How long the end of the process waits for our locks.
const PATIENCE: Duration = Duration::from_millis(500);
const STACK_BYTES: usize = 512 << 10;

/// Starts the thread. Without it, buffers that are full and the end of the process still write.
pub fn start(state: &'static State) {
    with_signals_blocked(|| {
        let builder = thread::Builder::new().name("laptime".to_owned()).stack_size(STACK_BYTES);
        let _ = builder.spawn(move || guarded(|| run(state)));
    });
}

/// The program's signals must reach the program's threads: a thread inherits the mask of the one that starts it.
fn with_signals_blocked(work: impl FnOnce()) {
    // SAFETY: the sets are valid; the mask of this thread is put back.
    unsafe {
        let mut all: libc::sigset_t = std::mem::zeroed();
        let mut before: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &all, &mut before);
        work();
        libc::pthread_sigmask(libc::SIG_SETMASK, &before, ptr::null_mut());
    }
}

fn run(state: &'static State) {
    let mut resting = Resting::default();
    while !state.is_ending.load(Ordering::Acquire) {
        let epoch = state.control.epoch();
        hooks::install();
        if let Some(session) = state.session.get() {
            let mode = resting.mode(state.control.mode(), session.had_launched_work(), Instant::now());
            session.apply(state, mode);
        }
        devices::describe(state);
        write(state, false);
        state.control.wait(epoch, PERIOD);
    }
}

/// Writes everything that is available.
fn write(state: &State, is_forced: bool) {
    let observations = state.is_taken_over.load(Ordering::Acquire);
    let session = state.session.get().filter(|_| !observations);
    if let Some(session) = session {
        let _ = session.functions.flush(is_forced);
    }
    let anchor = session.and_then(|session| session.anchor());
    let mut output = state.output();
    state.ranges.drain(&mut output);
    if let Some(anchor) = anchor {
        output.encoder.anchor(anchor);
        output.memory(resident_bytes().unwrap_or(0), state.pool.bytes());
    }
    state.report(&mut output);
    output.write();
}

/// The memory of the process that is resident.
fn resident_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    // SAFETY: asks for a number.
    Some(pages * unsafe { libc::sysconf(libc::_SC_PAGESIZE) } as u64)
}

/// The process ends: everything is written, unless our locks are taken for too long.
pub fn finish(state: &State) {
    if state.is_ending.swap(true, Ordering::AcqRel) {
        return;
    }
    let until = Instant::now() + PATIENCE;
    loop {
        match state.try_output() {
            Some(_) => break,
            None if Instant::now() > until => return,
            None => thread::sleep(Duration::from_millis(1)),
        }
    }
    devices::describe(state);
    write(state, true);
    // Our thread may be in the middle of a flush, with buffers that it has not read yet.
    while state.pool.outstanding() > 0 && !state.is_taken_over.load(Ordering::Acquire) && Instant::now() < until {
        thread::sleep(Duration::from_millis(1));
        write(state, true);
    }
    let mut output = state.output();
    if state.pool.outstanding() > 0 && !state.is_taken_over.load(Ordering::Acquire) && state.session.get().is_some() {
        output.info("problem", "taken-over");
    }
    output.encoder.state(monotonic_nanos(), part::State::Ended);
    output.write();
}

/// The state for a mode. While the rest of the work comes back, the state from before lasts.
pub fn state_of(mode: RecordingMode) -> Option<part::State> {
    match mode {
        RecordingMode::Nothing => Some(part::State::Paused),
        RecordingMode::Everything => Some(part::State::Recording),
        RecordingMode::Light => Some(part::State::Light),
        RecordingMode::Rest => None,
    }
}
