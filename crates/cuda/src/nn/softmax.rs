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

/// Groups of 16 bytes that a thread keeps, in each of the kernels.
pub(super) const KEPT: [u32; 3] = [2, 4, 8];
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
            Some((kernel, shape)) if is_by_16_bytes::<T>(keys, &[scores.pointer()]) => {
                (&self.softmax_causal[kernel], shape)
            }
            _ => (&self.softmax_causal_any, Shape::line(rows, keys.clamp(32, 1024).next_multiple_of(32))),
        };
        let arguments: [Argument; 6] =
            [(&scores).into(), u64::from(rows).into(), sizes.tokens.into(), keys.into(), scale.into(), start.into()];
        // SAFETY: the kernel stays within the rows, and the buffer is at least as large.
        launch(rows.min(keys), || unsafe { kernel.launch(stream, shape, &arguments) })
    }
}

/// Which kernel and how many threads: a warp a row where it can keep the row, else a block a row, of at most
/// `most_threads`; nothing where that is not enough.
pub(super) fn softmax_shape(rows: u32, groups: u32, most_threads: u32) -> Option<(usize, Shape)> {
    let (kernel, kept) = match groups {
        ..=64 => (0, KEPT[0]),
        65..=1024 => (1, KEPT[1]),
        _ => (2, KEPT[2]),
    };
    let threads = groups.div_ceil(kept).next_multiple_of(32).max(32);
    let rows_per_block = if threads == 32 { 4 } else { 1 };
    let (grid, block) = ([rows.div_ceil(rows_per_block), 1, 1], [threads, rows_per_block, 1]);
    (threads <= most_threads).then_some((kernel, Shape { grid, block, shared_bytes: 0 }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_of_a_warp_or_of_a_block() {
        let shape = |groups| softmax_shape(10, groups, 512).map(|(kernel, shape)| (kernel, shape.grid[0], shape.block));
        assert_eq!(shape(64), Some((0, 3, [32, 4, 1])));
        assert_eq!(shape(128), Some((1, 3, [32, 4, 1])));
        assert_eq!(shape(129), Some((1, 10, [64, 1, 1])));
        assert_eq!(shape(1024), Some((1, 10, [256, 1, 1])));
        assert_eq!(shape(1025), Some((2, 10, [160, 1, 1])));
        assert_eq!((shape(4096).is_some(), shape(4097)), (true, None));
    }

    #[test]
    fn threads_can_keep_the_row() {
        for groups in 1..5000 {
            let kept = softmax_shape(1, groups, 1024).map(|(kernel, shape)| KEPT[kernel] * shape.block[0]);
            assert!(kept.is_some_and(|kept| kept >= groups), "{groups}");
        }
    }
}
