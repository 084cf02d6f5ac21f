//! Attention of which only some pairs of a query and a key are computed, and what is needed to trust it.
//!
//! [`Kept`] says which pairs are meant, [`Layout`] brings them into tiles and gathered columns that a device computes
//! without looking at what is left out, [`CpuAttention`] computes with it on the CPU, and [`Reference`] says what should
//! come out, without the layout.

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
