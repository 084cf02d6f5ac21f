//! Attention that does not store the scores.

use std::marker::PhantomData;

use super::{ATTENTION, ATTENTION_TENSOR, HeadSizes, of_window};
use crate::launch::*;

const DOING: &str = "computing attention";
/// The largest supported head size.
pub(super) const MAX_HEAD_DIM: u32 = 256;
/// Up to this number of blocks of 64 queries per multiprocessor, warps share queries; from this number of blocks of 128
/// queries on, those are used. Measured on an H200.
const FULL: u32 = 2;

/// Causal grouped-query attention over a KV cache, for one head size and dtype.
#[derive(Debug)]
pub struct Attention<T> {
    any: Kernel,
    tensor: Option<[Kernel; 3]>,
    head_dim: u32,
    multiprocessors: u32,
    is_early: bool,
    of: PhantomData<T>,
}

/// Whether the tensor core kernels, for bf16 and f16, support this head size.
pub(super) fn is_for_tensor_cores(head_dim: u32) -> bool {
    head_dim > 0 && head_dim <= 128 && head_dim.is_multiple_of(16)
}

/// Whether a device has tensor cores for this head size and dtype.
pub(super) fn has_tensor_cores<T>(device: &Device, head_dim: u32) -> bool {
    size_of::<T>() == 2 && is_for_tensor_cores(head_dim) && device.facts().capability.0 >= 8
}

impl<T: Element> Attention<T> {
    /// The requests of [`Self::load`], to compile ahead.
    pub fn requests(device: &Device, head_dim: u32, window: Option<u32>) -> impl Iterator<Item = Request> {
        let has_tensor_cores = window.is_none() && has_tensor_cores::<T>(device, head_dim);
        let (tensor, options) = (has_tensor_cores.then_some(ATTENTION_TENSOR), of_window(head_dim, window));
        [ATTENTION].into_iter().chain(tensor).map(move |source| Request::typed::<T>(source, &options))
    }

    /// Loads the kernels for a head size, from the cache if possible. With a window, a query sees only this number of keys,
    /// up to its own.
    pub fn load(device: &Device, cache: &Cache, head_dim: u32, window: Option<u32>) -> Result<Self, CudaError> {
        let sizes = (1..=MAX_HEAD_DIM).contains(&head_dim) && window != Some(0);
        expect("loading attention", sizes, "the head size must be 1 to 256, and the window at least 1")?;
        let options = of_window(head_dim, window);
        let module = |source| Request::typed::<T>(source, &options).load(device, cache);
        let any = module(ATTENTION)?.kernel_with("attention", any_shared_bytes(head_dim))?;
        let tensor = match window.is_none() && has_tensor_cores::<T>(device, head_dim) {
            true => Some(
                module(ATTENTION_TENSOR)?.kernels_with(TILES.map(|tile| (tile.kernel, tile.shared_bytes(head_dim))))?,
            ),
            false => None,
        };
        let (multiprocessors, is_early) = (device.facts().multiprocessors, device.is_hopper_or_later());
        Ok(Self { any, tensor, head_dim, multiprocessors, is_early, of: PhantomData })
    }

    /// Attention of `q` `[batch, heads, tokens, head_dim]` over the caches `k` and `v` `[batch, kv_heads, capacity, head_dim]`
    /// into `out` `[batch, tokens, heads * head_dim]`.
    ///
    /// Query i sees the keys up to the position `start[0]` plus i. Scores are multiplied by `scale`. For the gradient, the
    /// log-sum-exp of each query's scores goes to `lse` `[batch, heads, tokens]`.
    pub fn attend(
        &self,
        stream: &Stream,
        [q, k, v]: [Slice<'_, T>; 3],
        start: impl Read<u32>,
        (out, lse): (SliceMut<'_, T>, Option<SliceMut<'_, f32>>),
        sizes: &HeadSizes,
        scale: f32,
    ) -> Done {
        sizes.check(DOING)?;
        let launch = Launch::new(stream, DOING)
            .require(sizes.head_dim == self.head_dim, "the kernels are for another head size")
            .read_rows(q, sizes.query_elements())
            .read_rows(k, sizes.cache_elements())
            .read_rows(v, sizes.cache_elements())
            .write_rows(out, sizes.query_elements())
            .read(start, 1_u32)
            .require(sizes.capacity > 0, "the cache is empty")
            .with_all([sizes.tokens, sizes.heads, sizes.kv_heads, sizes.capacity])
            .skip_if(sizes.is_empty());
        let is_aligned = launch.is_aligned::<T>(self.head_dim);
        let rows = sizes.query_rows();
        match &self.tensor {
            Some(kernels) if is_aligned => {
                let (kernel, shape) = self.tensor_shape(kernels, sizes);
                let launch = launch.with(scale * std::f32::consts::LOG2_E).write(lse, rows);
                launch.run_early(kernel, shape, self.is_early)
            }
            _ => {
                let shape = shape(sizes, 64, 256, any_shared_bytes(self.head_dim));
                launch.with(scale).with(is_aligned).write(lse, rows).run(&self.any, shape)
            }
        }
    }

    fn tensor_shape<'a>(&self, kernels: &'a [Kernel; 3], sizes: &HeadSizes) -> (&'a Kernel, Shape) {
        let chosen = chosen_tile(sizes, self.multiprocessors);
        let tile = TILES[chosen];
        (&kernels[chosen], shape(sizes, tile.queries, tile.threads, tile.shared_bytes(self.head_dim)))
    }
}

