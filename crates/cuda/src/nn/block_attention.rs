//! Attention over blocks: what is not kept is not computed, and the scores are never stored.

use std::{f32::consts::LOG2_E, marker::PhantomData};

use super::attention::{LARGEST_HEAD, any_shared_bytes, is_for_tensor_cores};
use super::{BLOCK_ATTENTION, BLOCK_ATTENTION_HOPPER, BLOCK_ATTENTION_TENSOR, HeadSizes, of_head};
use crate::{
    kernel::{MappedRows, TensorMap},
    launch::*,
    nvrtc::Request,
};

mod layout;

pub use self::layout::{BlockLayout, LayoutParts, Rule, TILING, Tiling};

const DOING: &str = "attending to blocks";
/// The architecture that warpgroups' products are compiled for.
const HOPPER: &str = "sm_90a";
const THREADS: u32 = 256;
/// Tiles of keys and values that the kernel for warpgroups keeps.
const STAGES: u32 = 4;
/// Bytes of barriers and rows of columns that it has behind them.
const BOARD_BYTES: u32 = 6 << 10;

/// What a kernel multiplies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Tensor cores by warpgroups, as Hopper has them: bf16 and f16, heads of 64 or 128.
    Warpgroups,
    /// Tensor cores by warps: bf16 and f16, heads of a multiple of 16 up to 128.
    TensorCores,
    /// No tensor cores: any type, any head.
    Plain,
}

impl Engine {
    /// All of them, the fastest first.
    pub const ALL: [Self; 3] = [Self::Warpgroups, Self::TensorCores, Self::Plain];

    /// The kernel's name.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Warpgroups => "block_attention_hopper",
            Self::TensorCores => "block_attention_tensor",
            Self::Plain => "block_attention",
        }
    }

    /// Whether it supports this head size and dtype width on a device of this capability.
    pub fn serves(self, head_dim: u32, bytes: usize, capability: (u32, u32)) -> bool {
        match self {
            Self::Warpgroups => bytes == 2 && is_for_warpgroups(head_dim) && capability == (9, 0),
            Self::TensorCores => bytes == 2 && is_for_tensor_cores(head_dim) && capability.0 >= 8,
            Self::Plain => (1..=LARGEST_HEAD).contains(&head_dim),
        }
    }

    fn shared_bytes(self, head_dim: u32) -> u32 {
        match self {
            // Stages begin at a multiple of 1024.
            Self::Warpgroups => 1024 + STAGES * 4 * TILING.keys * head_dim + BOARD_BYTES,
            Self::TensorCores => 4 * TILING.keys * (2 * head_dim + 16),
            Self::Plain => any_shared_bytes(head_dim),
        }
    }

    fn fastest<T>(device: &Device, head_dim: u32) -> Self {
        let serves = |engine: &Self| engine.serves(head_dim, size_of::<T>(), device.facts().capability);
        Self::ALL.into_iter().find(serves).unwrap_or(Self::Plain)
    }

    fn request<T: Element>(self, head_dim: u32) -> Request {
        let typed = |source| Request::typed::<T>(source, &of_head(head_dim));
        match self {
            Self::Warpgroups => typed(BLOCK_ATTENTION_HOPPER).on(HOPPER),
            Self::TensorCores => typed(BLOCK_ATTENTION_TENSOR),
            Self::Plain => typed(BLOCK_ATTENTION),
        }
    }

    fn load<T: Element>(self, device: &Device, cache: &Cache, head_dim: u32) -> Result<Kernel, CudaError> {
        self.request::<T>(head_dim).load(device, cache)?.kernel_with(self.kernel(), self.shared_bytes(head_dim))
    }
}

/// Whether there is a kernel that uses warpgroups' products for heads of this size, in bf16 and f16.
fn is_for_warpgroups(head_dim: u32) -> bool {
    head_dim == 64 || head_dim == 128
}

/// Attention over a [`BlockLayout`] with grouped queries, for heads of one size and numbers of one type.
#[derive(Debug)]
pub struct BlockAttention<T> {
    engine: Engine,
    kernel: Kernel,
    /// What serves addresses that are no multiple of 16.
    plain: Kernel,
    head_dim: u32,
    of: PhantomData<T>,
}

impl<T: Element> BlockAttention<T> {
    /// What [`Self::load`] loads.
    pub fn requests(device: &Device, head_dim: u32) -> [Request; 2] {
        [Engine::Plain, Engine::fastest::<T>(device, head_dim)].map(|engine| engine.request::<T>(head_dim))
    }

    /// Loads the fastest kernel for heads of this size, from the cache where it is there.
    pub fn load(device: &Device, cache: &Cache, head_dim: u32) -> Result<Self, CudaError> {
        Self::load_with(device, cache, head_dim, Engine::fastest::<T>(device, head_dim))
    }

