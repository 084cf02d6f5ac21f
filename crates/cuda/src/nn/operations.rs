//! Operations on rows.
#![allow(unsafe_code)]

use std::{marker::PhantomData, sync::Arc};

use super::{
    ARGMAX, HEADS, HeadSizes, RANDOM, RMS_NORM, ROWS, SOFTMAX, SWIGLU,
    sizes::{has_room, holds, is_by_16_bytes},
    softmax::KEPT,
};
use crate::{
    blas::Element,
    cache::Cache,
    device::Device,
    error::CudaError,
    kernel::{Argument, Kernel, Module, Shape},
    kernels::expect,
    nvrtc::{self, Source},
    slice::{Slice, SliceMut},
    stream::Stream,
};

/// Groups of 16 bytes that a thread of `rms_norm` keeps; the kernel has the same number.
const NORM_KEPT: u32 = 2;
/// Threads a row of kernels that can have any number of them.
const THREADS: u32 = 256;
/// The most blocks along the second side of a grid.
const MOST_BLOCKS_Y: u32 = 65_535;
/// Blocks that share a row of `argmax`, where the device has clusters; the kernel has the same number.
const ARGMAX_BLOCKS: u32 = 8;

/// The operations of a transformer on numbers of one type, on one device.
#[derive(Debug)]
pub struct Operations<T> {
    embed: Kernel,
    last_rows: Kernel,
    merge_heads: Kernel,
    rms_norm: Pair,
    pub(super) split_heads: Pair,
    pub(super) softmax_causal: [Kernel; 3],
    pub(super) softmax_causal_any: Kernel,
    swiglu: Pair,
    add_bias: Pair,
    argmax: Kernel,
    argmax_blocks: u32,
    pub(super) fill_random: Kernel,
    pub(super) fill_numbers: Kernel,
    pub(super) count_not_finite: Kernel,
    pub(super) along_memory: Shape,
    of: PhantomData<T>,
}

/// A kernel that goes by groups of 16 bytes, and the same for what cannot be divided so.
#[derive(Debug)]
pub(super) struct Pair {
    pub(super) by_16_bytes: Kernel,
    pub(super) any: Kernel,
}

