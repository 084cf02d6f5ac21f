//! Operations on rows.

use super::{ARGMAX, HEADS, HeadSizes, RANDOM, RMS_NORM, ROWS, SOFTMAX, SWIGLU};
use crate::launch::*;

/// 16-byte vectors that a thread of `rms_norm` keeps; the kernel has the same constant.
const NORM_KEPT: u32 = 2;
const THREADS: u32 = 256;
/// Blocks per row of `argmax` if the device has clusters; the kernel has the same constant.
const ARGMAX_BLOCKS: u32 = 8;

kernels! {
    /// The operations of a transformer for one dtype on one device.
    Operations
    ROWS {
        embed: Kernel = kernel("embed"),
        scale: Kernel = kernel("scale"),
        last_rows: Kernel = kernel("last_rows"),
        merge_heads: Kernel = kernel("merge_heads"),
        unmerge_heads: Kernel = kernel("unmerge_heads"),
    }
    RMS_NORM { rms_norm: Pair = pair("rms_norm"), rms_norm_add: Kernel = kernel("rms_norm_add"), }
    HEADS { split_heads: Pair = pair("split_heads"), }
    SOFTMAX {
        softmax_causal: [Kernel; 3] = kernels(["softmax_causal_2", "softmax_causal_4", "softmax_causal_8"]),
        softmax_causal_any: Kernel = kernel("softmax_causal_any"),
        softmax_windowed: Kernel = kernel("softmax_windowed"),
    }
    SWIGLU { swiglu: Pair = pair("swiglu"), geglu: Pair = pair("geglu"), add_bias: Pair = pair("add_bias"), }
    RANDOM {
        fill_random: Kernel = kernel("fill_random"),
        fill_constant: Kernel = kernel("fill_constant"),
    }
    ARGMAX { argmax: Kernel = kernel("argmax"), }
    |device| {
        argmax_blocks: u32 = if device.is_hopper_or_later() { ARGMAX_BLOCKS } else { 1 },
        all_memory: Shape = Shape::line(device.facts().multiprocessors.max(1) * 8, THREADS),
        /// Whether the operations of a layer start while the previous kernel ends, which hides most of the launch latency.
        is_early: bool = device.is_hopper_or_later(),
    }
}

