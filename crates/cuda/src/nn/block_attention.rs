//! Block-sparse attention that does not store the scores.

use std::{f32::consts::LOG2_E, marker::PhantomData};

use super::attention::{MAX_HEAD_DIM, any_shared_bytes, is_for_tensor_cores};
use super::{BLOCK_ATTENTION, BLOCK_ATTENTION_HOPPER, BLOCK_ATTENTION_TENSOR, HeadSizes, of_head};
use crate::{
    kernel::{MappedRows, TensorMap},
    launch::*,
};

mod layout;

pub use self::layout::{BlockLayout, LayoutParts, Rule, TILING, Tiling};

const DOING: &str = "computing block attention";
/// The architecture for WGMMA kernels.
const HOPPER: &str = "sm_90a";
const THREADS: u32 = 256;
/// Stages of the WGMMA kernel's ring.
const STAGES: u32 = 4;
/// Bytes of barriers and column masks after the ring.
const BOARD_BYTES: u32 = 6 << 10;

/// The instructions that a kernel multiplies with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engine {
    /// Hopper's WGMMA: bf16 and f16, heads of 64 or 128.
    Warpgroups,
    /// Tensor cores: bf16 and f16, heads of a multiple of 16 up to 128.
    TensorCores,
    /// No tensor cores: any dtype and head size.
    Plain,
}

impl Engine {
    /// The fastest first.
    pub const ALL: [Self; 3] = [Self::Warpgroups, Self::TensorCores, Self::Plain];

    /// The kernel's name.
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Warpgroups => "block_attention_hopper",
            Self::TensorCores => "block_attention_tensor",
            Self::Plain => "block_attention",
        }
    }

    /// Whether it supports this head size and element size on a device of this capability.
    pub fn serves(self, head_dim: u32, bytes: usize, capability: (u32, u32)) -> bool {
        match self {
            Self::Warpgroups => bytes == 2 && is_for_warpgroups(head_dim) && capability == (9, 0),
            Self::TensorCores => bytes == 2 && is_for_tensor_cores(head_dim) && capability.0 >= 8,
            Self::Plain => (1..=MAX_HEAD_DIM).contains(&head_dim),
        }
    }

    fn shared_bytes(self, head_dim: u32) -> u32 {
        match self {
            // Stages begin at multiples of 1024.
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

/// Whether the WGMMA kernel, for bf16 and f16, supports this head size.
fn is_for_warpgroups(head_dim: u32) -> bool {
    head_dim == 64 || head_dim == 128
}

/// Grouped-query attention over a [`BlockLayout`], for one head size and dtype.
#[derive(Debug)]
pub struct BlockAttention<T> {
    engine: Engine,
    kernel: Kernel,
    /// For addresses that are not multiples of 16.
    plain: Kernel,
    head_dim: u32,
    of: PhantomData<T>,
}

impl<T: Element> BlockAttention<T> {
    /// The requests of [`Self::load`], to compile ahead.
    pub fn requests(device: &Device, head_dim: u32) -> [Request; 2] {
        [Engine::Plain, Engine::fastest::<T>(device, head_dim)].map(|engine| engine.request::<T>(head_dim))
    }

    /// Loads the fastest kernel for a head size, from the cache if possible.
    pub fn load(device: &Device, cache: &Cache, head_dim: u32) -> Result<Self, CudaError> {
        Self::load_with(device, cache, head_dim, Engine::fastest::<T>(device, head_dim))
    }

    /// Loads the kernel of an engine.
    pub fn load_with(device: &Device, cache: &Cache, head_dim: u32, engine: Engine) -> Result<Self, CudaError> {
        expect("loading block attention", (1..=MAX_HEAD_DIM).contains(&head_dim), "the head size must be 1 to 256")?;
        let is_served = engine.serves(head_dim, size_of::<T>(), device.facts().capability);
        expect("loading block attention", is_served, "the engine does not support this head size or dtype")?;
        let plain = Engine::Plain.load::<T>(device, cache, head_dim)?;
        let kernel = if engine == Engine::Plain { plain.clone() } else { engine.load::<T>(device, cache, head_dim)? };
        Ok(Self { engine, kernel, plain, head_dim, of: PhantomData })
    }

    /// The engine for addresses that are multiples of 16.
    pub fn engine(&self) -> Engine {
        self.engine
    }

    /// Attention of `q` `[batch, heads, tokens, head_dim]` over the first `tokens` positions of the caches `k` and `v`
    /// `[batch, kv_heads, capacity, head_dim]` into `out` `[batch, tokens, heads * head_dim]`.
    ///
    /// Scores are divided by the root of `head_dim`. A query without keys gives zeros.
    pub fn attend(
        &self,
        stream: &Stream,
        sizes: &HeadSizes,
        [q, k, v]: [Slice<'_, T>; 3],
        layout: &BlockLayout,
        out: impl Write<T>,
    ) -> Done {
        sizes.check(DOING)?;
        let launch = Launch::new(stream, DOING)
            .require(sizes.head_dim == self.head_dim, "the kernels are for another head size")
            .require(sizes.tokens == layout.length(), "the layout has a different number of tokens")
            .require(sizes.capacity >= sizes.tokens, "the cache is shorter than the sequence")
            .read_rows(q, sizes.query_elements())
            .read_rows(k, sizes.cache_elements())
            .read_rows(v, sizes.cache_elements())
            .write_rows(out, sizes.query_elements())
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
        // The tensor core kernels compute powers of two.
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
        // Without tensor cores, a thread block has half a block of queries.
        let parts = if engine == Engine::Plain { 2 } else { 1 };
        let grid = [sizes.batch * sizes.heads, layout.blocks() * parts, 1];
        Shape::new(grid, [THREADS, 1, 1]).with_shared(engine.shared_bytes(self.head_dim))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_supported_engine_is_selected() {
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
    fn shared_memory_is_within_the_limit_of_a_block() {
        const LIMIT: u32 = 227 << 10;
        assert!(Engine::ALL.iter().all(|engine| engine.shared_bytes(128) <= LIMIT));
        // Two thread blocks fit on a multiprocessor.
        assert!(2 * (Engine::Warpgroups.shared_bytes(64) + 1024) <= LIMIT);
    }
}
