//! The operations' gradients, on the device: what a training step needs beside products.
//!
//! They are as the operations themselves: numbers are stored as f32, bf16 or f16, computed and added up in f32, always in
//! the same order, so that a step gives the same bits each time.

mod heads;
mod loss;
mod norm;
mod rows;
mod softmax;

pub use self::{heads::HeadNormGradients, norm::Normed};
use super::{HEADS_BACKWARD, LOSS, RMS_NORM_BACKWARD, ROWS_BACKWARD, SOFTMAX_BACKWARD, SWIGLU_BACKWARD};
use crate::launch::*;

/// Parts of a sum that are added up in the end, for each multiprocessor.
const PARTS: u32 = 2;

kernels! {
    /// The gradients of a transformer's operations on numbers of one type, on one device.
    Gradients
    LOSS {
        cross_entropy_kept: [Kernel; 2] = kernels(["cross_entropy_4", "cross_entropy_8"]),
        cross_entropy: Pair = pair("cross_entropy"),
        mean: Kernel = kernel("mean"),
    }
    RMS_NORM_BACKWARD {
        rms_norm_backward: [Kernel; 2] = kernels_with(["rms_norm_backward_1", "rms_norm_backward_2"].map(|name| (name, norm::SHARED_BYTES))),
        rms_norm_backward_any: Kernel = kernel("rms_norm_backward_any"),
    }
    ROWS_BACKWARD {
        split_rows_to_heads: Kernel = kernel("split_rows_to_heads"),
        note_tokens: Kernel = kernel("note_tokens"),
        embed_backward: Pair = pair("embed_backward"),
        column_sums: Pair = pair("column_sums"),
        sum_partials: Kernel = kernel("sum_partials"),
        add: Kernel = kernel("add"),
        scale: Kernel = kernel("scale"),
    }
    SOFTMAX_BACKWARD {
        softmax_causal_backward: [Kernel; 2] = kernels(["softmax_causal_backward_2", "softmax_causal_backward_4"]),
        softmax_causal_backward_any: Kernel = kernel("softmax_causal_backward_any"),
    }
    HEADS_BACKWARD {
        split_heads_backward: Pair = pair("split_heads_backward"),
        split_heads_backward_plain: Kernel = kernel("split_heads_backward_plain"),
    }
    SWIGLU_BACKWARD { swiglu_backward: Pair = pair("swiglu_backward"), }
    |device| {
        multiprocessors: u32 = device.facts().multiprocessors.max(1),
        /// Whether a kernel may begin before the last one is done.
        is_early: bool = device.is_hopper_or_later(),
    }
}

impl<T: Element> Gradients<T> {
    /// Numbers that an operation needs as scratch to add up `width` columns: the width of a norm or of a bias, or twice
    /// `head_dim` for the norms of heads.
    pub fn scratch_length(&self, width: u32) -> usize {
        self.most_parts() as usize * width as usize
    }

    /// The same on an H100 or H200, before there is a device.
    pub fn scratch_length_on_hopper(width: u32) -> usize {
        (PARTS * 132) as usize * width as usize
    }

    fn most_parts(&self) -> u32 {
        PARTS * self.multiprocessors
    }

    /// Adds up `width` columns of `parts` rows, which lie `stride` apart from `place` on. Callers check that there are
    /// as many numbers: see [`Gradients::scratch`].
    fn sum_partials(
        &self,
        stream: &Stream,
        place: u64,
        out: &SliceMut<'_, T>,
        parts: u32,
        [stride, width]: [u32; 2],
    ) -> Done {
        let launch =
            Launch::new(stream, "adding up parts").with(place).write(out, width).with_all([parts, stride, width]);
        let shape = Shape { grid: [width.div_ceil(32), 1, 1], block: [32, 32, 1], shared_bytes: 0 };
        launch.run_early(&self.sum_partials, shape, self.is_early && parts > 0)
    }

    fn scratch<'l>(&self, launch: Launch<'l>, scratch: &SliceMut<'_, f32>, width: u32) -> Launch<'l> {
        let is_enough = scratch.length() >= self.scratch_length(width);
        launch.require(is_enough, "the scratch is too small").write(scratch, 0_u32)
    }
}
