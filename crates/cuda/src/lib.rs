//! CUDA access with minimal measurement overhead: device time, memory, graphs, kernels, and GPU properties.
//!
//! The only crate that uses cudarc. Nothing is needed at build time: every library is loaded on first use, and
//! [`Device::open`] reports why there is no GPU.

mod blas;
mod cache;
mod clock;
mod compile_error;
mod context;
pub mod cupti;
pub mod decode;
mod device;
mod error;
mod events;
mod graph;
mod kernel;
mod kernels;
mod launch;
pub mod library;
mod memory;
mod moment;
pub mod nn;
pub mod nvml;
pub mod nvrtc;
pub mod nvtx;
mod region;
mod slice;
mod stamps;
mod stream;

pub use self::{
    blas::{Batch, Blas, Element, Matrices, Sizes},
    cache::{Cache, Key},
    clock::{DRIFT_ONE_IN, EVENT_RESOLUTION_NANOS, EventClock},
    compile_error::{CompileError, Problem},
    device::{CUDA_NEEDED, Device, DeviceFacts, device_count},
    error::{CudaError, Done, Failure, Unavailable},
    graph::Graph,
    kernel::Module,
    kernels::{BASICS, Kernels},
    memory::{Buffer, Free, Peak, Pinned},
    moment::Moment,
    region::Region,
    slice::{Rows, Slice, SliceMut},
    stamps::{StampCapacity, StampedGraph, Stamper},
    stream::Stream,
};
