//! The wish to stop, which comes from outside at any moment.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicBool, Ordering::Relaxed},
};

type Wake = Box<dyn Fn() + Send>;

/// Whether somebody asked to stop; clones share the answer.
#[derive(Clone, Default)]
pub struct Interrupt(Arc<Shared>);

#[derive(Default)]
struct Shared {
    asked: AtomicBool,
    wake: Mutex<Option<Wake>>,
}

impl Interrupt {
    /// Nobody has asked yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Asks to stop after the current take.
    pub fn ask(&self) {
        self.0.asked.store(true, Relaxed);
        if let Some(wake) = &*self.wake() {
            wake();
        }
    }

    /// Whether somebody asked.
    pub fn is_asked(&self) -> bool {
        self.0.asked.load(Relaxed)
    }

    /// Calls this when somebody asks, so that one who sleeps need not wake up to look.
    pub fn on_ask(&self, wake: impl Fn() + Send + 'static) {
        *self.wake() = Some(Box::new(wake));
        // The wish may have come just before.
        if self.is_asked()
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
        f.debug_tuple("Interrupt").field(&self.is_asked()).finish()
    }
}
