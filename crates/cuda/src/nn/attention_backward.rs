//! The gradients of attention that never stores the scores.
#![allow(unsafe_code)]

use std::marker::PhantomData;

use super::{
    ATTENTION_BACKWARD, ATTENTION_BACKWARD_TENSOR, HeadSizes,
    attention::is_for_tensor_cores,
    operations::{count_rows, launch},
    sizes::{has_room, holds, is_by_16_bytes},
    with_head,
};
use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    nvrtc::{self, Source},
    slice::{Slice, SliceMut},
    stream::Stream,
};

const DOING: &str = "taking attention's gradients";
/// The largest head that there are kernels for.
const LARGEST_HEAD: u32 = 256;

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
    /// What [`super::Attention::attend_for_gradients`] left, [batch, heads, tokens].
    pub logarithms: Slice<'a, f32>,
    /// The position of the first query.
    pub start: Slice<'a, u32>,
}

impl<T: Element> AttentionGradients<T> {
    /// Loads the kernels for heads of this size, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache, head_dim: u32) -> Result<Self, CudaError> {
        expect("loading attention", (1..=LARGEST_HEAD).contains(&head_dim), "the head size must be 1 to 256")?;
        let options = with_head(T::OPTION, head_dim);
        let kernels = |source: Source<'_>, shared_bytes: [u32; 2]| {
            let module = nvrtc::load(device, cache, source, &options)?.0;
            let of_keys = module.kernel("attention_backward_keys")?;
            let of_queries = module.kernel("attention_backward_queries")?;
            of_keys.allow_shared_bytes(shared_bytes[0])?;
            of_queries.allow_shared_bytes(shared_bytes[1])?;
            Ok::<_, CudaError>((module, [of_keys, of_queries]))
        };
        let (module, any) = kernels(ATTENTION_BACKWARD, any_shared_bytes(head_dim))?;
        let is_tensor = size_of::<T>() == 2 && is_for_tensor_cores(head_dim) && device.facts().capability.0 >= 8;
        let tensor = match is_tensor {
            true => Some(kernels(ATTENTION_BACKWARD_TENSOR, tensor_shared_bytes(head_dim))?.1),
            false => None,
        };
        Ok(Self { dots: module.kernel("attention_dots")?, any, tensor, head_dim, of: PhantomData })
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
    ) -> Result<(), CudaError> {
        let dots = dots.into();
        self.check(attended, &gradients, &dots, sizes)?;
        if sizes.is_empty() {
            return gradients.into_iter().try_for_each(|mut gradient| gradient.zero_on(stream));
        }
        self.multiply_rows(stream, attended, &dots, sizes)?;
        let Attended { q, k, v, d_out, .. } = *attended;
        let [dq, dk, dv] = gradients.map(|gradient| gradient.pointer());
        let numbers = [q.pointer(), k.pointer(), v.pointer(), d_out.pointer(), dq, dk, dv];
        let is_aligned = is_by_16_bytes::<T>(self.head_dim, &numbers);
        let tensor = self.tensor.as_ref().filter(|_| is_aligned);
        let (kernels, tile, threads, bytes) = match tensor {
            Some(kernels) => (kernels, 64, 128, tensor_shared_bytes(self.head_dim)),
            None => (&self.any, any_tile(self.head_dim), 256, any_shared_bytes(self.head_dim)),
        };
        let mut arguments = arguments(attended, [dq, dk, dv], &dots, sizes, scale);
        if tensor.is_none() {
            arguments.push(u32::from(is_aligned).into());
        }
        let rows = [[sizes.kv_heads, sizes.capacity], [sizes.heads, sizes.tokens]];
        for ((kernel, [heads, rows]), shared_bytes) in kernels.iter().zip(rows).zip(bytes) {
            let grid = [sizes.batch * heads, rows.div_ceil(tile), 1];
            let shape = Shape { grid, block: [threads, 1, 1], shared_bytes };
            // SAFETY: the kernels stay within the sizes, and the buffers are at least as large.
            launch(grid[1], || unsafe { kernel.launch(stream, shape, &arguments) })?;
        }
        Ok(())
    }

    /// The product of each row of the result and its gradient.
    fn multiply_rows(
        &self,
        stream: &Stream,
        attended: &Attended<'_, T>,
        dots: &SliceMut<'_, f32>,
        sizes: &HeadSizes,
    ) -> Result<(), CudaError> {
        let rows = count_rows(DOING, sizes.rows().saturating_mul(sizes.heads.into()))?;
        let (out, d_out) = (attended.out.into(), attended.d_out.into());
        let arguments: [Argument; 6] = [out, d_out, dots.into(), rows.into(), sizes.tokens.into(), sizes.heads.into()];
        // SAFETY: the kernel has a warp a row, and there are as many rows and places.
        unsafe { self.dots.launch(stream, Shape::line(rows.div_ceil(8), 256), &arguments) }
    }

    fn check(
        &self,
        attended: &Attended<'_, T>,
        [dq, dk, dv]: &[SliceMut<'_, T>; 3],
        dots: &SliceMut<'_, f32>,
        sizes: &HeadSizes,
    ) -> Result<(), CudaError> {
        sizes.check(DOING)?;
        expect(DOING, sizes.head_dim == self.head_dim, "the kernels are for heads of another size")?;
        let Attended { q, k, v, out, d_out, logarithms, start } = *attended;
        let (queries, cache) = (sizes.query_numbers(), sizes.cache_numbers());
        let rows = sizes.rows().saturating_mul(sizes.heads.into());
        let given = [q, out, d_out].iter().all(|slice| holds(*slice, queries)) && holds(k, cache) && holds(v, cache);
        let room = has_room(dq, queries) && has_room(dk, cache) && has_room(dv, cache) && has_room(dots, rows);
        expect(DOING, given && room && holds(logarithms, rows) && holds(start, 1), "a buffer is too small")?;
        expect(DOING, (1..1 << 21).contains(&sizes.capacity), "a cache has 1 to 2^21 positions")
    }
}

fn arguments<T: Element>(
    attended: &Attended<'_, T>,
    gradients: [u64; 3],
    dots: &SliceMut<'_, f32>,
    sizes: &HeadSizes,
    scale: f32,
) -> Vec<Argument> {
    let Attended { q, k, v, d_out, logarithms, start, .. } = *attended;
    let HeadSizes { tokens, heads, kv_heads, capacity, .. } = *sizes;
    let mut arguments: Vec<Argument> = vec![q.into(), k.into(), v.into(), d_out.into(), logarithms.into(), dots.into()];
    arguments.extend(gradients.map(Argument::from));
    arguments.push(start.into());
    arguments.extend([tokens, heads, kv_heads, capacity].map(Argument::from));
    arguments.push(scale.into());
    arguments
}

/// Keys and values, and two steps of queries, slopes and two numbers a query; and two steps of keys and values. Rows have 16
/// bytes more than their numbers.
fn tensor_shared_bytes(head_dim: u32) -> [u32; 2] {
    let row = 2 * head_dim + 16;
    let queries = if head_dim <= 64 { 64 } else { 32 };
    [2 * 64 * row + 2 * (2 * queries * row + 8 * queries), 4 * 64 * row]
}

/// Queries and keys of a tile of the kernels that are for any head.
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
