//! What fusers on the CPU need, before they allocate anything.

use super::{
    super::{
        memory::{SMALL_BYTES, THREAD_BYTES},
        product::{BLOCKS_BYTES, WIDENED_BYTES},
        turned::turned_bytes,
    },
    path::Sizes,
};
use crate::{
    Dtype,
    fuser::{FuseOptions, FuserConfig},
};

/// Bytes of the heap that fusers need at most, all gates open, to fuse this many tokens of this many sequences at a time.
pub fn needed_fuser_bytes(
    configs: &[FuserConfig],
    options: &FuseOptions,
    [batch, tokens]: [usize; 2],
    threads: usize,
) -> u64 {
    let rows = batch.saturating_mul(tokens);
    let weights = configs.iter().map(|config| config.weight_bytes(options.dtype)).fold(0, u64::saturating_add);
    let most = |size: &dyn Fn(&FuserConfig) -> u64| configs.iter().map(size).max().unwrap_or(0);
    let buffers = most(&|config| Sizes::new(config, rows).numbers() as u64).saturating_mul(options.dtype.bytes());
    let parts = [
        SMALL_BYTES,
        weights,
        buffers,
        most(&|config| cache_copies(config, rows)),
        most(&|config| thread_bytes(config, options.dtype, rows)).saturating_mul(threads.max(1) as u64),
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Keys and values of a layer in f32: the receiver's before and after, the sharer's, and the one path of
/// the receiver that is computed on.
fn cache_copies(config: &FuserConfig, rows: usize) -> u64 {
    let widths = config.receiver.width().saturating_mul(5).saturating_add(config.sharer.width().saturating_mul(2));
    (widths as u64).saturating_mul(rows as u64).saturating_mul(4)
}

/// What each thread needs for products with this many rows.
fn thread_bytes(config: &FuserConfig, dtype: Dtype, rows: usize) -> u64 {
    let joined = config.sharer.width().saturating_add(config.receiver.width());
    let turned = turned_bytes(rows, joined.max(config.hidden).max(config.intermediate));
    // A product needs the one or the other.
    let blocks = if dtype == Dtype::F32 { turned } else { turned.saturating_add(WIDENED_BYTES).max(BLOCKS_BYTES) };
    THREAD_BYTES.saturating_add(blocks)
}
