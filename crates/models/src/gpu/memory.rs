//! The memory of a decoder on a GPU, predicted before anything is allocated.

use laptime_cuda::nn::Gradients;

use super::sparse::{DENSE, GPU_TILING};
use super::{pass::is_fused, weights::layer_bytes};
use crate::tensors::{product, sum};
use crate::{
    Attention, CacheCapacity, Config, Dtype, Offload, Options, TrainOptions, TrainSizes, attention::Layout,
    parts::parts, rope::RopeTable,
};

/// The workspace of cuBLAS.
pub(super) const WORKSPACE_BYTES: u64 = 32 << 20;

/// Token IDs, positions, flags, and the padding between buffers, which are aligned to 512 bytes.
pub(super) const SMALL_BYTES: u64 = 2 << 20;

parts! {
    pub(super) struct Parts { x, normed, qkv, queries, attended, scores, gate_up, activated, logits, dequantised }
}

/// The sizes of the buffers of a pass, in elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PassSizes {
    pub rows: usize,
    pub parts: Parts<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Head {
    All,
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
        let parts = Parts {
            x: of(config.hidden),
            normed: of(config.hidden),
            qkv: of(qkv_width(config)),
            queries,
            attended: queries,
            scores,
            gate_up: of(config.ffn.saturating_mul(2)),
            activated: of(config.ffn),
            logits: seen.saturating_mul(config.vocab),
            dequantised: 0,
        };
        Self { rows, parts }.with_dequantised(config, options.dtype)
    }

    /// Adds a buffer for the largest dequantised matrix if the dtype is FP8.
    pub fn with_dequantised(self, config: &Config, dtype: Dtype) -> Self {
        let Config { hidden, ffn, heads, head_dim, .. } = *config;
        let wide = qkv_width(config).max(ffn.saturating_mul(2)).saturating_mul(hidden);
        let largest = wide.max(hidden.saturating_mul(ffn.max(heads.saturating_mul(head_dim))));
        let dequantised = if dtype == Dtype::Fp8 { largest } else { 0 };
        Self { parts: Parts { dequantised, ..self.parts }, ..self }
    }

    /// The sizes of a decode step. Fused kernels need fewer buffers.
    pub fn of_step(config: &Config, batch: usize) -> Self {
        let options = Options { batch, ..Options::new(Dtype::F32, CacheCapacity::Growing) };
        let Self { rows, parts } = Self::new(config, &options, 1, 0, Head::Last);
        let unfused = |numbers: usize| if is_fused(config, batch) { 0 } else { numbers };
        let (normed, gate_up) = (unfused(parts.normed), unfused(parts.gate_up));
        Self { rows, parts: Parts { normed, gate_up, queries: 0, ..parts } }
    }
}

pub(super) fn qkv_width(config: &Config) -> usize {
    config.heads.saturating_add(config.kv_heads.saturating_mul(2)).saturating_mul(config.head_dim)
}

fn step_bytes(config: &Config, options: &Options, is_forward: bool) -> u64 {
    let mut sizes = PassSizes::of_step(config, options.batch);
    if !is_fused(config, options.batch) {
        sizes = sizes.with_dequantised(config, options.dtype);
    }
    let numbers = sizes.parts.numbers();
    let chosen = (options.batch as u64).saturating_mul(4 * 4096);
    if is_forward { chosen } else { numbers.saturating_mul(options.dtype.bytes()).saturating_add(chosen) }
}

/// Bytes of weights on the device, given those of all layers resident.
pub(super) fn kept_bytes(config: &Config, dtype: Dtype, offload: Option<&Offload>, all: u64) -> u64 {
    let fp8 = (dtype == Dtype::Fp8).then_some(config.weight_scales);
    let buffer = || layer_bytes(&config.layer_tensors(0), dtype.bytes(), fp8) as u64;
    offload.map_or(all, |offload| offload.weight_bytes(config, dtype, all, buffer()))
}

