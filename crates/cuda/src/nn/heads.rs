//! Taking queries, keys and values apart.
#![allow(unsafe_code)]

use bytemuck::Pod;

use super::{
    HeadSizes, Operations,
    operations::{count_rows, groups, launch},
    sizes::{has_room, holds, is_by_16_bytes},
};
use crate::{
    blas::Element,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    slice::{Slice, SliceMut},
    stream::Stream,
};

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
    ) -> Result<(), CudaError> {
        let outputs = [q.into(), k.into(), v.into()];
        let half = sizes.head_dim / 2;
        sizes.check(DOING)?;
        input.check(sizes)?;
        let [q_fits, k_fits, v_fits] = [0, 1, 2]
            .map(|i| has_room(&outputs[i], if i == 0 { sizes.query_numbers() } else { sizes.cache_numbers() }));
        expect(DOING, q_fits && k_fits && v_fits, "a buffer is too small")?;
        let rows = count_rows(DOING, if sizes.is_empty() { 0 } else { sizes.rows() })?;
        let (kernel, lanes) = self.split_kernel(half, &input.addresses(&outputs));
        let all_heads = u64::from(sizes.heads) + 2 * u64::from(sizes.kv_heads);
        let threads = all_heads.saturating_mul(lanes.into());
        let block = threads.min(THREADS.into()) as u32;
        let grid = [rows, u32::try_from(threads.div_ceil(THREADS.into())).unwrap_or(u32::MAX), 1];
        expect(DOING, grid[1] < 1 << 16, "too many heads")?;
        let shape = Shape { grid, block: [block.next_multiple_of(32), 1, 1], shared_bytes: 0 };
        let arguments = input.arguments(&outputs, sizes, lanes.ilog2());
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        launch(rows, || unsafe { kernel.launch(stream, shape, &arguments) })
    }

    /// The kernel for heads of this size at these addresses, and its threads a head, a power of two.
    fn split_kernel(&self, half: u32, addresses: &[u64]) -> (&Kernel, u32) {
        match groups::<T>(half).next_power_of_two() {
            lanes @ ..=32 if is_by_16_bytes::<T>(half, addresses) => (&self.split_heads.by_16_bytes, lanes),
            _ => (&self.split_heads.any, 32),
        }
    }
}

impl<T: Pod> Packed<'_, T> {
    fn check(&self, sizes: &HeadSizes) -> Result<(), CudaError> {
        let packed = u128::from(sizes.rows()) * u128::from(sizes.packed_width()) <= self.packed.length() as u128;
        expect(DOING, packed, "a buffer is too small")?;
        self.check_parameters(DOING, sizes)
    }

    /// Checks everything but the packed rows.
    pub(super) fn check_parameters(&self, doing: &str, sizes: &HeadSizes) -> Result<(), CudaError> {
        let (width, head_dim) = (sizes.packed_width(), u64::from(sizes.head_dim));
        let bias = self.bias.is_none_or(|bias| holds(bias, width));
        let norm = self.norm.as_ref().is_none_or(|norm| holds(norm.q, head_dim) && holds(norm.k, head_dim));
        expect(doing, bias && norm && holds(self.start, 1), "a buffer is too small")?;
        expect(doing, head_dim.is_multiple_of(2), "a head of an odd size cannot be rotated")?;
        expect(doing, self.positions(sizes) > 0, "the rotation has no position")
    }

    /// Positions that the rotation is known for.
    pub(super) fn positions(&self, sizes: &HeadSizes) -> u32 {
        let numbers = self.rotation.cosines.length().min(self.rotation.sines.length());
        let half = sizes.head_dim as usize / 2;
        u32::try_from(numbers.checked_div(half).unwrap_or(usize::MAX)).unwrap_or(u32::MAX)
    }

    fn addresses(&self, outputs: &[SliceMut<'_, T>; 3]) -> [u64; 9] {
        let [packed, bias, q_norm, k_norm, cosines, sines] = self.inputs();
        let [q, k, v] = [0, 1, 2].map(|i| outputs[i].pointer());
        [packed, bias, q_norm, k_norm, cosines, sines, q, k, v]
    }

    /// The addresses of packed rows, bias, norms' weights, cosines and sines; zero for what is absent.
    pub(super) fn inputs(&self) -> [u64; 6] {
        let norm = self.norm.as_ref().map_or([0, 0], |norm| [norm.q.pointer(), norm.k.pointer()]);
        let (cosines, sines) = (self.rotation.cosines.pointer(), self.rotation.sines.pointer());
        let bias = self.bias.map_or(0, |bias| bias.pointer());
        [self.packed.pointer(), bias, norm[0], norm[1], cosines, sines]
    }

    fn arguments(&self, outputs: &[SliceMut<'_, T>; 3], sizes: &HeadSizes, lane_bits: u32) -> [Argument; 19] {
        let [packed, bias, q_norm, k_norm, cosines, sines, q, k, v] = self.addresses(outputs).map(Argument::from);
        let HeadSizes { tokens, heads, kv_heads, head_dim, capacity, .. } = *sizes;
        let by_pairs = u32::from(self.rotation.pairing == Pairing::Pairs);
        let [tokens, heads, kv_heads, head_dim, capacity, positions, by_pairs, lane_bits] =
            [tokens, heads, kv_heads, head_dim, capacity, self.positions(sizes), by_pairs, lane_bits]
                .map(Argument::from);
        let epsilon = Argument::from(self.norm.as_ref().map_or(0.0, |norm| norm.epsilon));
        let start = Argument::from(self.start);
        [
            packed, bias, q_norm, k_norm, cosines, sines, start, q, k, v, tokens, heads, kv_heads, head_dim, capacity,
            positions, by_pairs, epsilon, lane_bits,
        ]
    }
}
