//! Where a run takes place: gathers the machine and the build before the first case.
//!
//! On Linux everything comes from files below `/proc` and `/sys`, read by [`Linux`] under a root that tests replace.
//! Elsewhere little is known, and what is not known is none.

mod cgroup;
mod linux;
#[cfg(test)]
mod tests;

use std::{num::NonZero, thread};

use laptime_trace::run::{Build, Environment, fingerprint};

pub use self::linux::Linux;

/// Gathers what is known of this machine and of its state right now.
pub fn gather(build: Build) -> Environment {
    let linux = Linux::here();
    let machine = linux.machine(parallelism());
    Environment { machine, build, load: linux.load(), available_bytes: linux.available_bytes() }
}

/// The version of NVIDIA's driver for the kernel, if one is loaded.
pub fn nvidia_driver() -> Option<String> {
    Linux::here().nvidia_driver()
}

/// Names the file of the running program by its content; none if it cannot be read.
pub fn binary_fingerprint() -> Option<String> {
    let program = std::env::current_exe().ok()?;
    Some(fingerprint(&std::fs::read(program).ok()?))
}

/// How many threads of this process may run at once, a quota included.
pub(crate) fn parallelism() -> u32 {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(threads).unwrap_or(u32::MAX)
}
