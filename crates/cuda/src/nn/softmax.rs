//! The softmax of attention whose scores are stored.
#![allow(unsafe_code)]

use super::{
    HeadSizes, Operations,
    operations::{count_rows, groups, launch},
    sizes::{has_room, holds, is_by_16_bytes},
};
use crate::{
    blas::Element,
    error::CudaError,
    kernel::{Argument, Shape},
    kernels::expect,
    slice::{Slice, SliceMut},
    stream::Stream,
};

/// Groups of 16 bytes that a thread keeps; the kernel has the same number.
const KEPT: u32 = 8;
const DOING: &str = "taking a softmax";

impl<T: Element> Operations<T> {
    /// Turns scores, [batch * kv_heads, group * tokens, keys], into shares that add up to one in each row.
    ///
    /// Row r of a matrix is of query r modulo `tokens`, which sees the keys up to the position `start[0]` plus the query;
    /// other keys get nothing. Scores are multiplied by `scale`, which is positive, first.
    pub fn softmax_causal<'a>(
        &self,
        stream: &Stream,
        scores: impl Into<SliceMut<'a, T>>,
        start: impl Into<Slice<'a, u32>>,
        sizes: &HeadSizes,
        keys: u32,
        scale: f32,
    ) -> Result<(), CudaError> {
        let (scores, start) = (scores.into(), start.into());
        sizes.check(DOING)?;
        let rows = count_rows(DOING, sizes.rows().saturating_mul(sizes.heads.into()))?;
        let fits = has_room(&scores, u64::from(rows) * u64::from(keys)) && holds(start, 1);
        expect(DOING, fits, "a buffer is too small")?;
        let (kernel, shape) = match softmax_shape(rows, groups::<T>(keys), 256 * size_of::<T>() as u32) {
            Some(shape) if is_by_16_bytes::<T>(keys, &[scores.pointer()]) => (&self.softmax_causal.by_16_bytes, shape),
            _ => (&self.softmax_causal.any, Shape::line(rows, keys.clamp(32, 1024).next_multiple_of(32))),
        };
        let arguments: [Argument; 6] =
            [(&scores).into(), u64::from(rows).into(), sizes.tokens.into(), keys.into(), scale.into(), start.into()];
        // SAFETY: the kernel stays within the rows, and the buffer is at least as large.
        launch(rows.min(keys), || unsafe { kernel.launch(stream, shape, &arguments) })
    }
}

/// A warp a row where it can keep the row, else a block of as many warps as can; nothing where `most_threads` cannot.
fn softmax_shape(rows: u32, groups: u32, most_threads: u32) -> Option<Shape> {
    let threads = groups.div_ceil(KEPT).next_multiple_of(32).max(32);
    let rows_a_block = if threads == 32 { 4 } else { 1 };
    let (grid, block) = ([rows.div_ceil(rows_a_block), 1, 1], [threads, rows_a_block, 1]);
    (threads <= most_threads).then_some(Shape { grid, block, shared_bytes: 0 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_a_warp_or_of_a_block() {
        assert_eq!(softmax_shape(10, 128, 512).map(|shape| (shape.grid[0], shape.block)), Some((3, [32, 4, 1])));
        assert_eq!(softmax_shape(10, 257, 512).map(|shape| (shape.grid[0], shape.block)), Some((10, [64, 1, 1])));
        assert!(softmax_shape(10, 4097, 1024).is_some());
        assert_eq!((softmax_shape(10, 4097, 512), softmax_shape(10, 8193, 1024)), (None, None));
    }
}
