//! A device in numbers alone: its clock moves only when told.

use std::sync::{
    Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use laptime_trace::Nanos;

use crate::workload::Device;

/// A device for tests with exact times and sizes.
#[derive(Debug, Default)]
pub struct Simulated {
    clock: AtomicU64,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    used: u64,
    peak: u64,
    size: Option<u64>,
}

impl Simulated {
    /// A device at time zero, with memory without end.
    pub fn new() -> Self {
        Self::default()
    }

    /// A device with this much memory.
    pub fn with_memory(bytes: u64) -> Self {
        let device = Self::default();
        device.memory().size = Some(bytes);
        device
    }

    /// Lets time go on.
    pub fn advance(&self, length: Nanos) {
        self.clock.fetch_add(length.0, Relaxed);
    }

    /// Uses memory and gives it back.
    pub fn use_bytes(&self, bytes: u64) {
        let mut memory = self.memory();
        memory.used += bytes;
        memory.peak = memory.peak.max(memory.used);
        memory.used -= bytes;
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Device for Simulated {
    fn name(&self) -> &str {
        "simulated"
    }

    fn synchronise(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(self.clock.load(Relaxed))
    }

    fn reset_peak(&self) {
        let mut memory = self.memory();
        memory.peak = memory.used;
    }

    fn peak_bytes(&self) -> Option<u64> {
        Some(self.memory().peak)
    }

    fn available_bytes(&self) -> Option<u64> {
        let memory = self.memory();
        memory.size.map(|size| size - memory.used)
    }
}
