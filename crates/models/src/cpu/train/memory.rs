//! What a trainer on the CPU needs, before it allocates anything.

use super::{attention::tile_bytes, steps::sums_bytes};
use crate::cpu::memory::{SMALL_BYTES, thread_bytes};
use crate::size::{product, sum};
use crate::{Attention, Config, TrainOptions};

/// Bytes of the heap that a trainer needs at most.
pub fn needed_train_bytes(config: &Config, options: &TrainOptions, threads: usize) -> u64 {
    let widest =
        [config.hidden, config.ffn.saturating_mul(2), config.heads.saturating_mul(3).saturating_mul(config.head_dim)];
    let sums = widest.into_iter().map(sums_bytes).max().unwrap_or(0);
    let rows = options.batch.saturating_mul(options.tokens);
    let heads = match options.attention {
        // A head's keys are summed in f32.
        Attention::Naive => product(&[options.tokens, config.head_dim, 4]),
        Attention::Dense => tile_bytes(options.tokens, config.head_dim),
    };
    let threads = thread_bytes(config, options.dtype, rows).saturating_add(heads).saturating_mul(threads.max(1) as u64);
    sum([SMALL_BYTES, config.train_need(options).total(), sums, threads])
}