/// The tile of a tensor core kernel.
#[derive(Debug, Clone, Copy)]
struct Tile {
    kernel: &'static str,
    queries: u32,
    keys: u32,
    threads: u32,
}

/// With few blocks, more warps share the keys; with many, a block has more queries per loaded key.
const TILES: [Tile; 3] = [
    Tile { kernel: "attention_of_64_split", queries: 64, keys: 128, threads: 256 },
    Tile { kernel: "attention_of_64", queries: 64, keys: 64, threads: 128 },
    Tile { kernel: "attention_of_128", queries: 128, keys: 64, threads: 256 },
];

impl Tile {
    /// Two stages of keys and of values, in rows padded by 16 bytes.
    fn shared_bytes(&self, head_dim: u32) -> u32 {
        4 * self.keys * (2 * head_dim + 16)
    }

    fn blocks(&self, sizes: &HeadSizes) -> u64 {
        let heads = u64::from(sizes.batch) * u64::from(sizes.heads);
        heads.saturating_mul(sizes.tokens.div_ceil(self.queries).into())
    }
}

fn chosen_tile(sizes: &HeadSizes, multiprocessors: u32) -> usize {
    if TILES[0].blocks(sizes) <= u64::from(FULL * multiprocessors) {
        0
    } else if TILES[2].blocks(sizes) < u64::from(FULL * multiprocessors) {
        1
    } else {
        2
    }
}

fn shape(sizes: &HeadSizes, queries: u32, threads: u32, shared_bytes: u32) -> Shape {
    let grid = [sizes.batch.saturating_mul(sizes.heads), sizes.tokens.div_ceil(queries), 1];
    Shape::new(grid, [threads, 1, 1]).with_shared(shared_bytes)
}

/// Queries, values and keys as f32, in rows padded to groups of four and one more group; the probabilities overwrite the keys.
pub(super) fn any_shared_bytes(head_dim: u32) -> u32 {
    let stride = head_dim.next_multiple_of(4) + 4;
    4 * 64 * (2 * stride + stride.max(68))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_within_the_limit_of_a_block() {
        const LIMIT: u32 = 227 << 10;
        assert!((1..=MAX_HEAD_DIM).all(|head_dim| any_shared_bytes(head_dim) <= LIMIT));
        assert!(TILES.iter().all(|tile| tile.shared_bytes(128) <= LIMIT));
        assert_eq!((any_shared_bytes(128), TILES[1].shared_bytes(128)), (101_376, 69_632));
    }

    #[test]
    fn few_blocks_split_the_keys_and_many_have_more_queries() {
        let sizes = HeadSizes { batch: 1, tokens: 512, heads: 16, kv_heads: 8, head_dim: 128, capacity: 512 };
        assert_eq!(chosen_tile(&sizes, 132), 0);
        assert_eq!(chosen_tile(&HeadSizes { batch: 3, ..sizes }, 132), 1);
        assert_eq!(chosen_tile(&HeadSizes { tokens: 4096, ..sizes }, 132), 2);
    }

    #[test]
    fn tensor_cores_support_multiples_of_16() {
        let sizes: Vec<u32> = (0..=256).filter(|size| is_for_tensor_cores(*size)).collect();
        assert_eq!(sizes, [16, 32, 48, 64, 80, 96, 112, 128]);
    }
}
