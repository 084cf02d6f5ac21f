//! Operations on rows between the convolutions of a codec.

use super::AUDIO_ROWS;
use crate::launch::*;

const THREADS: u32 = 256;

/// Books of codes: the rows that codes stand for.
#[derive(Debug)]
pub struct Codebooks<'a, T> {
    /// `[groups, size, width]`.
    pub rows: Slice<'a, T>,
    /// Books.
    pub groups: u32,
    /// Codes of a book.
    pub size: u32,
    /// Numbers of a row.
    pub width: u32,
}

/// What a number is let through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// `x (1 + erf(x / √2)) / 2`: the exact gelu.
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

kernels! {
    /// Operations on rows of a codec, on numbers of one type, on one device.
    AudioRows
    AUDIO_ROWS {
        layer_norm: Kernel = kernel("layer_norm"),
        bias_gate: Pair = pair("bias_gate"),
        add_scaled: Pair = pair("add_scaled"),
        scale_rows: Kernel = kernel("scale_rows"),
        add_embedding: Kernel = kernel("add_embedding"),
        code_rows: Kernel = kernel("code_rows"),
    }
}

impl<T: Element> AudioRows<T> {
    /// Puts each row of `x` (rows by `width`), less its mean and divided by the root of its variance plus `epsilon`,
    /// times `weight` and with `bias` added, into `out`.
    pub fn layer_norm<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        [weight, bias]: [Slice<'_, T>; 2],
        out: impl Into<SliceMut<'a, T>>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Done {
        let launch = Launch::new(stream, "normalising a layer")
            .read(x.into(), area(rows, width))
            .read(weight, width)
            .read(bias, width)
            .write(out.into(), area(rows, width))
            .with(width)
            .with(epsilon);
        launch.run(&self.layer_norm, Shape::line(rows, width.next_multiple_of(32).clamp(32, THREADS)))
    }

    /// Adds `bias` to each row of `x` (rows by `width`), and lets every number through a gate.
    pub fn bias_gate<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        bias: Option<Slice<'_, T>>,
        [rows, width]: [u32; 2],
        gate: Gate,
    ) -> Done {
        let launch = Launch::new(stream, "gating rows")
            .write_rows(x.into(), area(rows, width))
            .read(bias, width)
            .with_all([rows, width])
            .with(gate == Gate::Silu);
        launch.run_pair::<T>(&self.bias_gate, [rows, width])
    }

    /// Adds to each row of `x` (rows by `width`) that of `y` with `bias`, times `scale`.
    pub fn add_scaled<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        (y, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        scale: Slice<'_, T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "adding scaled rows")
            .write_rows(x.into(), area(rows, width))
            .read_rows(y, area(rows, width))
            .read(bias, width)
            .read(scale, width)
            .with_all([rows, width]);
        launch.run_pair::<T>(&self.add_scaled, [rows, width])
    }

    /// Multiplies each row of `x` (rows by `width`) with its number of `by`.
    pub fn scale_rows<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        by: Slice<'_, T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "scaling rows").write(x.into(), area(rows, width)).read(by, rows).with(width);
        launch.run(&self.scale_rows, Shape::line(rows, THREADS))
    }

    /// Adds to each row of `x` the row of `table` (vocabulary by `width`) that its id names; nothing where the id is
    /// beyond the vocabulary.
    pub fn add_embedding<'a>(
        &self,
        stream: &Stream,
        ids: Slice<'_, u32>,
        table: Slice<'_, T>,
        x: impl Into<SliceMut<'a, T>>,
        [vocabulary, width]: [u32; 2],
    ) -> Done {
        let rows = blocks(ids.length());
        let launch = Launch::new(stream, "adding an embedding")
            .read(ids, rows)
            .read(table, area(vocabulary, width))
            .write(x.into(), area(rows, width))
            .with_all([vocabulary, width]);
        launch.run(&self.add_embedding, Shape::line(rows, THREADS))
    }

    /// Puts for each row of codes, `[rows, groups]`, what they stand for into `out`, `[rows, 2 width]`: the row of the
    /// first book, and behind it the sum of the rows of the others.
    ///
    /// A code outside its codebook gives NaN.
    pub fn code_rows<'a>(
        &self,
        stream: &Stream,
        codes: Slice<'_, u32>,
        books: &Codebooks<'_, T>,
        out: impl Into<SliceMut<'a, T>>,
        rows: u32,
    ) -> Done {
        let Codebooks { rows: table, groups, size, width } = *books;
        let launch = Launch::new(stream, "looking codes up")
            .require(groups > 0, "there is no codebook")
            .read(codes, area(rows, groups))
            .read(table, area(size, width).saturating_mul(groups.into()))
            .write(out.into(), area(rows, width).saturating_mul(2))
            .with_all([groups, size, width]);
        launch.run(&self.code_rows, Shape::line(rows, width.next_multiple_of(32).clamp(32, THREADS)))
    }
}
