//! The softmax of attention whose scores are stored.

use super::{HeadSizes, Operations};
use crate::launch::*;

/// Groups of 16 bytes that a thread keeps, in each of the kernels.
pub(super) const KEPT: [u32; 3] = [2, 4, 8];
const DOING: &str = "taking a softmax";

impl<T: Element> Operations<T> {
    /// Turns scores, [batch * kv_heads, group * tokens, keys], into shares that add up to one in each row.
    ///
    /// Row r of a matrix is of query r modulo `tokens`, which sees the keys up to the position `start[0]` plus the query;
    /// other keys get nothing. Scores are multiplied by `scale`, which is positive, first.
    ///
    /// With a window, only this number of the last keys that a query sees count.
    pub fn softmax_causal<'a>(
        &self,
        stream: &Stream,
        scores: impl Into<SliceMut<'a, T>>,
        start: impl Into<Slice<'a, u32>>,
        sizes: &HeadSizes,
        (keys, window): (u32, Option<u32>),
        scale: f32,
    ) -> Done {
        sizes.check(DOING)?;
        let rows = blocks(sizes.rows().saturating_mul(sizes.heads.into()));
        let launch = Launch::new(stream, DOING)
            .require(rows < 1 << 31, "too many rows")
            .write_rows(scores.into(), area(rows, keys))
            .with(u64::from(rows))
            .with_all([sizes.tokens, keys])
            .with(scale)
            .read(start.into(), 1_u32)
            .skip_if(keys == 0);
        if let Some(window) = window {
            return launch.with(window).run(&self.softmax_windowed, any_shape(rows, keys));
        }
        let kept = softmax_shape(rows, groups::<T>(keys), 256 * size_of::<T>() as u32);
        match kept.filter(|_| launch.is_aligned::<T>(keys)) {
            Some((kernel, shape)) => launch.run(&self.softmax_causal[kernel], shape),
            None => launch.run(&self.softmax_causal_any, any_shape(rows, keys)),
        }
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

pub(super) fn any_shape(rows: u32, keys: u32) -> Shape {
    Shape::line(rows, keys.clamp(32, 1024).next_multiple_of(32))
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