impl<T: Element> Operations<T> {
    /// Loads them all, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let module =
            |source: Source<'_>| nvrtc::load(device, cache, source, &[T::OPTION.to_owned()]).map(|(module, _)| module);
        let (rows, norm, heads) = (module(ROWS)?, module(RMS_NORM)?, module(HEADS)?);
        let (softmax, swiglu, random) = (module(SOFTMAX)?, module(SWIGLU)?, module(RANDOM)?);
        let pair = |module: &Arc<Module>, name: &str| {
            let any = module.kernel(&format!("{name}_any"))?;
            Ok::<_, CudaError>(Pair { by_16_bytes: module.kernel(name)?, any })
        };
        let softmax_of = |kept: u32| softmax.kernel(&format!("softmax_causal_{kept}"));
        Ok(Self {
            embed: rows.kernel("embed")?,
            last_rows: rows.kernel("last_rows")?,
            merge_heads: rows.kernel("merge_heads")?,
            rms_norm: pair(&norm, "rms_norm")?,
            split_heads: pair(&heads, "split_heads")?,
            softmax_causal: [softmax_of(KEPT[0])?, softmax_of(KEPT[1])?, softmax_of(KEPT[2])?],
            softmax_causal_any: softmax.kernel("softmax_causal_any")?,
            swiglu: pair(&swiglu, "swiglu")?,
            add_bias: pair(&swiglu, "add_bias")?,
            argmax: module(ARGMAX)?.kernel("argmax")?,
            argmax_blocks: if device.facts().capability.0 >= 9 { ARGMAX_BLOCKS } else { 1 },
            fill_random: random.kernel("fill_random")?,
            fill_numbers: random.kernel("fill_numbers")?,
            count_not_finite: random.kernel("count_not_finite")?,
            along_memory: Shape::line(device.facts().multiprocessors.max(1) * 8, THREADS),
            of: PhantomData,
        })
    }

    /// Puts the row of `table` (vocabulary by `width`) for each token into `out` (tokens by `width`).
    ///
    /// A token that is not in the vocabulary gets a row that is no number.
    pub fn embed<'a>(
        &self,
        stream: &Stream,
        tokens: impl Into<Slice<'a, u32>>,
        table: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        [vocabulary, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let (tokens, table, out) = (tokens.into(), table.into(), out.into());
        let rows = count_rows("embedding", tokens.length() as u64)?;
        let fits = holds(table, area(vocabulary, width)) && has_room(&out, area(rows, width));
        expect("embedding", fits, "a buffer is too small")?;
        let aligned = is_by_16_bytes::<T>(width, &[table.pointer(), out.pointer()]);
        let arguments: [Argument; 6] =
            [tokens.into(), table.into(), (&out).into(), vocabulary.into(), width.into(), u32::from(aligned).into()];
        // SAFETY: the kernel reads a token and, if it is in the vocabulary, its row, and writes a row for each.
        launch(rows, || unsafe {
            self.embed.launch(stream, Shape::line(rows, copying_threads::<T>(width)), &arguments)
        })
    }

    /// Puts each row of `x` (rows by `width`), divided by the root of its mean square plus `epsilon` and multiplied by
    /// `weight`, into `out`.
    pub fn rms_norm<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        weight: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Result<(), CudaError> {
        let (x, weight, out) = (x.into(), weight.into(), out.into());
        let fits = holds(x, area(rows, width)) && has_room(&out, area(rows, width)) && holds(weight, width.into());
        expect("normalising", fits, "a buffer is too small")?;
        let rows = count_rows("normalising", rows.into())?;
        let aligned = is_by_16_bytes::<T>(width, &[x.pointer(), weight.pointer(), out.pointer()]);
        let (kernel, threads) = match norm_threads(groups::<T>(width)) {
            Some(threads) if aligned => (&self.rms_norm.by_16_bytes, threads),
            _ => (&self.rms_norm.any, width.clamp(32, 1024).next_multiple_of(32)),
        };
        let arguments: [Argument; 5] = [x.into(), weight.into(), (&out).into(), width.into(), epsilon.into()];
        // SAFETY: the kernel reads and writes a row a block, and there are as many.
        launch(rows, || unsafe { kernel.launch(stream, Shape::line(rows, threads), &arguments) })
    }

    /// Puts `silu(gate) * up` into `out` (rows by `ffn`). A row of `gate_up` is the gate and then what it lets through;
    /// the bias, where there is one, is added to both.
    pub fn swiglu<'a>(
        &self,
        stream: &Stream,
        gate_up: impl Into<Slice<'a, T>>,
        bias: Option<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        [rows, ffn]: [u32; 2],
    ) -> Result<(), CudaError> {
        let (gate_up, out) = (gate_up.into(), out.into());
        let fits = holds(gate_up, area(rows, ffn).saturating_mul(2)) && has_room(&out, area(rows, ffn));
        let biased = bias.is_none_or(|bias| holds(bias, 2 * u64::from(ffn)));
        expect("gating", fits && biased, "a buffer is too small")?;
        let places = [gate_up.pointer(), out.pointer(), bias.map_or(0, |bias| bias.pointer())];
        let aligned = is_by_16_bytes::<T>(ffn, &places);
        let arguments: [Argument; 5] = [gate_up.into(), bias.into(), (&out).into(), rows.into(), ffn.into()];
        // SAFETY: the kernel stays within the sizes, and the buffers are at least as large.
        launch(rows, || unsafe { self.swiglu.launch::<T>(stream, [rows, ffn], aligned, &arguments) })
    }

    /// Adds `bias` to each row of `x` (rows by `width`).
    pub fn add_bias<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        bias: impl Into<Slice<'a, T>>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let (x, bias) = (x.into(), bias.into());
        let fits = has_room(&x, area(rows, width)) && holds(bias, width.into());
        expect("adding a bias", fits, "a buffer is too small")?;
        let aligned = is_by_16_bytes::<T>(width, &[x.pointer(), bias.pointer()]);
        let arguments: [Argument; 4] = [(&x).into(), bias.into(), rows.into(), width.into()];
        // SAFETY: as above.
        launch(rows, || unsafe { self.add_bias.launch::<T>(stream, [rows, width], aligned, &arguments) })
    }

    /// Puts the index of the largest number of each row of `x` (rows by `width`) into `indices`: the lowest of several,
    /// never that of what is no number, and 0 where nothing is one.
    pub fn argmax<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        indices: impl Into<SliceMut<'a, u32>>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        let (x, indices) = (x.into(), indices.into());
        let fits = holds(x, area(rows, width)) && has_room(&indices, rows.into());
        expect("selecting the largest", fits && width < 1 << 31, "a buffer is too small")?;
        let blocks = count_rows("selecting the largest", u64::from(rows) * u64::from(self.argmax_blocks))?;
        let aligned = is_by_16_bytes::<T>(width, &[x.pointer()]);
        let arguments: [Argument; 4] = [x.into(), (&indices).into(), width.into(), u32::from(aligned).into()];
        // SAFETY: the kernel reads the rows and writes an index for each.
        launch(rows, || unsafe { self.argmax.launch(stream, Shape::line(blocks, 1024), &arguments) })
    }

    /// Puts the last row of each sequence of `x` (batch by tokens by `width`) into `out` (batch by `width`).
    pub fn last_rows<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        [batch, tokens, width]: [u32; 3],
    ) -> Result<(), CudaError> {
        let (x, out) = (x.into(), out.into());
        let fits = u128::from(area(batch, tokens)) * u128::from(width) <= x.length() as u128;
        expect("taking the last rows", fits && has_room(&out, area(batch, width)), "a buffer is too small")?;
        expect("taking the last rows", tokens > 0, "an empty sequence has no last row")?;
        let batch = count_rows("taking the last rows", batch.into())?;
        let aligned = is_by_16_bytes::<T>(width, &[x.pointer(), out.pointer()]);
        let arguments: [Argument; 5] =
            [x.into(), (&out).into(), tokens.into(), width.into(), u32::from(aligned).into()];
        let shape = Shape::line(batch, copying_threads::<T>(width));
        // SAFETY: the kernel copies a row of each sequence.
        launch(batch, || unsafe { self.last_rows.launch(stream, shape, &arguments) })
    }

    /// Puts heads that lie apart, [batch, heads, tokens, head_dim], side by side: [batch, tokens, heads * head_dim].
    pub fn merge_heads<'a>(
        &self,
        stream: &Stream,
        heads_apart: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        sizes: &HeadSizes,
    ) -> Result<(), CudaError> {
        let (from, out) = (heads_apart.into(), out.into());
        sizes.check("merging heads")?;
        let fits = holds(from, sizes.query_numbers()) && has_room(&out, sizes.query_numbers());
        expect("merging heads", fits, "a buffer is too small")?;
        let HeadSizes { batch, tokens, heads, head_dim, .. } = *sizes;
        let aligned = is_by_16_bytes::<T>(head_dim, &[from.pointer(), out.pointer()]);
        let arguments: [Argument; 6] =
            [from.into(), (&out).into(), heads.into(), tokens.into(), head_dim.into(), u32::from(aligned).into()];
        let threads = copying_threads::<T>(heads.saturating_mul(head_dim));
        let shape = Shape { grid: [tokens, batch, 1], block: [threads, 1, 1], shared_bytes: 0 };
        // SAFETY: the kernel copies each number once.
        launch(u32::from(!sizes.is_empty()), || unsafe { self.merge_heads.launch(stream, shape, &arguments) })
    }
}

