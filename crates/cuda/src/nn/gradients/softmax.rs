//! The gradient of the softmax of attention whose scores are stored.

use super::Gradients;
use crate::launch::*;
use crate::nn::{
    HeadSizes,
    softmax::{any_shape, softmax_shape},
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
    ) -> Done {
        sizes.check(DOING)?;
        let rows = blocks(sizes.rows().saturating_mul(sizes.heads.into()));
        let launch = Launch::new(stream, DOING)
            .require(rows < 1 << 31, "too many rows")
            .read_rows(shares.into(), area(rows, keys))
            .write_rows(d_shares.into(), area(rows, keys))
            .with(u64::from(rows))
            .with_all([sizes.tokens, keys])
            .with(scale)
            .read(start.into(), 1_u32)
            .skip_if(keys == 0);
        let kept = softmax_shape(rows, groups::<T>(keys), 256).filter(|_| launch.is_aligned::<T>(keys));
        let kept = kept.and_then(|(kernel, shape)| Some((self.softmax_causal_backward.get(kernel)?, shape)));
        // Longer rows are too many registers, of shares and of slopes, and are read twice.
        let (kernel, shape) = kept.unwrap_or((&self.softmax_causal_backward_any, any_shape(rows, keys)));
        launch.run(kernel, shape)
    }
}
