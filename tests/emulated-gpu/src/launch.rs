//! Runs the blocks of a grid on the threads of the host.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::{num::NonZero, thread};

use crate::cluster::Cluster;
use crate::machine::Launch;

/// Runs all blocks.
pub(crate) fn run(launch: &Launch<'_>) -> Result<(), String> {
    let sides = launch.program.cluster;
    if (0..3).any(|side| !launch.grid[side].is_multiple_of(sides[side])) {
        return Err(format!("`{}`: a grid of {:?} has no clusters of {sides:?}", launch.program.name, launch.grid));
    }
    let count: u64 = (0..3).map(|side| u64::from(launch.grid[side] / sides[side])).product();
    let next = AtomicU64::new(0);
    let failed: Mutex<Option<String>> = Mutex::new(None);
    let work = || {
        let mut cluster = Cluster::new(launch);
        loop {
            let number = next.fetch_add(1, Ordering::Relaxed);
            if number >= count {
                return;
            }
            if let Err(why) = cluster.run(launch, number) {
                next.store(count, Ordering::Relaxed);
                failed.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(why);
            }
        }
    };
    // Few blocks are done before a thread has started.
    let threads = thread::available_parallelism().map_or(1, NonZero::get).min(count as usize / 4 + 1);
    thread::scope(|scope| {
        (1..threads).for_each(|_| {
            scope.spawn(work);
        });
        work();
    });
    failed.into_inner().unwrap_or_else(PoisonError::into_inner).map_or(Ok(()), Err)
}
