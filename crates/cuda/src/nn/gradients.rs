//! The gradients of the operations: what a training step needs besides GEMMs.
//!
//! Sums are in f32, always in the same order, so a step is deterministic.

mod heads;
mod loss;
mod norm;
mod rows;

pub use self::{heads::HeadNormGradients, norm::Normed};
use super::{HEADS_BACKWARD, LOSS, RMS_NORM_BACKWARD, ROWS_BACKWARD, SOFTMAX_BACKWARD, SWIGLU_BACKWARD};
use crate::launch::*;

/// Partial sums per multiprocessor.
const PARTS: u32 = 2;

kernels! {
    /// The gradients of a transformer's operations for one dtype on one device.
    Gradients
    LOSS {
        cross_entropy_kept: [Kernel; 2] = kernels(["cross_entropy_4", "cross_entropy_8"]),
        cross_entropy: Pair = pair("cross_entropy"),
        mean: Kernel = kernel("mean"),
    }
    RMS_NORM_BACKWARD {
        rms_norm_backward: [Kernel; 2] = kernels_with(
            ["rms_norm_backward_1", "rms_norm_backward_2"].map(|name| (name, norm::SHARED_BYTES))
        ),
        rms_norm_backward_any: Kernel = kernel("rms_norm_backward_any"),
    }
    ROWS_BACKWARD {
        token_ranges: Kernel = kernel("token_ranges"),
        embed_backward: Pair = pair("embed_backward"),
        column_sums: Pair = pair("column_sums"),
        sum_partials: Kernel = kernel("sum_partials"),
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
        /// Whether a kernel may start before the previous one is done.
        is_early: bool = device.is_hopper_or_later(),
    }
}

impl<T: Element> Gradients<T> {
    /// The scratch length of an operation that sums `width` columns: the width of a norm or of a bias, or twice `head_dim`
    /// for the norms of heads.
    pub fn scratch_length(&self, width: u32) -> usize {
        self.max_parts() as usize * width as usize
    }

    /// The same on an H100 or H200, without a device.
    pub fn scratch_length_on_hopper(width: u32) -> usize {
        (PARTS * 132) as usize * width as usize
    }

    fn max_parts(&self) -> u32 {
        PARTS * self.multiprocessors
    }

    /// Sums `width` columns of `parts` rows, `stride` apart, from an address on. Callers check the length: see
    /// [`Gradients::scratch`].
    fn sum_partials(
        &self,
        stream: &Stream,
        address: u64,
        out: &SliceMut<'_, T>,
        parts: u32,
        [stride, width]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "summing").with(address).write(out, width).with_all([parts, stride, width]);
        let shape = Shape::new([width.div_ceil(32), 1, 1], [32, 32, 1]);
        launch.run_early(&self.sum_partials, shape, self.is_early && parts > 0)
    }

    fn scratch<'l>(&self, launch: Launch<'l>, scratch: &SliceMut<'_, f32>, width: u32) -> Launch<'l> {
        let is_enough = scratch.length() >= self.scratch_length(width);
        launch.require(is_enough, "the scratch is too small").write(scratch, 0_u32)
    }
}
