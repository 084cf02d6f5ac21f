//! Operations on rows.

use super::{ARGMAX, HEADS, HeadSizes, RANDOM, RMS_NORM, ROWS, SOFTMAX, SWIGLU};
use crate::launch::*;

/// Groups of 16 bytes that a thread of `rms_norm` keeps; the kernel has the same number.
const NORM_KEPT: u32 = 2;
/// Threads a row of kernels that can have any number of them.
const THREADS: u32 = 256;
/// Blocks that share a row of `argmax`, where the device has clusters; the kernel has the same number.
const ARGMAX_BLOCKS: u32 = 8;

kernels! {
    /// The operations of a transformer on numbers of one type, on one device.
    Operations
    ROWS {
        embed: Kernel = kernel("embed"),
        scale_rows: Kernel = kernel("scale_rows"),
        last_rows: Kernel = kernel("last_rows"),
        merge_heads: Kernel = kernel("merge_heads"),
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
        fill_numbers: Kernel = kernel("fill_numbers"),
    }
    ARGMAX { argmax: Kernel = kernel("argmax"), }
    |device| {
        argmax_blocks: u32 = if device.is_hopper_or_later() { ARGMAX_BLOCKS } else { 1 },
        along_memory: Shape = Shape::line(device.facts().multiprocessors.max(1) * 8, THREADS),
        /// Whether the operations of a layer begin while the previous kernel ends: they wait for it themselves, which
        /// hides most of the time of a launch.
        is_early: bool = device.is_hopper_or_later(),
    }
}

impl<T: Element> Operations<T> {
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
    ) -> Done {
        let tokens = tokens.into();
        let rows = blocks(tokens.length());
        let launch = Launch::new(stream, "embedding")
            .read(tokens, rows)
            .read_rows(table.into(), area(vocabulary, width))
            .write_rows(out.into(), area(rows, width))
            .with_all([vocabulary, width])
            .with_alignment::<T>(width);
        launch.run(&self.embed, Shape::line(rows, copying_threads::<T>(width)))
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
    ) -> Done {
        let launch = Launch::new(stream, "normalising")
            .read_rows(x.into(), area(rows, width))
            .read_rows(weight.into(), width)
            .write_rows(out.into(), area(rows, width))
            .with(width)
            .with(epsilon);
        let (kernel, threads) = norm_kernel::<T>(&self.rms_norm, width, launch.is_aligned::<T>(width));
        launch.run_early(kernel, Shape::line(rows, threads), self.is_early)
    }

    /// Adds the norm of each row of `x` (rows by `width`) to the row of `out`.
    pub fn rms_norm_add<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        weight: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        [rows, width]: [u32; 2],
        epsilon: f32,
    ) -> Done {
        let launch = Launch::new(stream, "adding a norm")
            .read(x.into(), area(rows, width))
            .read(weight.into(), width)
            .write(out.into(), area(rows, width))
            .with(width)
            .with(epsilon);
        let shape = Shape::line(rows, width.clamp(32, 1024).next_multiple_of(32));
        launch.run_early(&self.rms_norm_add, shape, self.is_early)
    }

    /// Multiplies the first `count` numbers of `x` with a factor.
    pub fn scale<'a>(&self, stream: &Stream, x: impl Into<SliceMut<'a, T>>, count: u64, factor: f32) -> Done {
        let launch = Launch::new(stream, "scaling").write(x.into(), count).with(count).with(factor);
        launch.run(&self.scale_rows, Shape::line(blocks(count.div_ceil(THREADS.into())), THREADS))
    }

    /// Puts `silu(gate) * up` into `out` (rows by `ffn`). A row of `gate_up` is the gate and then what it lets through;
    /// the bias, where there is one, is added to both.
    pub fn swiglu<'a>(
        &self,
        stream: &Stream,
        gate_up: impl Into<Slice<'a, T>>,
        bias: Option<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        shape: [u32; 2],
    ) -> Done {
        self.gate(stream, &self.swiglu, gate_up.into(), bias, out.into(), shape)
    }

    /// The same with GELU, approximated by tanh, in place of SiLU.
    pub fn geglu<'a>(
        &self,
        stream: &Stream,
        gate_up: impl Into<Slice<'a, T>>,
        bias: Option<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        shape: [u32; 2],
    ) -> Done {
        self.gate(stream, &self.geglu, gate_up.into(), bias, out.into(), shape)
    }

    fn gate(
        &self,
        stream: &Stream,
        kernels: &Pair,
        gate_up: Slice<'_, T>,
        bias: Option<Slice<'_, T>>,
        out: SliceMut<'_, T>,
        [rows, ffn]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "gating")
            .read_rows(gate_up, area(rows, ffn).saturating_mul(2))
            .read_rows(bias, 2 * u64::from(ffn))
            .write_rows(out, area(rows, ffn))
            .with_all([rows, ffn]);
        launch.run_pair_early::<T>(kernels, [rows, ffn], self.is_early)
    }

    /// Adds `bias` to each row of `x` (rows by `width`).
    pub fn add_bias<'a>(
        &self,
        stream: &Stream,
        x: impl Into<SliceMut<'a, T>>,
        bias: impl Into<Slice<'a, T>>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "adding a bias")
            .write_rows(x.into(), area(rows, width))
            .read_rows(bias.into(), width)
            .with_all([rows, width]);
        launch.run_pair::<T>(&self.add_bias, [rows, width])
    }

    /// Puts the index of the largest number of each row of `x` (rows by `width`) into `indices`: the lowest of several,
    /// never that of what is no number, and 0 where nothing is one.
    pub fn argmax<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        indices: impl Into<SliceMut<'a, u32>>,
        [rows, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "selecting the largest")
            .require(width < 1 << 31, "the rows are too wide")
            .read_rows(x.into(), area(rows, width))
            .write(indices.into(), rows)
            .with(width)
            .with_alignment::<T>(width);
        launch.run(&self.argmax, Shape::line(rows.saturating_mul(self.argmax_blocks), 1024))
    }

    /// Puts the last row of each sequence of `x` (batch by tokens by `width`) into `out` (batch by `width`).
    pub fn last_rows<'a>(
        &self,
        stream: &Stream,
        x: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        [batch, tokens, width]: [u32; 3],
    ) -> Done {
        let launch = Launch::new(stream, "taking the last rows")
            .read_rows(x.into(), area(batch, tokens).saturating_mul(width.into()))
            .write_rows(out.into(), area(batch, width))
            .require(tokens > 0, "an empty sequence has no last row")
            .with_all([tokens, width])
            .with_alignment::<T>(width);
        launch.run(&self.last_rows, Shape::line(batch, copying_threads::<T>(width)))
    }

    /// Puts heads that lie apart, [batch, heads, tokens, head_dim], side by side: [batch, tokens, heads * head_dim].
    pub fn merge_heads<'a>(
        &self,
        stream: &Stream,
        heads_apart: impl Into<Slice<'a, T>>,
        out: impl Into<SliceMut<'a, T>>,
        sizes: &HeadSizes,
    ) -> Done {
        move_heads(stream, "merging heads", &self.merge_heads, heads_apart.into(), out.into(), sizes)
    }
}

