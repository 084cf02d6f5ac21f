//! The built-in workloads, the CPU device, and what the machine can do at most.
//!
//! A workload predicts its memory before it allocates, checks its result before anything is timed and counts its work
//! from its shapes.

mod cpu;
mod crew;
mod devices;
mod element;
pub mod heap;
mod matmul;
mod memory;
mod product;
mod reference;

pub use self::{
    cpu::CpuDevice,
    devices::BuiltInDevices,
    heap::CountingHeap,
    matmul::{MATMUL_DTYPES, Matmul},
};
