//! Sparse and dense attention.
//!
//! [`Kept`] defines which pairs of queries and keys are kept, [`Layout`] arranges them as tiles and gathered columns,
//! [`CpuAttention`] computes them on the CPU, and [`Reference`] checks the output without a layout.

mod block_mask;
mod columns;
mod cpu;
mod kept;
mod layout;
mod memory;
mod pattern;
mod reference;
mod sizes;

pub use crate::cpu::blocks::executed;

pub use self::{
    block_mask::{BUILT_IN_MASK, BlockMask},
    cpu::{CPU_TILING, CpuAttention, cpu_attention, needed_bytes},
    kept::{Kept, Kind, Rule},
    layout::{Layout, Tiling},
    pattern::{PRESETS, Pattern, Random, SHARED_ROWS},
    reference::{Accuracy, Reference, Sampled, tolerance},
    sizes::{AttentionSizes, Input, Synthetic},
};
