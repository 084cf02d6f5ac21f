//! The cross-entropy loss and its gradient.

use super::Gradients;
use crate::launch::*;

const DOING: &str = "computing the loss";
/// 16-byte vectors that a thread of each kernel keeps.
const KEPT: [u32; 2] = [4, 8];
/// The maximum number of threads per row.
const THREADS: u32 = 1024;

impl<T: Element> Gradients<T> {
    /// Writes the cross entropy of each row of logits `[rows, vocabulary]` to `losses`, and the gradient of `scale` times
    /// their sum over the logits: `scale` is one over the rows for the mean. Targets outside the vocabulary give NaN.
    pub fn cross_entropy(
        &self,
        stream: &Stream,
        logits: impl Write<T>,
        targets: impl Read<u32>,
        losses: impl Write<f32>,
        [rows, vocabulary]: [u32; 2],
        scale: f32,
    ) -> Done {
        let launch = Launch::new(stream, DOING)
            .write_rows(logits, area(rows, vocabulary))
            .read(targets, rows)
            .write(losses, rows)
            .require((1..1 << 31).contains(&vocabulary), "the vocabulary is empty or too large")
            .with(vocabulary)
            .with(scale);
        let is_aligned = launch.is_aligned::<T>(vocabulary);
        let (kernel, threads) = self.loss_kernel(vectors::<T>(vocabulary), vocabulary, is_aligned);
        launch.run(kernel, Shape::line(rows, threads))
    }

    fn loss_kernel(&self, vectors: u32, vocabulary: u32, is_aligned: bool) -> (&Kernel, u32) {
        match loss_threads(vectors) {
            Some((kernel, threads)) if is_aligned => (&self.cross_entropy_kept[kernel], threads),
            None if is_aligned => (&self.cross_entropy.vectorised, THREADS),
            _ => (&self.cross_entropy.any, vocabulary.next_multiple_of(32).min(THREADS)),
        }
    }

    /// Writes the mean of all values to `mean[0]`.
    pub fn mean<'a>(&self, stream: &Stream, values: impl Into<Slice<'a, f32>>, mean: impl Write<f32>) -> Done {
        let values = values.into();
        let count = blocks(values.length());
        let launch = Launch::new(stream, "computing a mean")
            .require((1..1 << 31).contains(&count), "there are no values, or too many")
            .read(values, count)
            .write(mean, 1_u32)
            .with(count);
        launch.run(&self.mean, Shape::line(1, THREADS))
    }
}

/// The kernel and the number of threads that can keep a row of this number of vectors, if any.
fn loss_threads(vectors: u32) -> Option<(usize, u32)> {
    let kernel = KEPT.iter().position(|kept| vectors <= kept * THREADS)?;
    Some((kernel, vectors.div_ceil(KEPT[kernel]).next_multiple_of(32).max(32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_can_keep_the_row() {
        assert_eq!(loss_threads(1), Some((0, 32)));
        assert_eq!(loss_threads(2500), Some((0, 640)));
        assert_eq!(loss_threads(4097), Some((1, 544)));
        assert_eq!((loss_threads(8192), loss_threads(8193)), (Some((1, 1024)), None));
        for vectors in 1..9000 {
            let kept = loss_threads(vectors).map(|(kernel, threads)| threads * KEPT[kernel]);
            assert!(kept.is_none_or(|kept| kept >= vectors), "{vectors}");
        }
    }
}
