//! The gradients of RMS norms and of SwiGLU.

use super::Gradients;
use crate::launch::*;

const DOING: &str = "computing the gradient of a norm";
/// Threads per block of each kernel, and the maximum number of rows that it has at a time: the hardware has sixteen barriers,
/// and the block needs one itself.
const THREADS: [u32; 2] = [768, 1024];
const MAX_ROWS: u32 = 15;
/// The maximum shared memory of a block for its sums.
pub(super) const SHARED_BYTES: u32 = 64 << 10;

/// The inputs of an RMS norm, and the gradient of its result.
#[derive(Debug, Clone, Copy)]
pub struct Normed<'a, T> {
    /// The rows, `[rows, width]`.
    pub x: Slice<'a, T>,
    /// The weight, `[width]`.
    pub weight: Slice<'a, T>,
    /// The gradient of the result, `[rows, width]`.
    pub dy: Slice<'a, T>,
    /// Added to the mean square.
    pub epsilon: f32,
}

impl<T: Element> Gradients<T> {
    /// Writes the gradient of an RMS norm's rows to `dx`, or adds it, and that of its weight to `d_weight`. `scratch` has
    /// [`Gradients::scratch_length`] of the width.
    #[allow(clippy::too_many_arguments)]
    pub fn rms_norm_backward<'a>(
        &self,
        stream: &Stream,
        norm: &Normed<'_, T>,
        dx: impl Write<T>,
        d_weight: impl Into<SliceMut<'a, T>>,
        scratch: impl Into<SliceMut<'a, f32>>,
        [rows, width]: [u32; 2],
        is_added: bool,
    ) -> Done {
        let (d_weight, scratch) = (d_weight.into(), scratch.into());
        let launch = Launch::new(stream, DOING)
            .read_rows(norm.x, area(rows, width))
            .read_rows(norm.weight, width)
            .read_rows(norm.dy, area(rows, width))
            .write_rows(dx, area(rows, width))
            .fits(&d_weight, width)
            .require(rows < 1 << 31, "too many rows");
        let launch = self.scratch(launch, &scratch, width).with_all([rows, width]).with(is_added).with(norm.epsilon);
        launch.check()?;
        let (kernel, shape) = self.norm_kernel([rows, width], launch.is_aligned::<T>(width));
        launch.skip_if(width == 0).run(kernel, shape)?;
        self.sum_partials(stream, scratch.pointer(), &d_weight, shape.grid[0], [width, width])
    }

    fn norm_kernel(&self, [rows, width]: [u32; 2], is_aligned: bool) -> (&Kernel, Shape) {
        match team(vectors::<T>(width)) {
            Some((kernel, [threads, teams])) if is_aligned => {
                let shared_bytes = 4 * width * teams;
                let grid = [rows.div_ceil(teams).min(self.multiprocessors), 1, 1];
                (&self.rms_norm_backward[kernel], Shape::new(grid, [threads, teams, 1]).with_shared(shared_bytes))
            }
            _ => (&self.rms_norm_backward_any, Shape::line(rows.min(self.max_parts()), 256)),
        }
    }

    /// Overwrites `gate_up` `[rows, 2 * ffn]`, before its bias, with its gradient through SwiGLU. `d_activated` `[rows, ffn]` is
    /// the gradient of the result, which is computed again into `activated`.
    pub fn swiglu_backward(
        &self,
        stream: &Stream,
        gate_up: impl Write<T>,
        bias: Option<Slice<'_, T>>,
        d_activated: impl Read<T>,
        activated: Option<SliceMut<'_, T>>,
        [rows, ffn]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "computing the gradient of SwiGLU")
            .write_rows(gate_up, area(rows, ffn).saturating_mul(2))
            .read_rows(bias, 2 * u64::from(ffn))
            .read_rows(d_activated, area(rows, ffn))
            .write_rows(activated, area(rows, ffn))
            .with_all([rows, ffn]);
        launch.run_pair::<T>(&self.swiglu_backward, [rows, ffn], false)
    }
}

/// The kernel, the threads per row of this number of vectors, and the rows per block; none if a block cannot keep a row.
fn team(vectors: u32) -> Option<(usize, [u32; 2])> {
    let of = |kernel: usize| {
        let threads = vectors.div_ceil(kernel as u32 + 1).next_multiple_of(32).max(32);
        (threads <= THREADS[kernel]).then(|| [threads, (THREADS[kernel] / threads).min(MAX_ROWS)])
    };
    match (of(0), of(1)) {
        // While one row is reduced, another must keep the block busy.
        (Some(one), _) if one[1] > 1 => Some((0, one)),
        (_, Some(two)) => Some((1, two)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fill_the_block() {
        assert_eq!(team(96), Some((0, [96, 8])));
        assert_eq!(team(384), Some((0, [384, 2])));
        assert_eq!(team(640), Some((1, [320, 3])));
        assert_eq!(team(1), Some((0, [32, 15])));
        assert_eq!((team(2048), team(2049)), (Some((1, [1024, 1])), None));
        for vectors in 1..3000 {
            let kept = team(vectors).map(|(kernel, [threads, _])| (kernel as u32 + 1) * threads);
            assert!(kept.is_none_or(|kept| kept >= vectors), "{vectors}");
            let elements = team(vectors).map_or(0, |(_, [_, teams])| teams * vectors * 8);
            assert!(4 * elements <= SHARED_BYTES, "{vectors}");
        }
    }
}
