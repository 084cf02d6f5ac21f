//! A thread that watches the program from outside until it is told that the recording is over.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{self, JoinHandle};

/// Whether the recording is over.
pub type IsDone<'a> = &'a dyn Fn() -> bool;

/// The thread, and what it will have seen.
#[derive(Debug)]
pub struct Observer<T> {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Default + Send + 'static> Observer<T> {
    /// Starts to watch.
    pub fn start(watch: impl FnOnce(IsDone<'_>) -> T + Send + 'static) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        Self { is_done, thread: thread::spawn(move || watch(&|| done.load(Ordering::Acquire))) }
    }

    /// Ends the watching.
    pub fn finish(self) -> T {
        self.is_done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}