impl<T: Element> Operations<T> {
    /// Looks up each token's embedding: `out[i] = table[tokens[i]]`, with a table `[vocabulary, width]`.
    ///
    /// Tokens outside the vocabulary give NaN.
    pub fn embed<'a>(
        &self,
        stream: &Stream,
        tokens: impl Into<Slice<'a, u32>>,
        table: impl Read<T>,
        out: impl Write<T>,
        [vocabulary, width]: [u32; 2],
    ) -> Done {
        let tokens = tokens.into();
        let rows = blocks(tokens.length());
        let launch = Launch::new(stream, "embedding")
            .read(tokens, rows)
            .read_rows(table, area(vocabulary, width))
            .write_rows(out, area(rows, width))
            .with_all([vocabulary, width])
            .with_alignment::<T>(width);
        launch.run(&self.embed, Shape::line(rows, copying_threads::<T>(width)))
    }

    /// RMS norm of each row of `x` `[rows, width]` into `out`.
    pub fn rms_norm(
        &self,
        stream: &Stream,
        x: impl Read<T>,
        weight: impl Read<T>,
        out: impl Write<T>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Done {
        let launch = norm_launch(stream, x, weight, out, [rows, width], epsilon);
        let (kernel, threads) = norm_kernel::<T>(&self.rms_norm, width, launch.is_aligned::<T>(width));
        launch.run_early(kernel, Shape::line(rows, threads), self.is_early)
    }

    /// The same, added to `out`.
    pub fn rms_norm_add(
        &self,
        stream: &Stream,
        x: impl Read<T>,
        weight: impl Read<T>,
        out: impl Write<T>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Done {
        let launch = norm_launch(stream, x, weight, out, [rows, width], epsilon);
        launch.run_early(&self.rms_norm_add, Shape::line(rows, row_threads(width)), self.is_early)
    }

    /// Multiplies the first `count` elements of `x` by a factor.
    pub fn scale(&self, stream: &Stream, x: impl Write<T>, count: u64, factor: f32) -> Done {
        let launch = Launch::new(stream, "scaling").write(x, count).with(count).with(factor);
        launch.run(&self.scale, Shape::line(blocks(count.div_ceil(THREADS.into())), THREADS))
    }

    /// SwiGLU: `silu(gate) * up` into `out` `[rows, ffn]`. Rows of `gate_up` are the gate and then the up projection; the
    /// bias is for both.
    pub fn swiglu(
        &self,
        stream: &Stream,
        gate_up: impl Read<T>,
        bias: Option<Slice<'_, T>>,
        out: impl Write<T>,
        shape: [u32; 2],
    ) -> Done {
        glu_launch(stream, gate_up, bias, out, shape).run_pair::<T>(&self.swiglu, shape, self.is_early)
    }

    /// The same with the tanh approximation of GELU in place of SiLU.
    pub fn geglu(
        &self,
        stream: &Stream,
        gate_up: impl Read<T>,
        bias: Option<Slice<'_, T>>,
        out: impl Write<T>,
        shape: [u32; 2],
    ) -> Done {
        glu_launch(stream, gate_up, bias, out, shape).run_pair::<T>(&self.geglu, shape, self.is_early)
    }

    /// Adds a bias to each row of `x`.
    pub fn add_bias(&self, stream: &Stream, x: impl Write<T>, bias: impl Read<T>, [rows, width]: [u32; 2]) -> Done {
        let launch = Launch::new(stream, "adding a bias").write_rows(x, area(rows, width)).read_rows(bias, width);
        launch.with_all([rows, width]).run_pair::<T>(&self.add_bias, [rows, width], false)
    }

    /// Argmax of each row. Ties go to the lowest index, NaN is ignored, and a row of NaN gives 0.
    pub fn argmax(&self, stream: &Stream, x: impl Read<T>, out: impl Write<u32>, [rows, width]: [u32; 2]) -> Done {
        let launch = Launch::new(stream, "computing the argmax")
            .require(width < 1 << 31, "the rows are too wide")
            .read_rows(x, area(rows, width))
            .write(out, rows)
            .with(width)
            .with_alignment::<T>(width);
        launch.run(&self.argmax, Shape::line(rows.saturating_mul(self.argmax_blocks), 1024))
    }

    /// Copies the last row of each sequence of `x` `[batch, tokens, width]` to `out` `[batch, width]`.
    pub fn last_rows(&self, stream: &Stream, x: impl Read<T>, out: impl Write<T>, shape: [u32; 3]) -> Done {
        let [batch, tokens, width] = shape;
        let launch = Launch::new(stream, "copying the last rows")
            .read_rows(x, area(batch, tokens).saturating_mul(width.into()))
            .write_rows(out, area(batch, width))
            .require(tokens > 0, "the sequences are empty")
            .with_all([tokens, width])
            .with_alignment::<T>(width);
        launch.run(&self.last_rows, Shape::line(batch, copying_threads::<T>(width)))
    }

    /// From `[batch, heads, tokens, head_dim]` to `[batch, tokens, heads * head_dim]`.
    pub fn merge_heads(&self, stream: &Stream, x: impl Read<T>, out: impl Write<T>, sizes: &HeadSizes) -> Done {
        move_heads::<T>(stream, &self.merge_heads, x, out, sizes)
    }

    /// The reverse of [`Operations::merge_heads`].
    pub fn unmerge_heads(&self, stream: &Stream, x: impl Read<T>, out: impl Write<T>, sizes: &HeadSizes) -> Done {
        move_heads::<T>(stream, &self.unmerge_heads, x, out, sizes)
    }

    /// Fills `out` with synthetic weights: element i is `laptime_models::synthetic::value` of i.
    pub fn fill_random<'a>(&self, stream: &Stream, out: impl Into<SliceMut<'a, T>>, key: u64, amplitude: f32) -> Done {
        let out = out.into();
        let count = out.length() as u64;
        let launch = Launch::new(stream, "filling").write(out, count).with_all([count, key]).with(amplitude);
        launch.skip_if(count == 0).run(&self.fill_random, self.all_memory)
    }

    /// Fills `out` with one value.
    pub fn fill<'a>(&self, stream: &Stream, out: impl Into<SliceMut<'a, T>>, value: f32) -> Done {
        let out = out.into();
        let count = out.length() as u64;
        let launch = Launch::new(stream, "filling").write(out, count).with(count).with(value);
        launch.skip_if(count == 0).run(&self.fill_constant, self.all_memory)
    }
}

