//! A thread that observes the program from outside until the recording ends.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{self, JoinHandle};

/// Whether the recording has ended.
pub type IsDone<'a> = &'a dyn Fn() -> bool;

#[derive(Debug)]
pub struct Observer<T> {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<T>,
}

impl<T: Default + Send + 'static> Observer<T> {
    pub fn start(watch: impl FnOnce(IsDone<'_>) -> T + Send + 'static) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        Self { is_done, thread: thread::spawn(move || watch(&|| done.load(Ordering::Acquire))) }
    }

    /// Stops the thread and returns its observations.
    pub fn finish(self) -> T {
        self.is_done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}
