//! The gradient of queries, keys and values that were taken apart.
#![allow(unsafe_code)]

use super::Gradients;
use crate::{
    blas::Element,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    nn::{
        HeadSizes, Packed, Pairing,
        operations::{count_rows, groups, launch},
        sizes::{has_room, holds, is_by_16_bytes},
    },
    slice::{Slice, SliceMut},
    stream::Stream,
};

const DOING: &str = "taking the heads' gradient";
/// Threads of a block, and the most of one whose heads have no norm.
const THREADS: u32 = 512;
const PLAIN_THREADS: u32 = 256;

/// Where the gradients of the weights of the heads' norms go, `head_dim` numbers each, and what is needed for them.
#[derive(Debug)]
pub struct HeadNormGradients<'a, T> {
    /// That of the queries' weight.
    pub q: SliceMut<'a, T>,
    /// That of the keys' weight.
    pub k: SliceMut<'a, T>,
    /// [`Gradients::scratch_length`] of twice `head_dim`.
    pub scratch: SliceMut<'a, f32>,
}

impl<T: Element> Gradients<T> {
    /// Puts the gradient of packed rows into `d_packed`, from those of the queries, [batch, heads, tokens, head_dim], and of
    /// the caches of keys and values, [batch, kv_heads, capacity, head_dim], at the positions of the tokens.
    ///
    /// `input` is what [`super::super::Operations::split_heads`] was given; where heads have no norm, its `packed` is not
    /// read and may be empty. Where they have one, `norms` says where the gradients of the weights go.
    pub fn split_heads_backward<'a>(
        &self,
        stream: &Stream,
        input: &Packed<'_, T>,
        [dq, dk, dv]: [Slice<'_, T>; 3],
        d_packed: impl Into<SliceMut<'a, T>>,
        norms: Option<HeadNormGradients<'_, T>>,
        sizes: &HeadSizes,
    ) -> Result<(), CudaError> {
        let d_packed = d_packed.into();
        sizes.check(DOING)?;
        input.check_parameters(DOING, sizes)?;
        let packed = u128::from(sizes.rows()) * u128::from(sizes.packed_width());
        let caches = [dk, dv].iter().all(|cache| holds(*cache, sizes.cache_numbers()));
        let fits = holds(dq, sizes.query_numbers()) && caches && d_packed.length() as u128 >= packed;
        let is_saved = input.norm.is_none() || input.packed.length() as u128 >= packed;
        expect(DOING, fits && is_saved, "a buffer is too small")?;
        self.check_norms(input, norms.as_ref(), sizes.head_dim)?;
        let all_heads = u64::from(sizes.heads) + 2 * u64::from(sizes.kv_heads);
        let count = count_rows(DOING, sizes.rows().saturating_mul(all_heads))?;
        let places = input.inputs().into_iter().chain([dq.pointer(), dk.pointer(), dv.pointer(), d_packed.pointer()]);
        let scratch = norms.as_ref().map_or(0, |norms| norms.scratch.pointer());
        let places: Vec<u64> = places.collect();
        let (kernel, shape, lanes) = self.join_kernel(count, sizes.head_dim, &places, norms.is_some());
        let arguments = arguments(input, &places, scratch, sizes, lanes);
        // SAFETY: the kernel stays within the sizes, the buffers are at least as large, and a block has its own row of the
        // scratch.
        launch(count.min(sizes.head_dim), || unsafe { kernel.launch(stream, shape, &arguments) })?;
        let Some(norms) = norms else { return Ok(()) };
        let (blocks, dim) = (shape.grid[0], sizes.head_dim);
        self.sum_partials(stream, scratch, &norms.q, blocks, [2 * dim, dim])?;
        self.sum_partials(stream, scratch + 4 * u64::from(dim), &norms.k, blocks, [2 * dim, dim])
    }

    fn check_norms(
        &self,
        input: &Packed<'_, T>,
        norms: Option<&HeadNormGradients<'_, T>>,
        head_dim: u32,
    ) -> Result<(), CudaError> {
        expect(DOING, input.norm.is_some() == norms.is_some(), "norms and their gradients come together")?;
        let Some(norms) = norms else { return Ok(()) };
        let fits = has_room(&norms.q, head_dim.into()) && has_room(&norms.k, head_dim.into());
        expect(DOING, fits, "a buffer is too small")?;
        self.expect_scratch(DOING, &norms.scratch, 2 * head_dim)
    }

    /// The kernel for this number of heads of this size at these addresses, its launch size, and its parameter for
    /// threads per head.
    fn join_kernel(&self, heads: u32, head_dim: u32, addresses: &[u64], is_normed: bool) -> (&Kernel, Shape, u32) {
        let (half, is_aligned) = (head_dim / 2, is_by_16_bytes::<T>(head_dim / 2, addresses));
        let lanes = groups::<T>(half).next_power_of_two();
        if is_aligned && !is_normed && half > 0 {
            let lanes = groups::<T>(half);
            let heads_per_block = PLAIN_THREADS / lanes;
            let shape = Shape::line(heads.div_ceil(heads_per_block), heads_per_block * lanes);
            return (&self.split_heads_backward_plain, shape, lanes);
        }
        match lanes {
            ..=32 if is_aligned && is_normed => {
                let shape = self.join_shape(heads, lanes, head_dim, is_normed);
                (&self.split_heads_backward.by_16_bytes, shape, lanes.ilog2())
            }
            _ => (&self.split_heads_backward.any, self.join_shape(heads, 32, head_dim, is_normed), 5),
        }
    }

    /// Heads with a norm are added up by few blocks, which leave few sums; others have a thread for everything.
    fn join_shape(&self, heads: u32, lanes: u32, head_dim: u32, is_normed: bool) -> Shape {
        let blocks = (u64::from(heads) * u64::from(lanes)).div_ceil(THREADS.into());
        let most = if is_normed { self.most_parts() } else { 1 << 22 };
        let shared_bytes = if is_normed { THREADS / 32 * 2 * head_dim * 4 } else { 0 };
        Shape { shared_bytes, ..Shape::line(blocks.min(most.into()) as u32, THREADS) }
    }
}

/// `places` are those of [`Packed::inputs`], then of the gradients.
fn arguments<T: Element>(
    input: &Packed<'_, T>,
    places: &[u64],
    scratch: u64,
    sizes: &HeadSizes,
    lanes: u32,
) -> Vec<Argument> {
    let (parameters, gradients) = places.split_at(6);
    let HeadSizes { tokens, heads, kv_heads, head_dim, capacity, .. } = *sizes;
    let by_pairs = u32::from(input.rotation.pairing == Pairing::Pairs);
    let rows = sizes.rows() as u32;
    let counts = [rows, tokens, heads, kv_heads, head_dim, capacity, input.positions(sizes), by_pairs];
    let epsilon = input.norm.as_ref().map_or(0.0, |norm| norm.epsilon);
    let mut arguments: Vec<Argument> = parameters.iter().map(|place| Argument::from(*place)).collect();
    arguments.push(input.start.into());
    arguments.extend(gradients.iter().map(|place| Argument::from(*place)));
    arguments.push(scratch.into());
    arguments.extend(counts.map(Argument::from));
    arguments.extend([Argument::from(epsilon), lanes.into()]);
    arguments
}
