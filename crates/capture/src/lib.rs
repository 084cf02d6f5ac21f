//! Code shared by the injected library and the recorder.
//!
//! `laptime record` starts a program with a small library of ours (`crates/inject`). The library writes what CUPTI and
//! NVTX report into *part* files ([`part`]), and reads what it should do from a *control page* ([`control`]), a file
//! that both sides map. [`cupti`] reads CUPTI's records and [`functions`] calls it; `crates/cuda` uses both too.

#[cfg(target_os = "linux")]
pub mod control;
pub mod cupti;
pub mod demangle;
#[cfg(unix)]
pub mod dl;
pub mod functions;
#[cfg(feature = "trace")]
pub mod kernels;
pub mod modes;
pub mod part;
#[cfg(target_os = "linux")]
pub mod process;
mod varint;

/// Names the folder of the recording for the processes of the program.
pub const FOLDER_VARIABLE: &str = "LAPTIME_RECORD";

/// The control page in that folder.
pub const CONTROL_FILE: &str = "control";

/// The ending of the names of part files.
pub const PART_ENDING: &str = "part";

/// Nanoseconds of the monotonic clock, which all processes of a machine share.
#[cfg(unix)]
#[allow(unsafe_code)]
pub fn monotonic_nanos() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the place is valid.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}
