//! Splitting the QKV projection into heads.

use bytemuck::Pod;

use super::{HeadSizes, Operations};
use crate::launch::*;

/// Which elements of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Element i of the first half and element i of the second.
    Halves,
    /// Elements 2i and 2i + 1 (interleaved).
    Pairs,
}

/// RoPE tables.
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a> {
    /// Cosines, `[positions, head_dim / 2]`.
    pub cosines: Slice<'a, f32>,
    /// Sines, `[positions, head_dim / 2]`.
    pub sines: Slice<'a, f32>,
    /// Which elements are rotated together.
    pub pairing: Pairing,
}

/// The RMS norms of query and key heads, before RoPE.
#[derive(Debug)]
pub struct HeadNorm<'a, T> {
    /// The weight for queries, `[head_dim]`.
    pub q: Slice<'a, T>,
    /// The weight for keys, `[head_dim]`.
    pub k: Slice<'a, T>,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// A packed QKV projection, and what is applied to its heads.
#[derive(Debug)]
pub struct Packed<'a, T> {
    /// `[batch * tokens, (heads + 2 kv_heads) * head_dim]`: all heads of q, then of k, then of v.
    pub packed: Slice<'a, T>,
    /// Added to each row.
    pub bias: Option<Slice<'a, T>>,
    /// The norm of each head.
    pub norm: Option<HeadNorm<'a, T>>,
    /// RoPE.
    pub rotation: Rotation<'a>,
    /// The position of the first token, on the device, so that it may change between replays of a graph.
    pub start: Slice<'a, u32>,
}

const DOING: &str = "splitting heads";
/// The maximum number of threads of a block, which has heads of one token.
const THREADS: u32 = 256;

impl<T: Element> Operations<T> {
    /// Writes queries to `q` `[batch, heads, tokens, head_dim]`, and keys and values to their positions in the caches
    /// `[batch, kv_heads, capacity, head_dim]`. Those beyond the capacity are dropped.
    pub fn split_heads(
        &self,
        stream: &Stream,
        input: &Packed<'_, T>,
        q: impl Write<T>,
        k: impl Write<T>,
        v: impl Write<T>,
        sizes: &HeadSizes,
    ) -> Done {
        sizes.check(DOING)?;
        input.check_parameters(DOING, sizes)?;
        let rows = blocks(if sizes.is_empty() { 0 } else { sizes.rows() });
        let launch = Launch::new(stream, DOING)
            .fits(input.packed, sizes.rows().saturating_mul(sizes.packed_width()))
            .with_all(input.addresses())
            .rows_at(&input.addresses())
            .read(input.start, 1_u32)
            .write_rows(q, sizes.query_elements())
            .write_rows(k, sizes.cache_elements())
            .write_rows(v, sizes.cache_elements())
            .with_all([sizes.tokens, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.capacity])
            .with_all([input.positions(sizes), input.is_interleaved()])
            .with(input.epsilon());
        let (kernel, lanes) = self.split_kernel(sizes.head_dim / 2, launch.is_aligned::<T>(sizes.head_dim / 2));
        let threads = sizes.all_heads().saturating_mul(lanes.into());
        let grid = [rows, blocks(threads.div_ceil(THREADS.into())), 1];
        let block = [(threads.min(THREADS.into()) as u32).next_multiple_of(32), 1, 1];
        launch.with(lanes.ilog2()).run_early(kernel, Shape::new(grid, block), self.is_early)
    }

    /// The kernel for heads of this size, and its threads per head, a power of two.
    fn split_kernel(&self, half: u32, is_aligned: bool) -> (&Kernel, u32) {
        match vectors::<T>(half).next_power_of_two() {
            lanes @ ..=32 if is_aligned => (&self.split_heads.vectorised, lanes),
            _ => (&self.split_heads.any, 32),
        }
    }
}

impl<T: Pod> Packed<'_, T> {
    /// Checks everything but the packed rows.
    pub(super) fn check_parameters(&self, doing: &str, sizes: &HeadSizes) -> Done {
        let (width, head_dim) = (sizes.packed_width(), u64::from(sizes.head_dim));
        let holds = |slice: Slice<'_, T>, elements: u64| slice.length() as u64 >= elements;
        let bias = self.bias.is_none_or(|bias| holds(bias, width));
        let norm = self.norm.as_ref().is_none_or(|norm| holds(norm.q, head_dim) && holds(norm.k, head_dim));
        expect(doing, bias && norm, "a buffer is too small")?;
        expect(doing, head_dim.is_multiple_of(2), "the head size must be even")?;
        expect(doing, self.positions(sizes) > 0, "the RoPE tables are empty")
    }

    /// Positions in the RoPE tables.
    pub(super) fn positions(&self, sizes: &HeadSizes) -> u32 {
        let length = self.rotation.cosines.length().min(self.rotation.sines.length());
        let half = sizes.head_dim as usize / 2;
        u32::try_from(length.checked_div(half).unwrap_or(usize::MAX)).unwrap_or(u32::MAX)
    }

    /// The addresses of packed rows, bias, norm weights, cosines and sines; null if absent.
    pub(super) fn addresses(&self) -> [u64; 6] {
        let norm = self.norm.as_ref().map_or([0, 0], |norm| [norm.q.pointer(), norm.k.pointer()]);
        let (cosines, sines) = (self.rotation.cosines.pointer(), self.rotation.sines.pointer());
        let bias = self.bias.map_or(0, |bias| bias.pointer());
        [self.packed.pointer(), bias, norm[0], norm[1], cosines, sines]
    }

    pub(super) fn is_interleaved(&self) -> u32 {
        u32::from(self.rotation.pairing == Pairing::Pairs)
    }

    pub(super) fn epsilon(&self) -> f32 {
        self.norm.as_ref().map_or(0.0, |norm| norm.epsilon)
    }
}
