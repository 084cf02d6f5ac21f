//! Gradients that are copied, added up by token or by column, added and scaled.

use super::Gradients;
use crate::launch::*;
use crate::nn::{HeadSizes, operations::move_heads};

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
    ) -> Done {
        move_heads(stream, "splitting heads", &self.split_rows_to_heads, rows.into(), heads_apart.into(), sizes)
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
    ) -> Done {
        const DOING: &str = "taking an embedding's gradient";
        let (tokens, d_table, scratch) = (tokens.into(), d_table.into(), scratch.into());
        let (count, noted) = (blocks(tokens.length()), self.embed_scratch_length(vocabulary));
        let launch = Launch::new(stream, DOING)
            .require(count < 1 << 31, "too many rows")
            .require(scratch.length() >= noted, "the scratch is too small")
            .read(tokens, count)
            .write(&scratch, 0_u32);
        let notes = launch.clone().with_all([count, vocabulary]);
        let launch = launch
            .read_rows(d_rows.into(), area(count, width))
            .write_rows(&d_table, area(vocabulary, width))
            .with_all([count, vocabulary, width])
            .with(is_added);
        let (kernel, shape) = self.embed_kernel(count, width, launch.is_aligned::<T>(width));
        let launch = launch.require(shape.grid[1] < 1 << 16, "the rows are too wide").skip_if(width == 0);
        launch.check()?;
        scratch.slice(0..noted)?.zero_on(stream)?;
        if !is_added {
            d_table.slice(0..vocabulary as usize * width as usize)?.zero_on(stream)?;
        }
        notes.run(&self.note_tokens, Shape::line(count.div_ceil(256), 256))?;
        launch.run(kernel, shape)
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
    ) -> Done {
        const DOING: &str = "adding up columns";
        let (sums, scratch) = (sums.into(), scratch.into());
        let launch = Launch::new(stream, DOING)
            .require(rows < 1 << 31, "too many rows")
            .fits(&sums, width)
            .read_rows(x.into(), area(rows, width));
        let (kernel, columns) = self.column_sums.chosen::<T>(width, launch.is_aligned::<T>(width));
        let strips = columns.div_ceil(32);
        let (parts, rows_per_part) = parts_of(rows, strips, self.multiprocessors);
        let shape = Shape { grid: [strips, parts, 1], block: [32, ROWS_AT_ONCE, 1], shared_bytes: 0 };
        self.scratch(launch, &scratch, width).with_all([rows, width, rows_per_part]).run(kernel, shape)?;
        self.sum_partials(stream, scratch.pointer(), &sums, parts, [width, width])
    }

    /// Adds `y` to `x`, which is as long.
    pub fn add<'a>(&self, stream: &Stream, x: impl Into<SliceMut<'a, T>>, y: impl Into<Slice<'a, T>>) -> Done {
        let x = x.into();
        let (y, count) = (y.into(), x.length() as u64);
        let launch = Launch::new(stream, "adding")
            .require(x.length() == y.length(), "the slices differ in length")
            .write_rows(x, count)
            .read_rows(y, count)
            .with(count)
            .with_alignment::<T>(0)
            .skip_if(count == 0);
        launch.run(&self.add, self.along(count))
    }

    /// Multiplies all of `x` by `factor`.
    pub fn scale<'a>(&self, stream: &Stream, x: impl Into<SliceMut<'a, T>>, factor: f32) -> Done {
        let x = x.into();
        let count = x.length() as u64;
        let launch =
            Launch::new(stream, "scaling").write_rows(x, count).with(factor).with(count).with_alignment::<T>(0);
        launch.skip_if(count == 0).run(&self.scale, self.along(count))
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
