//! Taking queries, keys and values apart.

use bytemuck::Pod;

use super::{HeadSizes, Operations};
use crate::launch::*;

/// Which two numbers of a head are rotated together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pairing {
    /// Number i of the first half and number i of the second.
    Halves,
    /// Numbers 2i and 2i + 1.
    Pairs,
}

/// By how much heads are rotated at each position.
#[derive(Debug, Clone, Copy)]
pub struct Rotation<'a> {
    /// Cosines, positions by `head_dim / 2`.
    pub cosines: Slice<'a, f32>,
    /// Sines, positions by `head_dim / 2`.
    pub sines: Slice<'a, f32>,
    /// What is rotated together.
    pub pairing: Pairing,
}

/// The RMS norm of each head of queries and of keys, before it is rotated.
#[derive(Debug)]
pub struct HeadNorm<'a, T> {
    /// The weight of queries, `head_dim` numbers.
    pub q: Slice<'a, T>,
    /// The weight of keys.
    pub k: Slice<'a, T>,
    /// Added to the mean square.
    pub epsilon: f32,
}

/// One product of all queries, keys and values, and what is to be done with them on the way.
#[derive(Debug)]
pub struct Packed<'a, T> {
    /// Sequences by tokens by all heads of q, then of k, then of v.
    pub packed: Slice<'a, T>,
    /// Added to each row.
    pub bias: Option<Slice<'a, T>>,
    /// The norm of each head.
    pub norm: Option<HeadNorm<'a, T>>,
    /// The rotation by position.
    pub rotation: Rotation<'a>,
    /// The position of the first token, one number on the device, so that it may change between replays of a graph.
    pub start: Slice<'a, u32>,
}

const DOING: &str = "splitting heads";
/// The most threads of a block, which has heads of one token.
const THREADS: u32 = 256;

impl<T: Element> Operations<T> {
    /// Puts queries into `q`, [batch, heads, tokens, head_dim], and keys and values into the caches,
    /// [batch, kv_heads, capacity, head_dim], at their positions. What has a position beyond the cache is not kept.
    pub fn split_heads<'a>(
        &self,
        stream: &Stream,
        input: &Packed<'_, T>,
        q: impl Into<SliceMut<'a, T>>,
        k: impl Into<SliceMut<'a, T>>,
        v: impl Into<SliceMut<'a, T>>,
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
            .write_rows(q.into(), sizes.query_numbers())
            .write_rows(k.into(), sizes.cache_numbers())
            .write_rows(v.into(), sizes.cache_numbers())
            .with_all([sizes.tokens, sizes.heads, sizes.kv_heads, sizes.head_dim, sizes.capacity])
            .with_all([input.positions(sizes), input.by_pairs()])
            .with(input.epsilon());
        let (kernel, lanes) = self.split_kernel(sizes.head_dim / 2, launch.is_aligned::<T>(sizes.head_dim / 2));
        let threads = sizes.all_heads().saturating_mul(lanes.into());
        let grid = [rows, blocks(threads.div_ceil(THREADS.into())), 1];
        let block = (threads.min(THREADS.into()) as u32).next_multiple_of(32);
        let shape = Shape { grid, block: [block, 1, 1], shared_bytes: 0 };
        launch.with(lanes.ilog2()).run_early(kernel, shape, self.is_early)
    }

    /// The kernel for heads of this size and its threads a head, a power of two.
    fn split_kernel(&self, half: u32, is_aligned: bool) -> (&Kernel, u32) {
        match groups::<T>(half).next_power_of_two() {
            lanes @ ..=32 if is_aligned => (&self.split_heads.by_16_bytes, lanes),
            _ => (&self.split_heads.any, 32),
        }
    }
}

impl<T: Pod> Packed<'_, T> {
    /// Checks everything but the packed rows.
    pub(super) fn check_parameters(&self, doing: &str, sizes: &HeadSizes) -> Done {
        let (width, head_dim) = (sizes.packed_width(), u64::from(sizes.head_dim));
        let holds = |slice: Slice<'_, T>, numbers: u64| slice.length() as u64 >= numbers;
        let bias = self.bias.is_none_or(|bias| holds(bias, width));
        let norm = self.norm.as_ref().is_none_or(|norm| holds(norm.q, head_dim) && holds(norm.k, head_dim));
        expect(doing, bias && norm, "a buffer is too small")?;
        expect(doing, head_dim.is_multiple_of(2), "a head of an odd size cannot be rotated")?;
        expect(doing, self.positions(sizes) > 0, "the rotation has no position")
    }

    /// Positions that the rotation is known for.
    pub(super) fn positions(&self, sizes: &HeadSizes) -> u32 {
        let numbers = self.rotation.cosines.length().min(self.rotation.sines.length());
        let half = sizes.head_dim as usize / 2;
        u32::try_from(numbers.checked_div(half).unwrap_or(usize::MAX)).unwrap_or(u32::MAX)
    }

    /// The addresses of packed rows, bias, norms' weights, cosines and sines; zero for what is absent.
    pub(super) fn addresses(&self) -> [u64; 6] {
        let norm = self.norm.as_ref().map_or([0, 0], |norm| [norm.q.pointer(), norm.k.pointer()]);
        let (cosines, sines) = (self.rotation.cosines.pointer(), self.rotation.sines.pointer());
        let bias = self.bias.map_or(0, |bias| bias.pointer());
        [self.packed.pointer(), bias, norm[0], norm[1], cosines, sines]
    }

    /// Whether neighbours are rotated together, as the kernels take it.
    pub(super) fn by_pairs(&self) -> u32 {
        u32::from(self.rotation.pairing == Pairing::Pairs)
    }

    /// What is added to the mean square of a head; 0 without a norm.
    pub(super) fn epsilon(&self) -> f32 {
        self.norm.as_ref().map_or(0.0, |norm| norm.epsilon)
    }
}