/// Bytes of weights, cache and buffers for passes over this many tokens per sequence.
///
/// Offloaded layers count with their buffers: one in modes `sync` and `pinned`, two in others. Their cache is on the device.
pub fn needed_bytes(config: &Config, options: &Options, tokens: usize, is_forward: bool) -> u64 {
    let number = options.dtype.bytes();
    let positions = match options.capacity {
        CacheCapacity::Static(positions) => positions,
        CacheCapacity::Growing => tokens,
    };
    let positions = if is_forward { tokens } else { positions };
    // A forward pass has the keys and values of one layer at a time.
    let per_token = config.kv_bytes_per_token(options.dtype);
    let kept = if is_forward { per_token / (config.layers as u64).max(1) } else { per_token };
    let cache = kept.saturating_mul(product(&[positions, options.batch]));
    let head = if is_forward { Head::All } else { Head::Last };
    let pass = PassSizes::new(config, options, tokens, positions, head).parts.numbers().saturating_mul(number);
    let rotation = RopeTable::bytes(config, positions);
    let layout = Layout::most_bytes(options.kept.as_ref().unwrap_or(&DENSE), tokens, GPU_TILING);
    sum([
        kept_bytes(config, options.dtype, options.offload.as_ref(), config.weight_bytes(options.dtype)),
        cache,
        pass,
        layout,
        step_bytes(config, options, is_forward),
        rotation,
        WORKSPACE_BYTES,
        SMALL_BYTES,
    ])
}

/// Bytes of training on a GPU.
pub fn train_needed_bytes(config: &Config, options: &TrainOptions) -> u64 {
    let sizes = TrainSizes::new(config, options);
    // In addition to other trainers: the gradients of heads, and the output of attention by head.
    let numbers = sizes.qkv.saturating_add(sizes.attended) as u64;
    let more = numbers.saturating_mul(options.dtype.bytes()).saturating_add(WORKSPACE_BYTES);
    let widest = u32::try_from(widest_sum(config)).unwrap_or(u32::MAX);
    let sums = Gradients::<f32>::scratch_length_on_hopper(widest) as u64;
    sum([config.train_need(options).total(), more, sums.saturating_mul(4), SMALL_BYTES])
}

/// The most columns of a sum over rows.
pub(super) fn widest_sum(config: &Config) -> usize {
    let Config { hidden, ffn, head_dim, .. } = *config;
    [hidden, ffn.saturating_mul(2), qkv_width(config), head_dim.saturating_mul(2)].into_iter().max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::StreamMode;

    fn offload(resident: usize, mode: StreamMode) -> Offload {
        Offload::new(mode, resident, "")
    }

    #[test]
    fn offloaded_layers_count_with_their_buffers() {
        let config = Config::from_preset("Qwen2.5-7B").unwrap();
        let (all, layer) = (config.weight_bytes(Dtype::Bf16), 466_115_584);
        let bytes = |resident, mode| kept_bytes(&config, Dtype::Bf16, Some(&offload(resident, mode)), all);
        assert_eq!(bytes(28, StreamMode::Wrap), all);
        assert_eq!(bytes(20, StreamMode::Sync), all - 7 * layer);
        assert_eq!(bytes(20, StreamMode::Pinned), all - 7 * layer);
        assert_eq!(bytes(20, StreamMode::Wrap), all - 6 * layer);
        assert_eq!(bytes(0, StreamMode::Batched), all - 26 * layer);
    }

    #[test]
    fn quantised_weights_need_half_and_a_dequantised_matrix_without_fused_kernels() {
        let config = Config::from_preset("Qwen2.5-7B").unwrap();
        let need = |dtype, batch| {
            let options = Options { batch, ..Options::new(dtype, CacheCapacity::Static(64)) };
            needed_bytes(&config, &options, 32, false)
        };
        let saved = config.weight_bytes(Dtype::Bf16) - config.weight_bytes(Dtype::Fp8);
        let gate_up = 2 * 2 * 18_944 * 3584;
        assert_eq!(need(Dtype::Bf16, 1) - need(Dtype::Fp8, 1), saved - gate_up);
        assert_eq!(need(Dtype::Bf16, 16) - need(Dtype::Fp8, 16), saved - 2 * gate_up);
    }
}
