//! The softmax of attention that stores its scores.

use super::{Gradients, HeadSizes, Operations, operations::row_threads};
use crate::launch::*;

/// 16-byte vectors that a thread of each kernel keeps.
const KEPT: [u32; 3] = [2, 4, 8];
const DOING: &str = "computing a softmax";

impl<T: Element> Operations<T> {
    /// Causal softmax of scores `[batch * kv_heads, group * tokens, keys]`, in place.
    ///
    /// Row r of a matrix belongs to query r modulo `tokens`, which sees the keys up to the position `start[0]` plus the
    /// query, or only the last `window` of them; other keys get zero. Scores are first multiplied by `scale`, which is
    /// positive.
    pub fn softmax_causal(
        &self,
        stream: &Stream,
        scores: impl Write<T>,
        start: impl Read<u32>,
        sizes: &HeadSizes,
        (keys, window): (u32, Option<u32>),
        scale: f32,
    ) -> Done {
        sizes.check(DOING)?;
        let rows = blocks(sizes.query_rows());
        let launch = Launch::new(stream, DOING)
            .require(rows < 1 << 31, "too many rows")
            .write_rows(scores, area(rows, keys))
            .with(u64::from(rows))
            .with_all([sizes.tokens, keys])
            .with(scale)
            .read(start, 1_u32)
            .skip_if(keys == 0);
        if let Some(window) = window {
            return launch.with(window).run(&self.softmax_windowed, any_shape(rows, keys));
        }
        let kept = softmax_shape(rows, vectors::<T>(keys), 256 * size_of::<T>() as u32);
        match kept.filter(|_| launch.is_aligned::<T>(keys)) {
            Some((kernel, shape)) => launch.run(&self.softmax_causal[kernel], shape),
            None => launch.run(&self.softmax_causal_any, any_shape(rows, keys)),
        }
    }
}

impl<T: Element> Gradients<T> {
    /// Overwrites the gradient of probabilities `p` `[batch * kv_heads, group * tokens, keys]` with that of the scores. `p`,
    /// `start` and `scale` are those of [`Operations::softmax_causal`]. Masked scores get zero.
    #[allow(clippy::too_many_arguments)]
    pub fn softmax_causal_backward(
        &self,
        stream: &Stream,
        p: impl Read<T>,
        dp: impl Write<T>,
        start: impl Read<u32>,
        sizes: &HeadSizes,
        keys: u32,
        scale: f32,
    ) -> Done {
        const DOING: &str = "computing the gradient of a softmax";
        sizes.check(DOING)?;
        let rows = blocks(sizes.query_rows());
        let launch = Launch::new(stream, DOING)
            .require(rows < 1 << 31, "too many rows")
            .read_rows(p, area(rows, keys))
            .write_rows(dp, area(rows, keys))
            .with(u64::from(rows))
            .with_all([sizes.tokens, keys])
            .with(scale)
            .read(start, 1_u32)
            .skip_if(keys == 0);
        let kept = softmax_shape(rows, vectors::<T>(keys), 256).filter(|_| launch.is_aligned::<T>(keys));
        let kept = kept.and_then(|(kernel, shape)| Some((self.softmax_causal_backward.get(kernel)?, shape)));
        // Longer rows do not fit in registers and are read twice.
        let (kernel, shape) = kept.unwrap_or((&self.softmax_causal_backward_any, any_shape(rows, keys)));
        launch.run(kernel, shape)
    }
}

/// The kernel and its launch configuration: one warp per row if it can keep the row, else one block of at most
/// `max_threads`; none if that is not enough.
fn softmax_shape(rows: u32, vectors: u32, max_threads: u32) -> Option<(usize, Shape)> {
    let (kernel, kept) = match vectors {
        ..=64 => (0, KEPT[0]),
        65..=1024 => (1, KEPT[1]),
        _ => (2, KEPT[2]),
    };
    let threads = vectors.div_ceil(kept).next_multiple_of(32).max(32);
    let rows_per_block = if threads == 32 { 4 } else { 1 };
    let shape = Shape::new([rows.div_ceil(rows_per_block), 1, 1], [threads, rows_per_block, 1]);
    (threads <= max_threads).then_some((kernel, shape))
}

fn any_shape(rows: u32, keys: u32) -> Shape {
    Shape::line(rows, row_threads(keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_warp_or_a_block() {
        let shape =
            |vectors| softmax_shape(10, vectors, 512).map(|(kernel, shape)| (kernel, shape.grid[0], shape.block));
        assert_eq!(shape(64), Some((0, 3, [32, 4, 1])));
        assert_eq!(shape(128), Some((1, 3, [32, 4, 1])));
        assert_eq!(shape(129), Some((1, 10, [64, 1, 1])));
        assert_eq!(shape(1024), Some((1, 10, [256, 1, 1])));
        assert_eq!(shape(1025), Some((2, 10, [160, 1, 1])));
        assert_eq!((shape(4096).is_some(), shape(4097)), (true, None));
    }

    #[test]
    fn threads_can_keep_the_row() {
        for vectors in 1..5000 {
            let kept = softmax_shape(1, vectors, 1024).map(|(kernel, shape)| KEPT[kernel] * shape.block[0]);
            assert!(kept.is_some_and(|kept| kept >= vectors), "{vectors}");
        }
    }
}
