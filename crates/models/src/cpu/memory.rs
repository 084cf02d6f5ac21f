//! What a decoder on the CPU needs, before it allocates anything.

use super::product::{BLOCKS_BYTES, WIDENED_BYTES};
use super::{attention::Span, model::layer_bytes, pass::Sizes, turned::turned_bytes};
use crate::attention::{CPU_TILING, Layout};
use crate::size::{product, sum};
use crate::{
    Config, Dtype, ModelError, Offload, Options, Room, StreamMode, decoder::cache::grown_capacity, most_resident,
    rope::RopeTable,
};

/// What a thread needs for a product and a tile of attention: a slab of `gemm` as large as a second-level cache, packed
/// columns, scores of a tile.
pub(crate) const THREAD_BYTES: u64 = 3 << 20;

/// What is small and not counted one by one: the threads, the lists of layers, the frequencies.
pub(crate) const SMALL_BYTES: u64 = 1 << 20;

/// Which passes are run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    /// Logits of every position, without the cache.
    Forward,
    /// Prefill and steps behind the cache: logits of the last position alone.
    Cached,
}

/// Bytes of the heap that a decoder needs at most to run passes of this many tokens per sequence, behind at most `start`
/// that are in the cache already.
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
    sum([
        SMALL_BYTES,
        layout,
        kept_bytes(config, options.dtype, options.offload.as_ref(), config.weight_bytes(options.dtype)),
        cache_bytes(config, options, pass, positions),
        buffers.saturating_mul(bytes),
        RopeTable::bytes(config, positions),
        thread_bytes(config, options.dtype, options.batch.saturating_mul(tokens)).saturating_mul(threads.max(1) as u64),
    ])
}

/// The largest number of resident layers that fits this many bytes, with the others offloaded as the options
/// say. Too few for any number are refused, with the least that is needed.
pub fn most_resident_layers(
    config: &Config,
    options: &Options,
    pass: Pass,
    tokens: [usize; 2],
    threads: usize,
    budget: u64,
) -> Result<usize, ModelError> {
    most_resident(config.layers, budget, |resident| {
        let offload = Some(with_resident(options.offload.as_ref(), resident));
        needed_bytes(config, &Options { offload, ..options.clone() }, pass, tokens, threads)
    })
}

/// The requested or default offloading with this many resident layers.
pub(super) fn with_resident(offload: Option<&Offload>, resident: usize) -> Offload {
    let usual = || Offload::new(StreamMode::default(), resident, "");
    offload.map_or_else(usual, |offload| Offload { resident, ..offload.clone() })
}

/// Bytes of weights, given `all` for a fully resident model.
pub(super) fn kept_bytes(config: &Config, dtype: Dtype, offload: Option<&Offload>, all: u64) -> u64 {
    offload.map_or(all, |offload| offload.weight_bytes(config, dtype, all, layer_bytes(config, dtype)))
}

/// Bytes of the cache: of a growing one the last room, and beside it what one layer had before.
fn cache_bytes(config: &Config, options: &Options, pass: Pass, tokens: usize) -> u64 {
    let room = match (options.room, pass) {
        (Room::Static(room), _) => room.min(config.context),
        (Room::Growing, Pass::Forward) => 0,
        (Room::Growing, Pass::Cached) => grown_capacity(tokens, config.context),
    };
    config.kv_bytes_per_token(options.dtype).saturating_mul(product(&[options.batch, room]))
}

/// What each thread needs for products with this many rows.
pub(super) fn thread_bytes(config: &Config, dtype: Dtype, rows: usize) -> u64 {
    let widest = config.hidden.max(config.ffn).max(config.heads.saturating_mul(config.head_dim));
    product_bytes(dtype, turned_bytes(rows, widest))
}

/// What each thread needs for products whose turned rows take this many bytes.
pub(super) fn product_bytes(dtype: Dtype, turned: u64) -> u64 {
    // A product needs the one or the other.
    let blocks = if dtype == Dtype::F32 { turned } else { turned.saturating_add(WIDENED_BYTES).max(BLOCKS_BYTES) };
    THREAD_BYTES.saturating_add(blocks)
}
