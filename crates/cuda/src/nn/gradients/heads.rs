//! The gradient of the QKV projection.

use super::Gradients;
use crate::launch::*;
use crate::nn::{HeadSizes, Packed};

const DOING: &str = "computing the gradient of heads";
/// Threads per block, and their maximum without norms.
const THREADS: u32 = 512;
const PLAIN_THREADS: u32 = 256;

/// The gradients of the head norms' weights, `[head_dim]` each.
#[derive(Debug)]
pub struct HeadNormGradients<'a, T> {
    /// For queries.
    pub q: SliceMut<'a, T>,
    /// For keys.
    pub k: SliceMut<'a, T>,
    /// [`Gradients::scratch_length`] of twice `head_dim`.
    pub scratch: SliceMut<'a, f32>,
}

impl<T: Element> Gradients<T> {
    /// The gradient of [`super::super::Operations::split_heads`]: from those of the queries `[batch, heads, tokens, head_dim]`
    /// and of the caches `[batch, kv_heads, capacity, head_dim]` to `d_packed`. Without norms, the packed rows of `input` are
    /// not read and may be empty.
    pub fn split_heads_backward(
        &self,
        stream: &Stream,
        input: &Packed<'_, T>,
        [dq, dk, dv]: [Slice<'_, T>; 3],
        d_packed: impl Write<T>,
        norms: Option<HeadNormGradients<'_, T>>,
        sizes: &HeadSizes,
    ) -> Done {
        sizes.check(DOING)?;
        input.check_parameters(DOING, sizes)?;
        expect(
            DOING,
            input.norm.is_some() == norms.is_some(),
            "expected gradients of norms if and only if there are norms",
        )?;
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
            .read_rows(dq, sizes.query_elements())
            .read_rows(dk, sizes.cache_elements())
            .read_rows(dv, sizes.cache_elements())
            .write_rows(d_packed, packed);
        let launch = match &norms {
            Some(norms) => self.scratch(launch, &norms.scratch, 2 * dim),
            None => launch.with(0_u64),
        };
        let launch = launch
            .with_all([rows as u32, sizes.tokens, sizes.heads, sizes.kv_heads, dim, sizes.capacity])
            .with_all([input.positions(sizes), input.is_interleaved()])
            .with(input.epsilon());
        launch.check()?;
        let (kernel, shape, lanes) = self.heads_kernel(count, dim, launch.is_aligned::<T>(dim / 2), norms.is_some());
        launch.with(lanes).skip_if(dim == 0).run(kernel, shape)?;
        let Some(HeadNormGradients { q, k, scratch }) = norms else { return Ok(()) };
        let (blocks, scratch) = (shape.grid[0], scratch.pointer());
        self.sum_partials(stream, scratch, &q, blocks, [2 * dim, dim])?;
        self.sum_partials(stream, scratch + 4 * u64::from(dim), &k, blocks, [2 * dim, dim])
    }

    /// The kernel, its launch configuration, and its parameter for threads per head.
    fn heads_kernel(&self, heads: u32, head_dim: u32, is_aligned: bool, is_normed: bool) -> (&Kernel, Shape, u32) {
        let half = head_dim / 2;
        let lanes = vectors::<T>(half).next_power_of_two();
        if is_aligned && !is_normed && half > 0 {
            let lanes = vectors::<T>(half);
            let heads_per_block = PLAIN_THREADS / lanes;
            let shape = Shape::line(heads.div_ceil(heads_per_block), heads_per_block * lanes);
            return (&self.split_heads_backward_plain, shape, lanes);
        }
        match lanes {
            ..=32 if is_aligned && is_normed => {
                let shape = self.heads_shape(heads, lanes, head_dim, is_normed);
                (&self.split_heads_backward.vectorised, shape, lanes.ilog2())
            }
            _ => (&self.split_heads_backward.any, self.heads_shape(heads, 32, head_dim, is_normed), 5),
        }
    }

    /// With norms, few blocks give few partial sums; without, every element has a thread.
    fn heads_shape(&self, heads: u32, lanes: u32, head_dim: u32, is_normed: bool) -> Shape {
        let blocks = (u64::from(heads) * u64::from(lanes)).div_ceil(THREADS.into());
        let limit = if is_normed { self.max_parts() } else { 1 << 22 };
        let shared_bytes = if is_normed { THREADS / 32 * 2 * head_dim * 4 } else { 0 };
        Shape::line(blocks.min(limit.into()) as u32, THREADS).with_shared(shared_bytes)
    }
}