fn norm_launch<'s, T: Element>(
    stream: &'s Stream,
    x: impl Read<T>,
    weight: impl Read<T>,
    out: impl Write<T>,
    [rows, width]: [u32; 2],
    epsilon: f32,
) -> Launch<'s> {
    let launch = Launch::new(stream, "normalising").read_rows(x, area(rows, width)).read_rows(weight, width);
    launch.write_rows(out, area(rows, width)).with(width).with(epsilon)
}

fn glu_launch<'s, T: Element>(
    stream: &'s Stream,
    gate_up: impl Read<T>,
    bias: Option<Slice<'_, T>>,
    out: impl Write<T>,
    [rows, ffn]: [u32; 2],
) -> Launch<'s> {
    let launch = Launch::new(stream, "gating").read_rows(gate_up, area(rows, ffn).saturating_mul(2));
    launch.read_rows(bias, 2 * u64::from(ffn)).write_rows(out, area(rows, ffn)).with_all([rows, ffn])
}

fn move_heads<T: Element>(
    stream: &Stream,
    kernel: &Kernel,
    from: impl Read<T>,
    to: impl Write<T>,
    sizes: &HeadSizes,
) -> Done {
    const DOING: &str = "transposing heads";
    sizes.check(DOING)?;
    let HeadSizes { batch, tokens, heads, head_dim, .. } = *sizes;
    let launch = Launch::new(stream, DOING)
        .read_rows(from, sizes.query_elements())
        .write_rows(to, sizes.query_elements())
        .with_all([heads, tokens, head_dim])
        .with_alignment::<T>(head_dim)
        .skip_if(sizes.is_empty());
    let threads = copying_threads::<T>(heads.saturating_mul(head_dim));
    launch.run(kernel, Shape::new([tokens, batch, 1], [threads, 1, 1]))
}

pub(super) fn copying_threads<T>(width: u32) -> u32 {
    vectors::<T>(width).next_multiple_of(32).clamp(32, THREADS)
}

/// Threads of a block that handles a whole row, element by element.
pub(super) fn row_threads(width: u32) -> u32 {
    width.clamp(32, 1024).next_multiple_of(32)
}

/// The kernel that normalises rows of this width, and its threads.
pub(super) fn norm_kernel<T>(norm: &Pair, width: u32, is_aligned: bool) -> (&Kernel, u32) {
    match norm_threads(vectors::<T>(width)) {
        Some(threads) if is_aligned => (&norm.vectorised, threads),
        _ => (&norm.any, row_threads(width)),
    }
}

/// Threads that can keep a row of this number of vectors; none if it is too long.
fn norm_threads(vectors: u32) -> Option<u32> {
    let each = vectors.div_ceil(THREADS).clamp(1, NORM_KEPT);
    let threads = vectors.div_ceil(each).next_multiple_of(32).max(32);
    (threads <= 1024).then_some(threads)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_as_many_threads_as_can_keep_it() {
        assert_eq!(norm_threads(1), Some(32));
        assert_eq!(norm_threads(128), Some(128));
        assert_eq!(norm_threads(320), Some(160));
        assert_eq!(norm_threads(2048), Some(1024));
        assert_eq!(norm_threads(2049), None);
        for vectors in 1..5000 {
            assert!(norm_threads(vectors).is_none_or(|threads| threads * NORM_KEPT >= vectors), "{vectors}");
        }
    }
}
