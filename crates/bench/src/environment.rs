//! Collects information about the machine and the build before the first case.
//!
//! On Linux everything is read from `/proc` and `/sys` by [`Linux`], below a root folder that tests replace. On other
//! systems most fields are none.

mod cgroup;
mod linux;
#[cfg(test)]
mod tests;

use std::{num::NonZero, thread};

use laptime_trace::run::{Build, Environment, Machine, fingerprint};

pub use self::linux::Linux;
use crate::launch::Launch;

/// Collects the properties and the current state of this machine.
pub fn gather(build: Build) -> Environment {
    let linux = Linux::here();
    // A node of Slurm: two nodes are never the same environment.
    let machine = Machine { node: std::env::var("SLURMD_NODENAME").ok(), ..linux.machine(parallelism()) };
    Environment { machine, build, load: linux.load(), available_bytes: linux.available_bytes() }
}

/// The version of the loaded NVIDIA kernel driver, if there is one.
pub fn nvidia_driver() -> Option<String> {
    Linux::here().nvidia_driver()
}

/// A fingerprint of the file with our code; none if it cannot be read.
pub fn binary_fingerprint() -> Option<String> {
    Some(fingerprint(&std::fs::read(Launch::of_this_program().binary).ok()?))
}

/// The number of threads that can run at once, limited by the CPU quota.
pub(crate) fn parallelism() -> u32 {
    let threads = thread::available_parallelism().map_or(1, NonZero::get);
    u32::try_from(threads).unwrap_or(u32::MAX)
}
