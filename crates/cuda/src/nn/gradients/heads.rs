//! The gradient of queries, keys and values that were taken apart.

use super::Gradients;
use crate::launch::*;
use crate::nn::{HeadSizes, Packed};

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
    ) -> Done {
        sizes.check(DOING)?;
        input.check_parameters(DOING, sizes)?;
        expect(DOING, input.norm.is_some() == norms.is_some(), "norms and their gradients come together")?;
        let (rows, dim) = (sizes.rows(), sizes.head_dim);
        let packed = rows.saturating_mul(sizes.packed_width());
        let count = blocks(rows.saturating_mul(sizes.all_heads()));
        let launch = Launch::new(stream, DOING)
            .require(count < 1 << 31, "too many rows")
            .fits(input.norm.as_ref().map(|_| input.packed), packed)
            .fits(norms.as_ref().map(|norms| &norms.q), dim)
            .fits(norms.as_ref().map(|norms| &norms.k), dim)
            .with_all(input.addresses())
            .rows_at(&input.addresses())
            .read(input.start, 1_u32)
            .read_rows(dq, sizes.query_numbers())
            .read_rows(dk, sizes.cache_numbers())
            .read_rows(dv, sizes.cache_numbers())
            .write_rows(d_packed.into(), packed);
        let launch = match &norms {
            Some(norms) => self.scratch(launch, &norms.scratch, 2 * dim),
            None => launch.with(0_u64),
        };
        let launch = launch
            .with_all([rows as u32, sizes.tokens, sizes.heads, sizes.kv_heads, dim, sizes.capacity])
            .with_all([input.positions(sizes), input.by_pairs()])
            .with(input.epsilon());
        launch.check()?;
        let (kernel, shape, lanes) = self.join_kernel(count, dim, launch.is_aligned::<T>(dim / 2), norms.is_some());
        launch.with(lanes).skip_if(dim == 0).run(kernel, shape)?;
        let Some(HeadNormGradients { q, k, scratch }) = norms else { return Ok(()) };
        let (blocks, scratch) = (shape.grid[0], scratch.pointer());
        self.sum_partials(stream, scratch, &q, blocks, [2 * dim, dim])?;
        self.sum_partials(stream, scratch + 4 * u64::from(dim), &k, blocks, [2 * dim, dim])
    }

    /// The kernel for this number of heads of this size, its launch size, and its parameter for threads per head.
    fn join_kernel(&self, heads: u32, head_dim: u32, is_aligned: bool, is_normed: bool) -> (&Kernel, Shape, u32) {
        let half = head_dim / 2;
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