/// Launches a kernel that copies heads which lie apart, [batch, heads, tokens, head_dim], side by side, or back.
pub(super) fn move_heads<T: Element>(
    stream: &Stream,
    doing: &'static str,
    kernel: &Kernel,
    from: Slice<'_, T>,
    to: SliceMut<'_, T>,
    sizes: &HeadSizes,
) -> Done {
    sizes.check(doing)?;
    let HeadSizes { batch, tokens, heads, head_dim, .. } = *sizes;
    let launch = Launch::new(stream, doing)
        .read_rows(from, sizes.query_numbers())
        .write_rows(to, sizes.query_numbers())
        .with_all([heads, tokens, head_dim])
        .with_alignment::<T>(head_dim)
        .skip_if(sizes.is_empty());
    let threads = copying_threads::<T>(heads.saturating_mul(head_dim));
    launch.run(kernel, Shape { grid: [tokens, batch, 1], block: [threads, 1, 1], shared_bytes: 0 })
}

pub(super) fn copying_threads<T>(width: u32) -> u32 {
    groups::<T>(width).next_multiple_of(32).clamp(32, THREADS)
}

/// The kernel that normalises rows of this width, and its threads.
pub(super) fn norm_kernel<T>(norm: &Pair, width: u32, is_aligned: bool) -> (&Kernel, u32) {
    match norm_threads(groups::<T>(width)) {
        Some(threads) if is_aligned => (&norm.by_16_bytes, threads),
        _ => (&norm.any, width.clamp(32, 1024).next_multiple_of(32)),
    }
}

/// Threads that normalise a row of this number of groups, if they can keep it.
fn norm_threads(groups: u32) -> Option<u32> {
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
}
