//! The built-in workloads, the CPU device, and peak measurements.
//!
//! A workload predicts its memory before it allocates, checks its result before anything is timed and counts its work
//! from its shapes. [`measure_peaks`] runs the same workloads to find the peaks of a machine.

mod attention;
mod axis;
mod backend;
mod c2c;
mod chain;
mod check;
mod copy;
mod cpu;
mod crew;
mod devices;
#[cfg(test)]
#[path = "tests/difference.rs"]
mod difference;
pub mod extras;
#[cfg(feature = "cuda")]
pub mod gpu;
pub mod heap;
mod matmul;
mod memory;
mod model;
mod offload;
mod peaks;
mod product;
mod request;
mod tts;

use std::sync::Arc;

use laptime_bench::{Interrupt, Workload};

use self::extras::{Extras, Screen};
pub use self::{
    attention::Attention,
    c2c::CacheToCache,
    chain::Chain,
    copy::{COPY_OPS, MemoryCopy},
    cpu::CpuDevice,
    devices::{BuiltInDevices, GpuFound, gpus, peak_gpu},
    heap::CountingHeap,
    matmul::{MATMUL_DTYPES, Matmul},
    model::{Model, folders_without_weights},
    offload::OffloadedLayers,
    peaks::{PeakProgress, PeakSearch, measure_peaks, peaks_below},
    tts::TextToSpeech,
};
use self::{attention::AttentionExtras, c2c::C2cExtras, model::ModelExtras, offload::OffloadExtras, tts::TtsExtras};

/// The built-in workloads in listing order, and their extras. An interrupt ends a generation with offloaded layers, whose
/// progress is printed on the screen.
pub fn built_in(interrupt: &Interrupt, screen: Arc<dyn Screen>) -> BuiltIn {
    let (offload, offload_extras) = OffloadExtras::with_workload(interrupt.clone(), screen);
    let extras: Vec<Box<dyn Extras>> = vec![
        Box::new(ModelExtras),
        Box::new(AttentionExtras),
        Box::new(C2cExtras),
        Box::new(TtsExtras),
        Box::new(offload_extras),
    ];
    BuiltIn { workloads: workloads_with(offload), extras }
}

/// The built-in workloads and their extras.
#[allow(missing_docs, reason = "the type says what they are")]
pub struct BuiltIn {
    pub workloads: Vec<Box<dyn Workload>>,
    pub extras: Vec<Box<dyn Extras>>,
}

/// The built-in workloads, in listing order.
pub fn workloads() -> Vec<Box<dyn Workload>> {
    workloads_with(OffloadedLayers::new())
}

fn workloads_with(offload: OffloadedLayers) -> Vec<Box<dyn Workload>> {
    vec![
        Box::new(Matmul),
        Box::new(MemoryCopy),
        Box::new(Chain),
        Box::new(Model::new()),
        Box::new(Attention),
        Box::new(CacheToCache),
        Box::new(TextToSpeech),
        Box::new(offload),
    ]
}

/// Whether this build has the CUDA device.
pub const HAS_CUDA: bool = cfg!(feature = "cuda");
