//! The threads of a workload: exactly the number in its case.

use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread::available_parallelism;

use anyhow::Context;
use laptime_models::cpu::settle;
use laptime_models::threads::{self, Threads};

/// CPUs that this process may use, within its affinity and CPU quota. Cached: every `threads` axis needs it at startup,
/// and it takes a dozen system calls.
pub fn all_threads() -> usize {
    static KNOWN: OnceLock<usize> = OnceLock::new();
    *KNOWN.get_or_init(|| available_parallelism().map_or(1, usize::from))
}

/// The threads of a case. A crew of one is the caller's thread: waking another would cost more than small work. Several
/// threads exclude the caller and are placed by [`threads::start`].
pub struct Crew {
    pool: Option<Threads>,
}

impl Crew {
    pub fn new(threads: usize) -> anyhow::Result<Self> {
        if threads <= 1 {
            return Ok(Self { pool: None });
        }
        let pool = threads::start(threads, 0, "crew").with_context(|| format!("cannot start {threads} threads"))?;
        Ok(Self { pool: Some(pool) })
    }

    /// As [`Crew::new`], with the workspaces of matrix products allocated, so that the memory of a case does not depend on
    /// which threads get a part.
    pub fn for_products(threads: usize) -> anyhow::Result<Self> {
        let crew = Self::new(threads)?;
        if let Some(pool) = &crew.pool {
            pool.broadcast(|_| settle());
        }
        Ok(crew)
    }

    pub fn threads(&self) -> usize {
        self.pool.as_ref().map_or(1, |pool| pool.current_num_threads())
    }

    /// Runs a function on the crew; its parallel work uses these threads.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        match &self.pool {
            None => work(),
            Some(pool) => pool.install(work),
        }
    }

    /// Runs at most one part per thread, and waits. A part always goes to the same thread, so memory stays with the thread
    /// that touched it first.
    pub fn each<P: Send>(&self, parts: impl Iterator<Item = P>, work: impl Fn(P) + Sync) {
        let Some(pool) = &self.pool else { return parts.for_each(work) };
        let parts: Vec<Mutex<Option<P>>> = parts.map(|part| Mutex::new(Some(part))).collect();
        debug_assert!(parts.len() <= pool.current_num_threads());
        pool.broadcast(|thread| {
            let part = parts.get(thread.index()).map(|part| part.lock().unwrap_or_else(PoisonError::into_inner).take());
            part.flatten().into_iter().for_each(&work);
        });
    }

    /// The length of each thread's part of this many items; the last part may be shorter.
    pub fn share(&self, items: usize) -> usize {
        items.div_ceil(self.threads()).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{collections::BTreeSet, thread};

    #[test]
    fn a_crew_of_one_is_the_caller() {
        let crew = Crew::new(1).unwrap();
        assert_eq!(crew.run(|| thread::current().id()), thread::current().id());
        assert_eq!(crew.threads(), 1);
    }

    #[test]
    fn every_part_is_done_once_and_by_the_same_thread_each_time() {
        let crew = Crew::new(3).unwrap();
        let done = || {
            let names = Mutex::new(BTreeSet::new());
            crew.each(0..3, |part| {
                let name = thread::current().name().unwrap().to_owned();
                assert!(names.lock().unwrap().insert((part, name)));
            });
            names.into_inner().unwrap()
        };
        let expected = (0..3).map(|part| (part, format!("crew {part}"))).collect();
        assert_eq!(done(), expected);
        assert_eq!(done(), expected);
    }

    #[test]
    fn fewer_items_than_threads_leave_some_threads_idle() {
        let crew = Crew::new(4).unwrap();
        let mut items = [0; 3];
        let share = crew.share(items.len());
        crew.each(items.chunks_mut(share), |part| part[0] += 1);
        assert_eq!((share, items), (1, [1; 3]));
    }

    #[test]
    fn a_panic_of_a_thread_reaches_the_caller() {
        let crew = Crew::new(2).unwrap();
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            crew.each(0..2, |part| assert_ne!(part, 1, "on purpose"));
        }));
        assert!(caught.is_err());
    }
}
