//! The loss, where gradients begin.

use super::Gradients;
use crate::launch::*;

const DOING: &str = "taking the loss";
/// Groups of 16 bytes that a thread keeps, in each of the kernels.
const KEPT: [u32; 2] = [4, 8];
/// The most threads of a row.
const THREADS: u32 = 1024;

impl<T: Element> Gradients<T> {
    /// Puts the cross entropy of each row of logits (rows by vocabulary) and its target into `losses`, and the gradient of
    /// `scale` times their sum in place of the logits: `scale` is one over the rows for the gradient of the mean.
    ///
    /// A target that is not in the vocabulary makes a loss and a row that are no numbers.
    pub fn cross_entropy<'a>(
        &self,
        stream: &Stream,
        logits: impl Into<SliceMut<'a, T>>,
        targets: impl Into<Slice<'a, u32>>,
        losses: impl Into<SliceMut<'a, f32>>,
        [rows, vocabulary]: [u32; 2],
        scale: f32,
    ) -> Done {
        let launch = Launch::new(stream, DOING)
            .write_rows(logits.into(), area(rows, vocabulary))
            .read(targets.into(), rows)
            .write(losses.into(), rows)
            .require((1..1 << 31).contains(&vocabulary), "a vocabulary has 1 to 2^31 tokens")
            .with(vocabulary)
            .with(scale);
        let is_aligned = launch.is_aligned::<T>(vocabulary);
        let (kernel, threads) = self.loss_kernel(groups::<T>(vocabulary), vocabulary, is_aligned);
        launch.run(kernel, Shape::line(rows, threads))
    }

    fn loss_kernel(&self, groups: u32, vocabulary: u32, is_aligned: bool) -> (&Kernel, u32) {
        match loss_threads(groups) {
            Some((kernel, threads)) if is_aligned => (&self.cross_entropy_kept[kernel], threads),
            None if is_aligned => (&self.cross_entropy.by_16_bytes, THREADS),
            _ => (&self.cross_entropy.any, vocabulary.next_multiple_of(32).min(THREADS)),
        }
    }

    /// Puts the mean of all `values` into `mean[0]`.
    pub fn mean<'a>(
        &self,
        stream: &Stream,
        values: impl Into<Slice<'a, f32>>,
        mean: impl Into<SliceMut<'a, f32>>,
    ) -> Done {
        let values = values.into();
        let count = blocks(values.length());
        let launch = Launch::new(stream, "taking a mean")
            .require(count > 0, "there is no value to take the mean of")
            .require(count < 1 << 31, "too many values")
            .read(values, count)
            .write(mean.into(), 1_u32)
            .with(count);
        launch.run(&self.mean, Shape::line(1, THREADS))
    }
}

/// The kernel and the number of threads that can keep a row of this number of groups, if any can.
fn loss_threads(groups: u32) -> Option<(usize, u32)> {
    let kernel = KEPT.iter().position(|kept| groups <= kept * THREADS)?;
    Some((kernel, groups.div_ceil(KEPT[kernel]).next_multiple_of(32).max(32)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_kept_where_threads_can_keep_it() {
        assert_eq!(loss_threads(1), Some((0, 32)));
        assert_eq!(loss_threads(2500), Some((0, 640)));
        assert_eq!(loss_threads(4097), Some((1, 544)));
        assert_eq!((loss_threads(8192), loss_threads(8193)), (Some((1, 1024)), None));
        for groups in 1..9000 {
            assert!(loss_threads(groups).is_none_or(|(kernel, threads)| threads * KEPT[kernel] >= groups), "{groups}");
        }
    }
}
