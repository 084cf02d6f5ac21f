//! The gradients of attention that never stores the scores.

use std::{marker::PhantomData, sync::Arc};

use super::attention::{LARGEST_HEAD, has_tensor_cores};
use super::{ATTENTION_BACKWARD, ATTENTION_BACKWARD_TENSOR, HeadSizes, of_head};
use crate::{kernel::Module, launch::*};

const DOING: &str = "taking attention's gradients";

/// The gradients of causal attention with grouped queries over a cache, for heads of one size and numbers of one type.
#[derive(Debug)]
pub struct AttentionGradients<T> {
    dots: Kernel,
    any: [Kernel; 2],
    tensor: Option<[Kernel; 2]>,
    head_dim: u32,
    of: PhantomData<T>,
}

/// What attention was given, what it gave, and the gradient of that.
#[derive(Debug, Clone, Copy)]
pub struct Attended<'a, T> {
    /// Queries, [batch, heads, tokens, head_dim].
    pub q: Slice<'a, T>,
    /// Keys, [batch, kv_heads, capacity, head_dim].
    pub k: Slice<'a, T>,
    /// Values, [batch, kv_heads, capacity, head_dim].
    pub v: Slice<'a, T>,
    /// The result, [batch, tokens, heads * head_dim].
    pub out: Slice<'a, T>,
    /// Its gradient.
    pub d_out: Slice<'a, T>,
    /// The logarithms that [`super::Attention::attend`] left, [batch, heads, tokens].
    pub logarithms: Slice<'a, f32>,
    /// The position of the first query.
    pub start: Slice<'a, u32>,
}

impl<T: Element> AttentionGradients<T> {
    /// What [`Self::load`] loads.
    pub fn requests(device: &Device, head_dim: u32) -> impl Iterator<Item = Request> {
        let tensor = has_tensor_cores::<T>(device, head_dim).then_some(ATTENTION_BACKWARD_TENSOR);
        let options = of_head(head_dim);
        [ATTENTION_BACKWARD].into_iter().chain(tensor).map(move |source| Request::typed::<T>(source, &options))
    }

    /// Loads the kernels for heads of this size, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache, head_dim: u32) -> Result<Self, CudaError> {
        expect("loading attention", (1..=LARGEST_HEAD).contains(&head_dim), "the head size must be 1 to 256")?;
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
        Ok(Self { dots: plain.kernel("attention_dots")?, any, tensor, head_dim, of: PhantomData })
    }

    /// Puts the gradients of queries, keys and values into `gradients`, which lie as those do. A position of the cache that
    /// no query sees gets nothing, and the heads of a group are added up.
    ///
    /// `dots` is scratch of [batch, heads, tokens], and `scale` what scores were multiplied by.
    pub fn attend_backward<'a>(
        &self,
        stream: &Stream,
        attended: &Attended<'_, T>,
        gradients: [SliceMut<'_, T>; 3],
        dots: impl Into<SliceMut<'a, f32>>,
        sizes: &HeadSizes,
        scale: f32,
    ) -> Done {
        let dots = dots.into();
        sizes.check(DOING)?;
        let Attended { q, k, v, out, d_out, logarithms, start } = *attended;
        let (queries, cache) = (sizes.query_numbers(), sizes.cache_numbers());
        let rows = sizes.rows().saturating_mul(sizes.heads.into());
        let [dq, dk, dv] = &gradients;
        let launch = Launch::new(stream, DOING)
            .require(sizes.head_dim == self.head_dim, "the kernels are for heads of another size")
            .fits(out, queries)
            .read_rows(q, queries)
            .read_rows(k, cache)
            .read_rows(v, cache)
            .read_rows(d_out, queries)
            .read(logarithms, rows)
            .write(&dots, rows)
            .write_rows(dq, queries)
            .write_rows(dk, cache)
            .write_rows(dv, cache)
            .read(start, 1_u32)
            .require((1..1 << 21).contains(&sizes.capacity), "a cache has 1 to 2^21 positions")
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
        // The product of each row of the result and its gradient, a warp a row.
        let products = Launch::new(stream, DOING).read(out, queries).read(d_out, queries).write(&dots, rows);
        let products =
            products.with_all([blocks(rows), sizes.tokens, sizes.heads]).require(rows < 1 << 31, "too many rows");
        products.run(&self.dots, Shape::line(blocks(rows).div_ceil(8), 256))?;
        let rows = [[sizes.kv_heads, sizes.capacity], [sizes.heads, sizes.tokens]];
        for ((kernel, [heads, rows]), shared_bytes) in kernels.iter().zip(rows).zip(bytes) {
            let grid = [sizes.batch * heads, rows.div_ceil(tile), 1];
            launch.clone().run(kernel, Shape { grid, block: [threads, 1, 1], shared_bytes })?;
        }
        Ok(())
    }
}

/// Keys and values, and two steps of queries, slopes and two numbers a query; and two steps of keys and values. Rows have 16
/// bytes more than their numbers.
fn tensor_shared_bytes(head_dim: u32) -> [u32; 2] {
    let row = 2 * head_dim + 16;
    let queries = if head_dim <= 64 { 64 } else { 32 };
    [2 * 64 * row + 2 * (2 * queries * row + 8 * queries), 4 * 64 * row]
}

fn any_tile(head_dim: u32) -> u32 {
    if head_dim <= 128 { 64 } else { 32 }
}

/// Keys, values, queries and slopes as f32, in rows of whole groups of four and one group more, and two tiles of products.
fn any_shared_bytes(head_dim: u32) -> [u32; 2] {
    let (stride, tile) = (head_dim.next_multiple_of(4) + 4, any_tile(head_dim));
    [4 * tile * (4 * stride + 2 * (tile + 4)), 4 * tile * (4 * stride + tile + 4)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shared_memory_is_no_more_than_a_block_can_have() {
        const MOST: u32 = 227 << 10;
        assert!((1..=LARGEST_HEAD).all(|head_dim| any_shared_bytes(head_dim).iter().all(|bytes| *bytes <= MOST)));
        assert!((16..=128).all(|head_dim| tensor_shared_bytes(head_dim).iter().all(|bytes| *bytes <= MOST)));
        assert_eq!(tensor_shared_bytes(64), [56_320, 36_864]);
    }
}