impl Pair {
    /// Which of the two, and the groups or single numbers of a row that it goes by.
    pub(super) fn chosen<T>(&self, width: u32, is_aligned: bool) -> (&Kernel, u32) {
        if is_aligned { (&self.by_16_bytes, groups::<T>(width)) } else { (&self.any, width) }
    }

    /// Launches one of the two over columns and rows.
    ///
    /// # Safety
    ///
    /// As for [`Kernel::launch`].
    pub(super) unsafe fn launch<T>(
        &self,
        stream: &Stream,
        [rows, width]: [u32; 2],
        is_aligned: bool,
        arguments: &[Argument],
    ) -> Result<(), CudaError> {
        let (kernel, columns) = self.chosen::<T>(width, is_aligned);
        let threads = columns.next_multiple_of(32).clamp(32, 128);
        let grid = [columns.div_ceil(threads).max(1), rows.min(MOST_BLOCKS_Y), 1];
        // SAFETY: the caller answers for it.
        unsafe { kernel.launch(stream, Shape { grid, block: [threads, 1, 1], shared_bytes: 0 }, arguments) }
    }
}

/// Launches, unless there is nothing to do: the driver refuses a grid of no blocks.
pub(super) fn launch(rows: u32, launch: impl FnOnce() -> Result<(), CudaError>) -> Result<(), CudaError> {
    if rows == 0 { Ok(()) } else { launch() }
}

pub(super) fn area(rows: u32, columns: u32) -> u64 {
    u64::from(rows) * u64::from(columns)
}

/// Rows as blocks of a grid.
pub(super) fn count_rows(doing: &str, rows: u64) -> Result<u32, CudaError> {
    expect(doing, rows < 1 << 31, "too many rows")?;
    Ok(rows as u32)
}

/// Groups of 16 bytes in this number of elements.
pub(super) fn groups<T>(width: u32) -> u32 {
    width / (16 / size_of::<T>() as u32)
}

/// Threads that copy a row.
pub(super) fn copying_threads<T>(width: u32) -> u32 {
    groups::<T>(width).next_multiple_of(32).clamp(32, THREADS)
}

/// Threads that normalise a row of this number of groups, if they can keep it.
pub(super) fn norm_threads(groups: u32) -> Option<u32> {
    let each = groups.div_ceil(THREADS).clamp(1, NORM_KEPT);
    let threads = groups.div_ceil(each).next_multiple_of(32).max(32);
    (threads <= 1024).then_some(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_shared_by_as_many_threads_as_can_keep_it() {
        assert_eq!(norm_threads(1), Some(32));
        assert_eq!(norm_threads(128), Some(128));
        assert_eq!(norm_threads(320), Some(160));
        assert_eq!(norm_threads(2048), Some(1024));
        assert_eq!(norm_threads(2049), None);
        for groups in 1..5000 {
            assert!(norm_threads(groups).is_none_or(|threads| threads * NORM_KEPT >= groups), "{groups}");
        }
    }

    #[test]
    fn more_rows_than_a_grid_has_blocks_are_refused() {
        assert!(count_rows("x", 1 << 31).is_err());
        assert_eq!(count_rows("x", 7).unwrap(), 7);
    }
}
