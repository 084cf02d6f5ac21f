//! The loss, where gradients begin.
#![allow(unsafe_code)]

use super::Gradients;
use crate::{
    blas::Element,
    error::CudaError,
    kernel::{Argument, Kernel, Shape},
    kernels::expect,
    nn::{
        operations::{area, count_rows, groups, launch},
        sizes::{has_room, holds, is_by_16_bytes},
    },
    slice::{Slice, SliceMut},
    stream::Stream,
};

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
    ) -> Result<(), CudaError> {
        let (logits, targets, losses) = (logits.into(), targets.into(), losses.into());
        let fits = has_room(&logits, area(rows, vocabulary)) && has_room(&losses, rows.into());
        expect(DOING, fits && holds(targets, rows.into()), "a buffer is too small")?;
        expect(DOING, (1..1 << 31).contains(&vocabulary), "a vocabulary has 1 to 2^31 tokens")?;
        let rows = count_rows(DOING, rows.into())?;
        let aligned = is_by_16_bytes::<T>(vocabulary, &[logits.pointer()]);
        let (kernel, threads) = self.loss_kernel(groups::<T>(vocabulary), vocabulary, aligned);
        let arguments: [Argument; 5] =
            [(&logits).into(), targets.into(), (&losses).into(), vocabulary.into(), scale.into()];
        // SAFETY: the kernel has a row a block, and there are as many rows, targets and places for losses.
        launch(rows, || unsafe { kernel.launch(stream, Shape::line(rows, threads), &arguments) })
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
    ) -> Result<(), CudaError> {
        let (values, mean) = (values.into(), mean.into());
        expect(
            "taking a mean",
            values.length() > 0 && has_room(&mean, 1),
            "nothing has no mean, and a mean needs a place",
        )?;
        let count = count_rows("taking a mean", values.length() as u64)?;
        let arguments: [Argument; 3] = [values.into(), (&mean).into(), count.into()];
        // SAFETY: the kernel reads `count` values and writes one.
        unsafe { self.mean.launch(stream, Shape::line(1, THREADS), &arguments) }
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
