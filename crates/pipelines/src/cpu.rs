//! The CPU as a device.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::{fs, time::Instant};

use laptime_bench::{AtomicDepth, Depth, Device, Nanos, OutOfMemory};

use crate::heap;
use crate::memory::available_bytes;

/// The name of the CPU device, for users and in results.
pub const CPU: &str = "cpu";

/// The CPU. Work is complete when a call returns, and memory is the heap.
#[derive(Debug)]
pub struct CpuDevice {
    origin: Instant,
    /// A peak that was never reset is the process's, not the case's.
    resident_was_reset: AtomicBool,
    depth: AtomicDepth,
}

impl CpuDevice {
    /// A device whose time starts now.
    pub fn new() -> Self {
        Self { origin: Instant::now(), resident_was_reset: AtomicBool::new(false), depth: AtomicDepth::default() }
    }
}

impl Default for CpuDevice {
    fn default() -> Self {
        Self::new()
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &str {
        CPU
    }

    /// There is nothing to wait for: the threads of a workload are joined before its call returns.
    fn synchronise(&self) -> anyhow::Result<()> {
        Ok(())
    }

    fn now(&self) -> Nanos {
        Nanos(u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn reset_peak(&self) {
        laptime_models::cpu::settle();
        heap::reset_peak();
        // `5` sets the highest resident size to the present one (proc(5)); nothing else is cleared.
        self.resident_was_reset.store(fs::write("/proc/self/clear_refs", "5").is_ok(), Relaxed);
    }

    fn peak_bytes(&self) -> Option<u64> {
        heap::peak_since_reset()
    }

    fn peak_rss_bytes(&self) -> Option<u64> {
        if !self.resident_was_reset.load(Relaxed) {
            return None;
        }
        kib(&fs::read_to_string("/proc/self/status").ok()?, "VmHWM:")
    }

    fn available_bytes(&self) -> Option<u64> {
        available_bytes()
    }

    fn out_of_memory(&self, error: &anyhow::Error) -> Option<OutOfMemory> {
        crate::backend::out_of_memory(error)
    }

    fn set_depth(&self, depth: Depth) {
        self.depth.set(depth);
    }

    fn depth(&self) -> Depth {
        self.depth.get()
    }
}

/// The value of a line such as `VmHWM:    1924 kB`, in bytes.
fn kib(text: &str, name: &str) -> Option<u64> {
    let value = text.lines().find_map(|line| line.strip_prefix(name))?;
    value.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_time_is_monotone() {
        let device = CpuDevice::new();
        let times: Vec<Nanos> = (0..1000).map(|_| device.now()).collect();
        assert!(times.is_sorted());
    }

    #[test]
    fn a_heap_that_is_not_installed_has_no_peak() {
        let device = CpuDevice::new();
        device.reset_peak();
        assert_eq!(device.peak_bytes(), None);
    }

    #[test]
    fn a_resident_peak_that_was_not_reset_is_unknown() {
        assert_eq!(CpuDevice::new().peak_rss_bytes(), None);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_available_memory_is_known() {
        assert!(CpuDevice::new().available_bytes().is_some_and(|bytes| bytes > 0));
    }
}