    /// The same with a given engine.
    pub fn load_with(device: &Device, cache: &Cache, head_dim: u32, engine: Engine) -> Result<Self, CudaError> {
        expect("loading block attention", (1..=LARGEST_HEAD).contains(&head_dim), "the head size must be 1 to 256")?;
        let is_served = engine.serves(head_dim, size_of::<T>(), device.facts().capability);
        expect("loading block attention", is_served, "the engine does not support this head size or dtype")?;
        let plain = Engine::Plain.load::<T>(device, cache, head_dim)?;
        let kernel = if engine == Engine::Plain { plain.clone() } else { engine.load::<T>(device, cache, head_dim)? };
        Ok(Self { engine, kernel, plain, head_dim, of: PhantomData })
    }

    /// What it multiplies with, where addresses are multiples of 16.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Puts attention of `q`, [batch, heads, tokens, head_dim], over the caches `k` and `v`,
    /// [batch, kv_heads, capacity, head_dim], into `out`, [batch, tokens, heads * head_dim].
    ///
    /// Of the caches, the first `tokens` positions are taken. Scores are divided by the root of `head_dim`. A query that
    /// keeps no key gives zeros.
    pub fn attend<'a>(
        &self,
        stream: &Stream,
        sizes: &HeadSizes,
        [q, k, v]: [Slice<'_, T>; 3],
        layout: &BlockLayout,
        out: impl Into<SliceMut<'a, T>>,
    ) -> Done {
        sizes.check(DOING)?;
        let launch = Launch::new(stream, DOING)
            .require(sizes.head_dim == self.head_dim, "the kernels are for heads of another size")
            .require(sizes.tokens == layout.length(), "the layout is for another number of tokens")
            .require(sizes.capacity >= sizes.tokens, "the cache has fewer positions than there are tokens")
            .read_rows(q, sizes.query_numbers())
            .read_rows(k, sizes.cache_numbers())
            .read_rows(v, sizes.cache_numbers())
            .write_rows(out.into(), sizes.query_numbers())
            .read(&layout.works, 0_u32)
            .read(layout.tiles.as_ref(), 0_u32)
            .read(&layout.columns, 0_u32)
            .read(&layout.column_rows, 0_u32)
            .with_all([sizes.tokens, sizes.heads, sizes.kv_heads, sizes.capacity]);
        launch.check()?;
        if sizes.is_empty() {
            return Ok(());
        }
        let is_aligned = launch.is_aligned::<T>(self.head_dim);
        let engine = if is_aligned { self.engine } else { Engine::Plain };
        let scale = 1.0 / (sizes.head_dim as f32).sqrt();
        // Tensor cores' kernels take powers of two.
        let scale = if engine == Engine::Plain { scale } else { scale * LOG2_E };
        let launch = launch.with(scale).with_all(layout.rule_words());
        let shape = self.shape(sizes, layout, engine);
        match engine {
            Engine::Warpgroups => {
                let of = MappedRows {
                    width: sizes.head_dim,
                    rows: sizes.tokens,
                    group_rows: sizes.capacity,
                    groups: sizes.batch * sizes.kv_heads,
                };
                let map = |slice: Slice<'_, T>| TensorMap::new(slice.pointer(), of, TILING.keys);
                launch.run_with_maps(&self.kernel, shape, &[map(k)?, map(v)?])
            }
            Engine::TensorCores => launch.run(&self.kernel, shape),
            Engine::Plain => launch.with(is_aligned).run(&self.plain, shape),
        }
    }

    fn shape(&self, sizes: &HeadSizes, layout: &BlockLayout, engine: Engine) -> Shape {
        // Without tensor cores, half a block of queries is a block of threads.
        let parts = if engine == Engine::Plain { 2 } else { 1 };
        let grid = [sizes.batch * sizes.heads, layout.blocks() * parts, 1];
        Shape { grid, block: [THREADS, 1, 1], shared_bytes: engine.shared_bytes(self.head_dim) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_engine_that_serves_is_taken() {
        let fastest = |head_dim, bytes, capability| {
            Engine::ALL.into_iter().find(|engine| engine.serves(head_dim, bytes, capability)).map(Engine::kernel)
        };
        assert_eq!(fastest(64, 2, (9, 0)), Some("block_attention_hopper"));
        assert_eq!(fastest(128, 2, (9, 0)), Some("block_attention_hopper"));
        assert_eq!(fastest(64, 2, (10, 0)), Some("block_attention_tensor"));
        assert_eq!(fastest(80, 2, (9, 0)), Some("block_attention_tensor"));
        assert_eq!(fastest(88, 2, (9, 0)), Some("block_attention"));
        assert_eq!(fastest(64, 4, (9, 0)), Some("block_attention"));
        assert_eq!(fastest(64, 2, (7, 5)), Some("block_attention"));
        assert_eq!(fastest(257, 4, (9, 0)), None);
    }

    #[test]
    fn shared_memory_is_no_more_than_a_block_can_have() {
        const MOST: u32 = 227 << 10;
        assert!(Engine::ALL.iter().all(|engine| engine.shared_bytes(128) <= MOST));
        // Two blocks of threads fit a multiprocessor.
        assert!(2 * (Engine::Warpgroups.shared_bytes(64) + 1024) <= MOST);
    }
}
