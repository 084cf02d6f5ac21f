//! A request to stop, which may arrive at any time.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};

type Wake = Box<dyn Fn() + Send>;

/// Whether a stop was requested; clones share the state.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    asked: AtomicBool,
    wake: Mutex<Option<Wake>>,
}

impl Interrupt {
    /// No stop was requested yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests a stop after the current iteration.
    pub fn ask(&self) {
        self.0.asked.store(true, Relaxed);
        if let Some(wake) = &*self.wake() {
            wake();
        }
    }

    /// Whether a stop was requested.
    pub fn is_requested(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    /// Calls `wake` when a stop is requested, so that a sleeping thread does not have to poll.
    pub fn on_ask(&self, wake: impl Fn() + Send + 'static) {
        *self.wake() = Some(Box::new(wake));
        // The request may have arrived just before.
        if self.is_requested()
            && let Some(wake) = &*self.wake()
        {
            wake();
        }
    }

    fn wake(&self) -> std::sync::MutexGuard<'_, Option<Wake>> {
        self.0.wake.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl std::fmt::Debug for Interrupt {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Interrupt").field(&self.is_requested()).finish()
    }
}
