//! The gradient of the softmax of attention whose scores are stored.
#![allow(unsafe_code)]

use super::Gradients;
use crate::{
    blas::Element,
    error::CudaError,
    kernel::{Argument, Shape},
    kernels::expect,
    nn::{
        HeadSizes,
        operations::{count_rows, groups, launch},
        sizes::{has_room, holds, is_by_16_bytes},
        softmax::softmax_shape,
    },
    slice::{Slice, SliceMut},
    stream::Stream,
};

const DOING: &str = "taking a softmax's gradient";

impl<T: Element> Gradients<T> {
    /// Turns the gradient of shares, [batch * kv_heads, group * tokens, keys], into that of the scores they were made of;
    /// `shares` is what [`super::super::Operations::softmax_causal`] gave, and `start` and `scale` what it was given.
    ///
    /// Scores that a query does not see get nothing, whatever was there.
    #[allow(clippy::too_many_arguments)]
    pub fn softmax_causal_backward<'a>(
        &self,
        stream: &Stream,
        shares: impl Into<Slice<'a, T>>,
        d_shares: impl Into<SliceMut<'a, T>>,
        start: impl Into<Slice<'a, u32>>,
        sizes: &HeadSizes,
        keys: u32,
        scale: f32,
    ) -> Result<(), CudaError> {
        let (shares, d_shares, start) = (shares.into(), d_shares.into(), start.into());
        sizes.check(DOING)?;
        let rows = count_rows(DOING, sizes.rows().saturating_mul(sizes.heads.into()))?;
        let count = u64::from(rows) * u64::from(keys);
        let fits = holds(shares, count) && has_room(&d_shares, count) && holds(start, 1);
        expect(DOING, fits, "a buffer is too small")?;
        let aligned = is_by_16_bytes::<T>(keys, &[shares.pointer(), d_shares.pointer()]);
        let kept = softmax_shape(rows, groups::<T>(keys), 256).filter(|_| aligned);
        let kept = kept.and_then(|(kernel, shape)| Some((self.softmax_causal_backward.get(kernel)?, shape)));
        // Longer rows are too many registers, of shares and of slopes, and are read twice.
        let threads = keys.clamp(32, 1024).next_multiple_of(32);
        let (kernel, shape) = kept.unwrap_or((&self.softmax_causal_backward_any, Shape::line(rows, threads)));
        let (tokens, scale) = (sizes.tokens.into(), scale.into());
        let arguments: [Argument; 7] =
            [shares.into(), (&d_shares).into(), u64::from(rows).into(), tokens, keys.into(), scale, start.into()];
        // SAFETY: the kernel stays within the rows, and the buffers are at least as large.
        launch(rows.min(keys), || unsafe { kernel.launch(stream, shape, &arguments) })
    }
}
