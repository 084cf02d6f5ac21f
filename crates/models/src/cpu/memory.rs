//! The memory of a decoder on the CPU, predicted before anything is allocated.

use super::attention::{Span, naive_bytes};
use super::panels::{block_columns, panel_bytes};
use super::product::{BLOCKS_BYTES, FEW, part_columns, workspace_bytes};
use super::{model::layer_bytes, pass::Sizes};
use crate::attention::{CPU_TILING, Layout};
use crate::tensors::{product, sum};
use crate::{
    Attention, CacheCapacity, Config, Dtype, Offload, Options, decoder::cache::grown_capacity,
    decoder::layers::LinearAt, rope::RopeTable,
};

/// Workspace of a thread for products and tiles of attention, in addition to that of `gemm`.
pub(crate) const PACKED_BYTES: u64 = 1 << 20;

/// Small allocations that are not counted one by one: threads, lists of layers, RoPE frequencies.
pub(crate) const SMALL_BYTES: u64 = 1 << 20;

/// Which passes are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Logits of every position, without the cache.
    Forward,
    /// Prefill and steps: logits of the last position.
    Cached,
}

/// The most heap bytes of a decoder for passes of this many tokens per sequence after at most `start` cached ones. With 0
/// threads, what stays allocated between passes.
pub fn needed_bytes(
    config: &Config,
    options: &Options,
    pass: Pass,
    [start, tokens]: [usize; 2],
    threads: usize,
) -> u64 {
    let (bytes, positions) = (options.dtype.bytes(), start.saturating_add(tokens));
    let span = Span::new(config, options.batch, tokens, start);
    let rows = match pass {
        Pass::Forward => options.batch.saturating_mul(tokens),
        Pass::Cached => options.batch,
    };
    let buffers = Sizes::new(config, options.attention, &span, rows).numbers();
    let layout = options.kept.as_ref().map_or(0, |kept| Layout::most_bytes(kept, tokens, CPU_TILING));
    let blocks = match options.attention {
        Attention::Naive => product_bytes(naive_bytes(options.dtype, positions, config.head_dim)),
        Attention::Dense => 0,
    };
    let thread = thread_bytes(config, options.dtype, options.batch.saturating_mul(tokens), threads).max(blocks);
    sum([
        SMALL_BYTES,
        layout,
        kept_bytes(config, options.dtype, options.offload.as_ref(), config.weight_bytes(options.dtype)),
        cache_bytes(config, options, pass, positions),
        buffers.saturating_mul(bytes),
        RopeTable::bytes(config, positions),
        thread.saturating_mul(threads as u64),
    ])
}

/// Bytes of weights, given those of all layers resident.
pub(super) fn kept_bytes(config: &Config, dtype: Dtype, offload: Option<&Offload>, all: u64) -> u64 {
    offload.map_or(all, |offload| offload.weight_bytes(config, dtype, all, layer_bytes(config, dtype)))
}

/// Bytes of the cache at its largest capacity.
fn cache_bytes(config: &Config, options: &Options, pass: Pass, tokens: usize) -> u64 {
    let capacity = match (options.capacity, pass) {
        (CacheCapacity::Static(capacity), _) => capacity.min(config.context),
        (CacheCapacity::Growing, Pass::Forward) => 0,
        (CacheCapacity::Growing, Pass::Cached) => grown_capacity(tokens, config.context),
    };
    config.kv_bytes_per_token(options.dtype).saturating_mul(product(&[options.batch, capacity]))
}

/// Workspace per thread for the products of layers and head with this many rows.
pub(super) fn thread_bytes(config: &Config, dtype: Dtype, rows: usize, threads: usize) -> u64 {
    let products = [LinearAt::Qkv(0), LinearAt::Output(0), LinearAt::GateUp(0), LinearAt::Down(0), LinearAt::Head];
    let packed = products.map(|at| {
        let [outputs, depth] = at.shape(config);
        let columns = if rows > FEW { block_columns(threads, outputs) } else { part_columns(threads, [rows, outputs]) };
        let is_quantised = dtype == Dtype::Fp8 && at != LinearAt::Head;
        let dequantised = if is_quantised { product(&[columns, depth]).saturating_mul(dtype.bytes()) } else { 0 };
        panel_bytes(dtype, rows, depth, threads).saturating_add(dequantised)
    });
    product_bytes(packed.into_iter().max().unwrap_or(0))
}

/// Workspace per thread for products with this much packed memory.
pub(super) fn product_bytes(packed: u64) -> u64 {
    workspace_bytes().saturating_add(PACKED_BYTES).saturating_add(packed)
}

/// Workspace per thread for products of two activations: gradients and stored scores.
pub(crate) fn blocks_bytes(dtype: Dtype) -> u64 {
    product_bytes(if dtype == Dtype::F32 { 0 } else { BLOCKS_BYTES })
}
