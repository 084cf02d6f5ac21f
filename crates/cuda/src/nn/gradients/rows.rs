//! The gradients of embeddings and biases.

use super::Gradients;
use crate::launch::*;

/// Rows that a block of `column_sums` has at a time; the kernel has the same constant.
const ROWS_AT_ONCE: u32 = 8;

impl<T: Element> Gradients<T> {
    /// The scratch length of [`Gradients::embed_backward`].
    pub fn embed_scratch_length(&self, vocabulary: u32) -> usize {
        2 * vocabulary as usize
    }

    /// The gradient of an embedding table `[vocabulary, width]`: sums the rows of `d_rows` `[tokens, width]` by token. With
    /// `is_added` it is added to `d_table`. Tokens outside the vocabulary are skipped.
    #[allow(clippy::too_many_arguments)]
    pub fn embed_backward<'a>(
        &self,
        stream: &Stream,
        tokens: impl Into<Slice<'a, u32>>,
        d_rows: impl Read<T>,
        d_table: impl Into<SliceMut<'a, T>>,
        scratch: impl Into<SliceMut<'a, u32>>,
        [vocabulary, width]: [u32; 2],
        is_added: bool,
    ) -> Done {
        const DOING: &str = "computing the gradient of an embedding";
        let (tokens, d_table, scratch) = (tokens.into(), d_table.into(), scratch.into());
        let (count, needed) = (blocks(tokens.length()), self.embed_scratch_length(vocabulary));
        let launch = Launch::new(stream, DOING)
            .require(count < 1 << 31, "too many rows")
            .require(scratch.length() >= needed, "the scratch is too small")
            .read(tokens, count)
            .write(&scratch, 0_u32);
        let ranges = launch.clone().with_all([count, vocabulary]);
        let launch = launch
            .read_rows(d_rows, area(count, width))
            .write_rows(&d_table, area(vocabulary, width))
            .with_all([count, vocabulary, width])
            .with(is_added);
        let (kernel, shape) = self.embed_kernel(count, width, launch.is_aligned::<T>(width));
        let launch = launch.require(shape.grid[1] < 1 << 16, "the rows are too wide").skip_if(width == 0);
        launch.check()?;
        scratch.slice(0..needed)?.zero_on(stream)?;
        if !is_added {
            d_table.slice(0..vocabulary as usize * width as usize)?.zero_on(stream)?;
        }
        ranges.run(&self.token_ranges, Shape::line(count.div_ceil(256), 256))?;
        launch.run(kernel, shape)
    }

    fn embed_kernel(&self, tokens: u32, width: u32, is_aligned: bool) -> (&Kernel, Shape) {
        let (kernel, columns) = self.embed_backward.chosen::<T>(width, is_aligned);
        let threads = columns.next_multiple_of(32).clamp(32, 256);
        (kernel, Shape::new([tokens, columns.div_ceil(threads).max(1), 1], [threads, 1, 1]))
    }

    /// Sums the columns of `x` `[rows, width]`: the gradient of a bias. `scratch` has [`Gradients::scratch_length`] of the
    /// width.
    pub fn column_sums<'a>(
        &self,
        stream: &Stream,
        x: impl Read<T>,
        sums: impl Into<SliceMut<'a, T>>,
        scratch: impl Into<SliceMut<'a, f32>>,
        [rows, width]: [u32; 2],
    ) -> Done {
        const DOING: &str = "summing columns";
        let (sums, scratch) = (sums.into(), scratch.into());
        let launch = Launch::new(stream, DOING)
            .require(rows < 1 << 31, "too many rows")
            .fits(&sums, width)
            .read_rows(x, area(rows, width));
        let (kernel, columns) = self.column_sums.chosen::<T>(width, launch.is_aligned::<T>(width));
        let strips = columns.div_ceil(32);
        let (parts, rows_per_part) = parts_of(rows, strips, self.multiprocessors);
        let shape = Shape::new([strips, parts, 1], [32, ROWS_AT_ONCE, 1]);
        self.scratch(launch, &scratch, width).with_all([rows, width, rows_per_part]).run(kernel, shape)?;
        self.sum_partials(stream, scratch.pointer(), &sums, parts, [width, width])
    }
}

/// The number of parts of the rows, so that parts and strips of columns fill the device, and rows per part.
fn parts_of(rows: u32, strips: u32, multiprocessors: u32) -> (u32, u32) {
    let wanted = (8 * multiprocessors).div_ceil(strips.max(1)).clamp(1, super::PARTS * multiprocessors);
    let rows_per_part = rows.div_ceil(wanted).max(ROWS_AT_ONCE);
    (rows.div_ceil(rows_per_part), rows_per_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_all_rows_and_fit_the_scratch() {
        for (rows, strips) in [(1, 1), (7, 3), (2048, 12), (2048, 1), (65_536, 80), (100_000, 100_000)] {
            let (parts, rows_per_part) = parts_of(rows, strips, 132);
            assert!(parts <= super::super::PARTS * 132 && parts * rows_per_part >= rows, "{rows} {strips}");
            assert!((parts - 1) * rows_per_part < rows, "{rows} {strips}");
        }
        assert_eq!(parts_of(0, 1, 132).0, 0);
    }
}
