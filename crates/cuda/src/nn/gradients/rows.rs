//! Gradients that are copied, added up by token or by column, added and scaled.
#![allow(unsafe_code)]

use super::Gradients;
use crate::{
    blas::Element,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    nn::{
        HeadSizes,
        operations::{area, copying_threads, count_rows, launch},
        sizes::{has_room, holds, is_by_16_bytes},
    },
    slice::{Slice, SliceMut},
    stream::Stream,
};

/// Rows that a block of `column_sums` has at a time; the kernel has the same number.
const ROWS_AT_ONCE: u32 = 8;

impl<T: Element> Gradients<T> {
    /// Takes heads that lie side by side, [batch, tokens, heads * head_dim], apart: [batch, heads, tokens, head_dim].
    pub fn split_rows_to_heads<'a>(
        &self,
        stream: &Stream,
        rows: impl Into<Slice<'a, T>>,
        heads_apart: impl Into<SliceMut<'a, T>>,
        sizes: &HeadSizes,
    ) -> Result<(), CudaError> {
        let (rows, to) = (rows.into(), heads_apart.into());
        sizes.check("splitting heads")?;
        let fits = holds(rows, sizes.query_numbers()) && has_room(&to, sizes.query_numbers());
        expect("splitting heads", fits, "a buffer is too small")?;
        let HeadSizes { batch, tokens, heads, head_dim, .. } = *sizes;
        let aligned = is_by_16_bytes::<T>(head_dim, &[rows.pointer(), to.pointer()]);
        let arguments: [Argument; 6] =
            [rows.into(), (&to).into(), heads.into(), tokens.into(), head_dim.into(), u32::from(aligned).into()];
        let threads = copying_threads::<T>(heads.saturating_mul(head_dim));
        let shape = Shape { grid: [tokens, batch, 1], block: [threads, 1, 1], shared_bytes: 0 };
        // SAFETY: the kernel copies each number once.
        launch(u32::from(!sizes.is_empty()), || unsafe { self.split_rows_to_heads.launch(stream, shape, &arguments) })
    }

    /// Numbers that [`Gradients::embed_backward`] needs as scratch.
    pub fn embed_scratch_length(&self, vocabulary: u32) -> usize {
        2 * vocabulary as usize
    }

    /// Adds up the rows of `d_rows` (tokens by `width`) that are of the same token into its row of `d_table` (vocabulary by
    /// `width`), to which they are added where `is_added`; else the rows of other tokens become zero.
    ///
    /// A token that is not in the vocabulary is passed over.
    #[allow(clippy::too_many_arguments)]
    pub fn embed_backward<'a>(
        &self,
        stream: &Stream,
        tokens: impl Into<Slice<'a, u32>>,
        d_rows: impl Into<Slice<'a, T>>,
        d_table: impl Into<SliceMut<'a, T>>,
        scratch: impl Into<SliceMut<'a, u32>>,
        [vocabulary, width]: [u32; 2],
        is_added: bool,
    ) -> Result<(), CudaError> {
        const DOING: &str = "taking an embedding's gradient";
        let (tokens, d_rows, d_table, scratch) = (tokens.into(), d_rows.into(), d_table.into(), scratch.into());
        let count = count_rows(DOING, tokens.length() as u64)?;
        let table = area(vocabulary, width);
        expect(DOING, holds(d_rows, area(count, width)) && has_room(&d_table, table), "a buffer is too small")?;
        let noted = self.embed_scratch_length(vocabulary);
        expect(DOING, has_room(&scratch, noted as u64), "the scratch is too small")?;
        let mut scratch = scratch.slice(0..noted)?;
        scratch.zero_on(stream)?;
        let mut d_table = d_table.slice(0..table as usize)?;
        if !is_added {
            d_table.zero_on(stream)?;
        }
        let [count, vocabulary] = [count, vocabulary].map(Argument::from);
        let notes: [Argument; 4] = [tokens.into(), (&scratch).into(), count, vocabulary];
        let blocks = tokens.length().div_ceil(256) as u32;
        // SAFETY: the kernel notes two numbers for a token of the vocabulary.
        launch(blocks, || unsafe { self.note_tokens.launch(stream, Shape::line(blocks, 256), &notes) })?;
        let aligned = is_by_16_bytes::<T>(width, &[d_rows.pointer(), d_table.pointer()]);
        let (kernel, shape) = self.embed_kernel(tokens.length() as u32, width, aligned);
        expect(DOING, shape.grid[1] < 1 << 16, "the rows are too wide")?;
        let is_added = u32::from(is_added).into();
        let arguments: [Argument; 8] = [
            tokens.into(),
            (&scratch).into(),
            d_rows.into(),
            (&d_table).into(),
            count,
            vocabulary,
            width.into(),
            is_added,
        ];
        // SAFETY: the kernel reads the rows, and writes that of a token of the vocabulary by one block of columns.
        launch(blocks.min(width), || unsafe { kernel.launch(stream, shape, &arguments) })
    }

    fn embed_kernel(&self, tokens: u32, width: u32, is_aligned: bool) -> (&Kernel, Shape) {
        let (kernel, columns) = self.embed_backward.chosen::<T>(width, is_aligned);
        let threads = columns.next_multiple_of(32).clamp(32, 256);
        let grid = [tokens, columns.div_ceil(threads).max(1), 1];
        (kernel, Shape { grid, block: [threads, 1, 1], shared_bytes: 0 })
    }

    /// Puts the sums of the columns of `x` (rows by `width`) into `sums`: the gradient of a bias. `scratch` has
    /// [`Gradients::scratch_length`] of the width.
    pub fn column_sums<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        sums: impl Into<SliceMut<'a, T>>,
        scratch: impl Into<SliceMut<'a, f32>>,
        [rows, width]: [u32; 2],
    ) -> Result<(), CudaError> {
        const DOING: &str = "adding up columns";
        let (x, sums, scratch) = (x.into(), sums.into(), scratch.into());
        expect(DOING, holds(x, area(rows, width)) && has_room(&sums, width.into()), "a buffer is too small")?;
        self.expect_scratch(DOING, &scratch, width)?;
        let rows = count_rows(DOING, rows.into())?;
        let (kernel, columns) = self.column_sums.chosen::<T>(width, is_by_16_bytes::<T>(width, &[x.pointer()]));
        let strips = columns.div_ceil(32);
        let (parts, rows_per_part) = parts_of(rows, strips, self.multiprocessors);
        let shape = Shape { grid: [strips, parts, 1], block: [32, ROWS_AT_ONCE, 1], shared_bytes: 0 };
        let arguments: [Argument; 5] = [x.into(), (&scratch).into(), rows.into(), width.into(), rows_per_part.into()];
        // SAFETY: the kernel stays within the rows, and each part has its own row of the scratch, which has as many.
        launch(strips.min(parts), || unsafe { kernel.launch(stream, shape, &arguments) })?;
        self.sum_partials(stream, scratch.pointer(), &sums, parts, [width, width])
    }

    /// Adds `y` to `x`, which is as long.
    pub fn add<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        y: impl Into<Slice<'a, T>>,
    ) -> Result<(), CudaError> {
        let (x, y) = (x.into(), y.into());
        expect("adding", x.length() == y.length(), "the slices differ in length")?;
        let aligned = is_by_16_bytes::<T>(0, &[x.pointer(), y.pointer()]);
        let count = x.length() as u64;
        let arguments: [Argument; 4] = [(&x).into(), y.into(), count.into(), u32::from(aligned).into()];
        // SAFETY: the kernel reads and writes `count` numbers.
        launch(u32::from(count > 0), || unsafe { self.add.launch(stream, self.along(count), &arguments) })
    }

    /// Multiplies all of `x` by `factor`.
    pub fn scale<'a>(&self, stream: &Stream, x: impl Into<SliceMut<'a, T>>, factor: f32) -> Result<(), CudaError> {
        let x = x.into();
        let aligned = is_by_16_bytes::<T>(0, &[x.pointer()]);
        let count = x.length() as u64;
        let arguments: [Argument; 4] = [(&x).into(), factor.into(), count.into(), u32::from(aligned).into()];
        // SAFETY: as above.
        launch(u32::from(count > 0), || unsafe { self.scale.launch(stream, self.along(count), &arguments) })
    }

    /// Blocks for this number of elements, limited by the work.
    fn along(&self, count: u64) -> Shape {
        let blocks = count.div_ceil(256 * 16 / size_of::<T>() as u64).min(u64::from(self.multiprocessors) * 8);
        Shape::line(blocks.max(1) as u32, 256)
    }
}

/// Into how many parts rows are divided, so that parts and strips of columns fill the device, and how many rows each has.
fn parts_of(rows: u32, strips: u32, multiprocessors: u32) -> (u32, u32) {
    let wanted = (8 * multiprocessors).div_ceil(strips.max(1)).clamp(1, super::PARTS * multiprocessors);
    let rows_per_part = rows.div_ceil(wanted).max(ROWS_AT_ONCE);
    (rows.div_ceil(rows_per_part), rows_per_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_have_all_rows_and_are_no_more_than_the_scratch_holds() {
        for (rows, strips) in [(1, 1), (7, 3), (2048, 12), (2048, 1), (65_536, 80), (100_000, 100_000)] {
            let (parts, rows_per_part) = parts_of(rows, strips, 132);
            assert!(parts <= super::super::PARTS * 132 && parts * rows_per_part >= rows, "{rows} {strips}");
            assert!((parts - 1) * rows_per_part < rows, "{rows} {strips}");
        }
        assert_eq!(parts_of(0, 1, 132).0, 0);
    }
}
