//! Bytes that a decoder needs on a GPU, known before anything is allocated.

use super::sparse::GPU_TILING;
use crate::{Attention, Config, Options, Room, TrainOptions, TrainSizes, attention::Layout};

/// What cuBLAS has for itself.
pub(super) const WORKSPACE_BYTES: u64 = 32 << 20;

/// Numbers of each buffer that a pass over so many tokens a sequence needs, whatever the layer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PassSizes {
    /// Rows of all sequences.
    pub rows: usize,
    /// The residual stream, and again as many for what is normed.
    pub hidden: usize,
    /// Queries, keys and values as one product gives them.
    pub qkv: usize,
    /// Queries by head, and what attention makes of them.
    pub queries: usize,
    /// Scores of naive attention.
    pub scores: usize,
    /// Gates and what they let through.
    pub gate_up: usize,
    /// What went through the gates.
    pub activated: usize,
    /// Logits of the rows that the head sees.
    pub logits: usize,
}

/// Rows that the head sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    /// Every position.
    All,
    /// The last of each sequence.
    Last,
}

impl PassSizes {
    pub fn new(config: &Config, options: &Options, tokens: usize, keys: usize, head: Head) -> Self {
        let rows = options.batch.saturating_mul(tokens);
        let of = |width: usize| rows.saturating_mul(width);
        let queries = of(config.heads.saturating_mul(config.head_dim));
        let scores = match options.attention {
            Attention::Naive => of(config.heads).saturating_mul(keys),
            Attention::Dense => 0,
        };
        let seen = if head == Head::All { rows } else { options.batch };
        Self {
            rows,
            hidden: of(config.hidden),
            qkv: of(qkv_width(config)),
            queries,
            scores,
            gate_up: of(config.ffn.saturating_mul(2)),
            activated: of(config.ffn),
            logits: seen.saturating_mul(config.vocab),
        }
    }

    /// Of all buffers together.
    pub fn numbers(&self) -> u64 {
        let Self { hidden, qkv, queries, scores, gate_up, activated, logits, .. } = *self;
        let sum = [hidden, hidden, qkv, queries, queries, scores, gate_up, activated, logits];
        sum.into_iter().fold(0_u64, |sum, numbers| sum.saturating_add(numbers as u64))
    }
}

/// Numbers of a token's queries, keys and values.
pub(super) fn qkv_width(config: &Config) -> usize {
    config.heads.saturating_add(config.kv_heads.saturating_mul(2)).saturating_mul(config.head_dim)
}

/// Bytes of what goes from kernel to kernel in a step, and of the tokens that it chooses.
fn step_bytes(config: &Config, options: &Options, is_forward: bool) -> u64 {
    let widths = [config.hidden.saturating_mul(2), qkv_width(config), config.heads.saturating_mul(config.head_dim)];
    let widths = widths.into_iter().chain([config.ffn.saturating_mul(3), config.vocab]);
    let numbers = widths.fold(0_usize, usize::saturating_add).saturating_mul(options.batch) as u64;
    let chosen = (options.batch as u64).saturating_mul(4 * 4096);
    if is_forward { chosen } else { numbers.saturating_mul(options.dtype.bytes()).saturating_add(chosen) }
}

/// Bytes of weights, cache and the buffers of a pass over so many tokens a sequence: what a case needs.
pub fn needed_bytes(config: &Config, options: &Options, tokens: usize, is_forward: bool) -> u64 {
    let number = options.dtype.bytes();
    let positions = match options.room {
        Room::Static(positions) => positions,
        Room::Growing => tokens,
    };
    let positions = if is_forward { tokens } else { positions };
    // A forward pass keeps the keys and values of one layer at a time.
    let per_token = config.kv_bytes_per_token(options.dtype);
    let kept = if is_forward { per_token / (config.layers as u64).max(1) } else { per_token };
    let cache = kept.saturating_mul(positions as u64).saturating_mul(options.batch as u64);
    let head = if is_forward { Head::All } else { Head::Last };
    let pass = PassSizes::new(config, options, tokens, positions, head).numbers().saturating_mul(number);
    let rotation = (positions as u64).saturating_mul(config.head_dim as u64).saturating_mul(4);
    let layout = options.kept.as_ref().map_or(0, |kept| Layout::most_bytes(kept, tokens, GPU_TILING));
    [
        config.weight_bytes(options.dtype),
        cache,
        pass,
        layout,
        step_bytes(config, options, is_forward),
        rotation,
        WORKSPACE_BYTES,
    ]
    .into_iter()
    .fold(0, u64::saturating_add)
}

/// Bytes that training with these options needs on a GPU.
pub fn train_needed_bytes(config: &Config, options: &TrainOptions) -> u64 {
    let sizes = TrainSizes::new(config, options);
    // Beside what every trainer has: the gradients of heads, by head and packed, and what attention gives by head.
    let numbers = sizes.qkv.saturating_add(sizes.attended) as u64;
    let more = numbers.saturating_mul(options.dtype.bytes()).saturating_add(WORKSPACE_BYTES);
    config.train_need(options).total().saturating_add(more)
}
