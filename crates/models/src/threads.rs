//! Thread pools for computation on the host, pinned to processors.

use std::sync::{Mutex, PoisonError};
use std::{ops::Deref, thread::JoinHandle};

use laptime_probe::stage;
use rayon::{ThreadPool, ThreadPoolBuildError, ThreadPoolBuilder};

/// A thread pool that joins its threads when it is dropped, so the next case does not account for what they free.
#[derive(Debug)]
pub struct Threads {
    pool: Option<ThreadPool>,
    handles: Vec<JoinHandle<()>>,
}

impl Deref for Threads {
    type Target = ThreadPool;

    fn deref(&self) -> &ThreadPool {
        self.pool.as_ref().expect("the pool is there until it is dropped")
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        // Ends the threads after their current work.
        drop(self.pool.take());
        for handle in self.handles.drain(..) {
            // A panicked thread has ended too.
            let _ = handle.join();
        }
    }
}

/// Starts threads that work with `callers` other threads, named after `name` and their index.
///
/// If there are enough processors, each thread is pinned to one after those of the callers: the kernel may otherwise wake two
/// threads on one processor and leave them there.
pub fn start(threads: usize, callers: usize, name: &'static str) -> Result<Threads, ThreadPoolBuildError> {
    let _stage = stage!("start_threads", threads = threads + callers);
    let processors = processors();
    let has_enough = threads + callers <= processors.len();
    let builder = ThreadPoolBuilder::new().num_threads(threads);
    let builder = builder.thread_name(move |at| format!("{name} {}", at + callers));
    let builder = builder.start_handler(move |at| {
        if has_enough {
            stay_on(processors[at + callers]);
        }
    });
    let handles = Mutex::new(Vec::with_capacity(threads));
    let builder = builder.spawn_handler(|thread| {
        let named = std::thread::Builder::new().name(thread.name().unwrap_or(name).to_owned());
        let handle = named.spawn(|| thread.run())?;
        handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        Ok(())
    });
    let pool = Some(builder.build()?);
    Ok(Threads { pool, handles: handles.into_inner().unwrap_or_else(PoisonError::into_inner) })
}

/// The processors that this thread may run on, or none if unknown.
pub fn processors() -> Vec<usize> {
    #[cfg(target_os = "linux")]
    if let Ok(allowed) = rustix::thread::sched_getaffinity(None) {
        return (0..rustix::thread::CpuSet::MAX_CPU).filter(|&processor| allowed.is_set(processor)).collect();
    }
    Vec::new()
}

/// Pins this thread to a processor, if that is allowed.
fn stay_on(processor: usize) {
    #[cfg(target_os = "linux")]
    {
        let mut only = rustix::thread::CpuSet::new();
        only.set(processor);
        let _ = rustix::thread::sched_setaffinity(None, &only);
    }
    #[cfg(not(target_os = "linux"))]
    let _ = processor;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_are_named_and_numbered_after_the_callers() {
        let pool = start(2, 1, "worker").unwrap();
        let names = pool.broadcast(|_| std::thread::current().name().map(str::to_owned));
        assert_eq!(names, [Some("worker 1".to_owned()), Some("worker 2".to_owned())]);
    }

    #[test]
    fn threads_have_ended_when_their_pool_is_dropped() {
        static ENDED: std::sync::atomic::AtomicUsize = std::sync::atomic::AtomicUsize::new(0);
        struct AtEnd;
        impl Drop for AtEnd {
            fn drop(&mut self) {
                ENDED.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            }
        }
        std::thread_local!(static AT_END: AtEnd = const { AtEnd });
        let pool = start(3, 0, "worker").unwrap();
        pool.broadcast(|_| AT_END.with(|_| ()));
        drop(pool);
        assert_eq!(ENDED.load(std::sync::atomic::Ordering::SeqCst), 3);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn threads_have_separate_processors_if_there_are_enough() {
        let allowed = processors();
        let count = allowed.len().min(8);
        let kept: Vec<Vec<usize>> = start(count, 0, "worker").unwrap().broadcast(|_| processors());
        let different: std::collections::HashSet<_> = kept.iter().collect();
        assert_eq!(different.len(), count, "{kept:?}");
        let crowded = start(allowed.len(), 1, "worker").unwrap().broadcast(|_| processors());
        assert!(crowded.iter().all(|kept| *kept == allowed), "there are too few to give each its own");
    }
}
