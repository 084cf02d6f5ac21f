//! Operations between the convolutions of an audio codec.

use super::CODEC;
use crate::launch::*;

const THREADS: u32 = 256;

/// Codebooks: an embedding per code.
#[derive(Debug)]
pub struct Codebooks<'a, T> {
    /// `[groups, size, width]`.
    pub rows: Slice<'a, T>,
    /// The number of codebooks.
    pub groups: u32,
    /// Codes per codebook.
    pub size: u32,
    /// The width of an embedding.
    pub width: u32,
}

/// An activation function.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Activation {
    /// `x (1 + erf(x / √2)) / 2`: the exact GELU.
    Gelu,
    /// `x / (1 + exp(-x))`.
    Silu,
}

kernels! {
    /// The operations of an audio codec for one dtype on one device.
    CodecOperations
    CODEC {
        layer_norm: Kernel = kernel("layer_norm"),
        bias_activation: Pair = pair("bias_activation"),
        add_scaled: Pair = pair("add_scaled"),
        scale_rows: Kernel = kernel("scale_rows"),
        add_embedding: Kernel = kernel("add_embedding"),
        embed_codes: Kernel = kernel("embed_codes"),
    }
}

impl<T: Element> CodecOperations<T> {
    /// Layer norm of each row of `x` `[rows, width]` into `out`.
    pub fn layer_norm(
        &self,
        stream: &Stream,
        x: impl Read<T>,
        [weight, bias]: [Slice<'_, T>; 2],
        out: impl Write<T>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Done {
        let launch =
            Launch::new(stream, "normalising").read(x, area(rows, width)).read(weight, width).read(bias, width);
        let launch = launch.write(out, area(rows, width)).with(width).with(epsilon);
        launch.run(&self.layer_norm, Shape::line(rows, width.next_multiple_of(32).clamp(32, THREADS)))
    }

    /// Adds a bias to each row of `x` and applies an activation.
    pub fn bias_activation(
        &self,
        stream: &Stream,
        x: impl Write<T>,
        bias: Option<Slice<'_, T>>,
        [rows, width]: [u32; 2],
        activation: Activation,
    ) -> Done {
        let launch = Launch::new(stream, "applying an activation").write_rows(x, area(rows, width)).read(bias, width);
        let launch = launch.with_all([rows, width]).with(activation == Activation::Silu);
        launch.run_pair::<T>(&self.bias_activation, [rows, width], false)
    }

    /// `x += scale * (y + bias)` for rows of this width, with a scale per column.
    pub fn add_scaled(
        &self,
        stream: &Stream,
        x: impl Write<T>,
        (y, bias): (Slice<'_, T>, Option<Slice<'_, T>>),
        scale: Slice<'_, T>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "adding scaled rows")
            .write_rows(x, area(rows, width))
            .read_rows(y, area(rows, width))
            .read(bias, width)
            .read(scale, width)
            .with_all([rows, width]);
        launch.run_pair::<T>(&self.add_scaled, [rows, width], false)
    }

    /// Multiplies each row of `x` by its factor.
    pub fn scale_rows(&self, stream: &Stream, x: impl Write<T>, by: Slice<'_, T>, [rows, width]: [u32; 2]) -> Done {
        let launch = Launch::new(stream, "scaling rows").write(x, area(rows, width)).read(by, rows).with(width);
        launch.run(&self.scale_rows, Shape::line(rows, THREADS))
    }

    /// Adds to each row of `x` the embedding of its id, from a table `[vocabulary, width]`. Ids outside the vocabulary add
    /// nothing.
    pub fn add_embedding(
        &self,
        stream: &Stream,
        ids: Slice<'_, u32>,
        table: Slice<'_, T>,
        x: impl Write<T>,
        [vocabulary, width]: [u32; 2],
    ) -> Done {
        let rows = blocks(ids.length());
        let launch = Launch::new(stream, "adding an embedding")
            .read(ids, rows)
            .read(table, area(vocabulary, width))
            .write(x, area(rows, width))
            .with_all([vocabulary, width]);
        launch.run(&self.add_embedding, Shape::line(rows, THREADS))
    }

    /// Embeds codes `[rows, groups]` into `out` `[rows, 2 * width]`: the embedding of the first code, followed by the sum of
    /// the others. A code outside its codebook gives NaN.
    pub fn embed_codes(
        &self,
        stream: &Stream,
        codes: Slice<'_, u32>,
        books: &Codebooks<'_, T>,
        out: impl Write<T>,
        rows: u32,
    ) -> Done {
        let Codebooks { rows: table, groups, size, width } = *books;
        let launch = Launch::new(stream, "embedding codes")
            .require(groups > 0, "there is no codebook")
            .read(codes, area(rows, groups))
            .read(table, area(size, width).saturating_mul(groups.into()))
            .write(out, area(rows, width).saturating_mul(2))
            .with_all([groups, size, width]);
        launch.run(&self.embed_codes, Shape::line(rows, width.next_multiple_of(32).clamp(32, THREADS)))
    }
}
