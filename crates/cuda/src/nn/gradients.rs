//! The operations' gradients, on the device: what a training step needs beside products.
//!
//! They are as the operations themselves: numbers are stored as f32, bf16 or f16, computed and added up in f32, always in
//! the same order, so that a step gives the same bits each time.

mod heads;
mod loss;
mod norm;
mod rows;
mod softmax;

use std::marker::PhantomData;

pub use self::{heads::HeadNormGradients, norm::Normed};
use super::{HEADS_BACKWARD, LOSS, RMS_NORM_BACKWARD, ROWS_BACKWARD, SOFTMAX_BACKWARD, SWIGLU_BACKWARD};
use crate::launch::{
    Cache, CudaError, Device, Done, Element, Kernel, Launch, Pair, Request, Shape, SliceMut, Source, Stream, nvrtc,
};

/// Parts of a sum that are added up in the end, for each multiprocessor.
const PARTS: u32 = 2;

/// The gradients of a transformer's operations on numbers of one type, on one device.
#[derive(Debug)]
pub struct Gradients<T> {
    cross_entropy_kept: [Kernel; 2],
    cross_entropy: Pair,
    mean: Kernel,
    rms_norm_backward: [Kernel; 2],
    rms_norm_backward_any: Kernel,
    swiglu_backward: Pair,
    split_heads_backward: Pair,
    split_heads_backward_plain: Kernel,
    softmax_causal_backward: [Kernel; 2],
    softmax_causal_backward_any: Kernel,
    split_rows_to_heads: Kernel,
    note_tokens: Kernel,
    embed_backward: Pair,
    column_sums: Pair,
    sum_partials: Kernel,
    add: Kernel,
    scale: Kernel,
    multiprocessors: u32,
    /// Whether a kernel may begin before the last one is done.
    is_early: bool,
    of: PhantomData<T>,
}

impl<T: Element> Gradients<T> {
    /// What [`Self::load`] loads.
    pub fn requests() -> impl Iterator<Item = Request> {
        [LOSS, RMS_NORM_BACKWARD, ROWS_BACKWARD, SOFTMAX_BACKWARD, HEADS_BACKWARD, SWIGLU_BACKWARD]
            .into_iter()
            .map(|source| Request::typed::<T>(source, &[]))
    }

    /// Loads them all, from the cache where they are there.
    pub fn load(device: &Device, cache: &Cache) -> Result<Self, CudaError> {
        let module = |source: Source<'_>| nvrtc::load_typed::<T>(device, cache, source, &[]);
        let (loss, norm, rows) = (module(LOSS)?, module(RMS_NORM_BACKWARD)?, module(ROWS_BACKWARD)?);
        let softmax = module(SOFTMAX_BACKWARD)?;
        let softmax_of = |kept: u32| softmax.kernel(&format!("softmax_causal_backward_{kept}"));
        let [few, more, _] = super::softmax::KEPT;
        let norm_of = |name: &str| {
            let kernel = norm.kernel(name)?;
            kernel.allow_shared_bytes(norm::SHARED_BYTES)?;
            Ok::<_, CudaError>(kernel)
        };
        let heads = module(HEADS_BACKWARD)?;
        Ok(Self {
            cross_entropy_kept: [loss.kernel("cross_entropy_4")?, loss.kernel("cross_entropy_8")?],
            cross_entropy: loss.pair("cross_entropy")?,
            mean: loss.kernel("mean")?,
            rms_norm_backward: [norm_of("rms_norm_backward_1")?, norm_of("rms_norm_backward_2")?],
            rms_norm_backward_any: norm.kernel("rms_norm_backward_any")?,
            swiglu_backward: module(SWIGLU_BACKWARD)?.pair("swiglu_backward")?,
            split_heads_backward: heads.pair("split_heads_backward")?,
            split_heads_backward_plain: heads.kernel("split_heads_backward_plain")?,
            softmax_causal_backward: [softmax_of(few)?, softmax_of(more)?],
            softmax_causal_backward_any: softmax.kernel("softmax_causal_backward_any")?,
            split_rows_to_heads: rows.kernel("split_rows_to_heads")?,
            note_tokens: rows.kernel("note_tokens")?,
            embed_backward: rows.pair("embed_backward")?,
            column_sums: rows.pair("column_sums")?,
            sum_partials: rows.kernel("sum_partials")?,
            add: rows.kernel("add")?,
            scale: rows.kernel("scale")?,
            multiprocessors: device.facts().multiprocessors.max(1),
            is_early: device.is_hopper_or_later(),
            of: PhantomData,
        })
    }

    /// Numbers that an operation needs as scratch to add up `width` columns: the width of a norm or of a bias, or twice
    /// `head_dim` for the norms of heads.
    pub fn scratch_length(&self, width: u32) -> usize {
        self.most_parts() as usize * width as usize
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
