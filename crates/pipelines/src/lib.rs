//! The built-in workloads, the CPU device, and what the machine can do at most.
//!
//! A workload predicts its memory before it allocates, checks its result before anything is timed and counts its work
//! from its shapes. [`measure_peaks`] runs the same workloads to find what a machine reaches.

mod attention;
mod c2c;
mod caches;
mod chain;
mod copy;
mod cpu;
mod crew;
mod devices;
#[cfg(test)]
mod difference;
mod element;
#[cfg(feature = "cuda")]
pub mod gpu;
mod gpus;
pub mod heap;
mod matmul;
mod memory;
mod model;
mod offload;
mod peaks;
mod product;
mod reference;
mod traffic;
mod tts;

pub use self::{
    attention::Attention,
    c2c::CacheToCache,
    chain::Chain,
    copy::{COPY_OPS, MemoryCopy},
    cpu::CpuDevice,
    devices::BuiltInDevices,
    gpus::{GpuFound, gpus, peak_gpu},
    heap::CountingHeap,
    matmul::{MATMUL_DTYPES, Matmul},
    model::{Model, folders_without_weights},
    offload::{BudgetTooSmall, Generated, OffloadPlan, OffloadedLayers, Visits, Watch},
    peaks::{PeakProgress, PeakSearch, measure_peaks, peaks_below},
    tts::TextToSpeech,
};

/// The built-in workloads, in the order in which they are listed.
pub fn workloads() -> Vec<Box<dyn laptime_bench::Workload>> {
    vec![
        Box::new(Matmul),
        Box::new(MemoryCopy),
        Box::new(Chain),
        Box::new(Model::new()),
        Box::new(Attention),
        Box::new(CacheToCache),
        Box::new(TextToSpeech),
        Box::new(OffloadedLayers::new()),
    ]
}

/// Whether this build has the CUDA device.
pub const HAS_CUDA: bool = cfg!(feature = "cuda");
