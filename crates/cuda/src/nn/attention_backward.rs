//! The gradients of attention that does not store the scores.

use std::{marker::PhantomData, sync::Arc};

use super::attention::{MAX_HEAD_DIM, has_tensor_cores};
use super::{ATTENTION_BACKWARD, ATTENTION_BACKWARD_TENSOR, HeadSizes, of_head};
use crate::{kernel::Module, launch::*};

const DOING: &str = "computing the gradients of attention";

/// The gradients of causal grouped-query attention over a KV cache, for one head size and dtype.
#[derive(Debug)]
pub struct AttentionGradients<T> {
    delta: Kernel,
    any: [Kernel; 2],
    tensor: Option<[Kernel; 2]>,
    head_dim: u32,
    of: PhantomData<T>,
}

/// The inputs and outputs of attention, and the gradient of its result.
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a, T> {
    /// Queries, `[batch, heads, tokens, head_dim]`.
    pub q: Slice<'a, T>,
    /// Keys, `[batch, kv_heads, capacity, head_dim]`.
    pub k: Slice<'a, T>,
    /// Values, `[batch, kv_heads, capacity, head_dim]`.
    pub v: Slice<'a, T>,
    /// The result, `[batch, tokens, heads * head_dim]`.
    pub out: Slice<'a, T>,
    /// Its gradient.
    pub d_out: Slice<'a, T>,
    /// The log-sum-exp of each query, from [`super::Attention::attend`], `[batch, heads, tokens]`.
    pub lse: Slice<'a, f32>,
    /// The position of the first query.
    pub start: Slice<'a, u32>,
}

impl<T: Element> AttentionGradients<T> {
    /// The requests of [`Self::load`], to compile ahead.
    pub fn requests(device: &Device, head_dim: u32) -> impl Iterator<Item = Request> {
        let tensor = has_tensor_cores::<T>(device, head_dim).then_some(ATTENTION_BACKWARD_TENSOR);
        let options = of_head(head_dim);
        [ATTENTION_BACKWARD].into_iter().chain(tensor).map(move |source| Request::typed::<T>(source, &options))
    }

    /// Loads the kernels for a head size, from the cache if possible.
    pub fn load(device: &Device, cache: &Cache, head_dim: u32) -> Result<Self, CudaError> {
        expect("loading attention", (1..=MAX_HEAD_DIM).contains(&head_dim), "the head size must be 1 to 256")?;
        let options = of_head(head_dim);
        let module = |source| Request::typed::<T>(source, &options).load(device, cache);
        let kernels = |module: &Arc<Module>, [keys, queries]: [u32; 2]| {
            module.kernels_with([("attention_backward_keys", keys), ("attention_backward_queries", queries)])
        };
        let plain = module(ATTENTION_BACKWARD)?;
        let any = kernels(&plain, any_shared_bytes(head_dim))?;
        let tensor = match has_tensor_cores::<T>(device, head_dim) {
            true => Some(kernels(&module(ATTENTION_BACKWARD_TENSOR)?, tensor_shared_bytes(head_dim))?),
            false => None,
        };
        Ok(Self { delta: plain.kernel("attention_delta")?, any, tensor, head_dim, of: PhantomData })
    }

    /// Writes the gradients of queries, keys and values, in the same layouts. Positions of the cache that no query sees get
    /// zero, and the heads of a group are summed. `delta` is scratch of `[batch, heads, tokens]`.
    pub fn attend_backward<'a>(
        &self,
        stream: &Stream,
        attended: &Attended<'_, T>,
        gradients: [SliceMut<'_, T>; 3],
        delta: impl Into<SliceMut<'a, f32>>,
        sizes: &HeadSizes,
        scale: f32,
    ) -> Done {
        let delta = delta.into();
        sizes.check(DOING)?;
        let Attended { q, k, v, out, d_out, lse, start } = *attended;
        let (queries, cache) = (sizes.query_elements(), sizes.cache_elements());
        let rows = sizes.query_rows();
        let [dq, dk, dv] = &gradients;
        let launch = Launch::new(stream, DOING)
            .require(sizes.head_dim == self.head_dim, "the kernels are for another head size")
            .fits(out, queries)
            .read_rows(q, queries)
            .read_rows(k, cache)
            .read_rows(v, cache)
            .read_rows(d_out, queries)
            .read(lse, rows)
            .write(&delta, rows)
            .write_rows(dq, queries)
            .write_rows(dk, cache)
            .write_rows(dv, cache)
            .read(start, 1_u32)
            .require((1..1 << 21).contains(&sizes.capacity), "the capacity of the cache must be 1 to 2^21 positions")
            .with_all([sizes.tokens, sizes.heads, sizes.kv_heads, sizes.capacity])
            .with(scale);
        launch.check()?;
        if sizes.is_empty() {
            return gradients.into_iter().try_for_each(|mut gradient| gradient.zero_on(stream));
        }
        let is_aligned = launch.is_aligned::<T>(self.head_dim);
        let (launch, kernels, tile, threads, bytes) = match self.tensor.as_ref().filter(|_| is_aligned) {
            Some(kernels) => (launch, kernels, 64, 128, tensor_shared_bytes(self.head_dim)),
            None => {
                let launch = launch.with(is_aligned);
                (launch, &self.any, any_tile(self.head_dim), 256, any_shared_bytes(self.head_dim))
            }
        };
        let dots = Launch::new(stream, DOING).read(out, queries).read(d_out, queries).write(&delta, rows);
        let dots = dots.with_all([blocks(rows), sizes.tokens, sizes.heads]).require(rows < 1 << 31, "too many rows");
        // One warp per row.
        dots.run(&self.delta, Shape::line(blocks(rows).div_ceil(8), 256))?;
        let rows = [[sizes.kv_heads, sizes.capacity], [sizes.heads, sizes.tokens]];
        for ((kernel, [heads, rows]), shared_bytes) in kernels.iter().zip(rows).zip(bytes) {
            let grid = [sizes.batch * heads, rows.div_ceil(tile), 1];
            launch.clone().run(kernel, Shape::new(grid, [threads, 1, 1]).with_shared(shared_bytes))?;
        }
        Ok(())
    }
}

/// For the two kernels: keys, values, and two stages of queries, their gradients and two floats per query; and two stages of
/// keys and values. Rows are padded by 16 bytes.
fn tensor_shared_bytes(head_dim: u32) -> [u32; 2] {
    let row = 2 * head_dim + 16;
    let queries = if head_dim <= 64 { 64 } else { 32 };
    [2 * 64 * row + 2 * (2 * queries * row + 8 * queries), 4 * 64 * row]
}

fn any_tile(head_dim: u32) -> u32 {
    if head_dim <= 128 { 64 } else { 32 }
}

/// Keys, values, queries and their gradients as f32, in rows padded to groups of four and one more group, and two or one tiles
/// of scores.
fn any_shared_bytes(head_dim: u32) -> [u32; 2] {
    let (stride, tile) = (head_dim.next_multiple_of(4) + 4, any_tile(head_dim));
    [4 * tile * (4 * stride + 2 * (tile + 4)), 4 * tile * (4 * stride + tile + 4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_within_the_limit_of_a_block() {
        const LIMIT: u32 = 227 << 10;
        assert!((1..=MAX_HEAD_DIM).all(|head_dim| any_shared_bytes(head_dim).iter().all(|bytes| *bytes <= LIMIT)));
        assert!((16..=128).all(|head_dim| tensor_shared_bytes(head_dim).iter().all(|bytes| *bytes <= LIMIT)));
        assert_eq!(tensor_shared_bytes(64), [56_320, 36_864]);
    }
}
