//! The gradients of RMS norms and of SwiGLU.

use super::Gradients;
use crate::launch::*;

const DOING: &str = "taking a norm's gradient";
/// Threads of a block of each kernel, of which several may each share a row, and how many rows it can have at a time: the
/// hardware has sixteen barriers, and the block itself needs one.
const THREADS: [u32; 2] = [768, 1024];
const MOST_ROWS: u32 = 15;
/// Bytes of shared memory that a block needs at most for its sums.
pub(super) const SHARED_BYTES: u32 = 64 << 10;

/// What an RMS norm was given, and the gradient of what it gave.
#[derive(Debug, Clone, Copy)]
pub struct Normed<'a, T> {
    /// The rows that were normalised, rows by width.
    pub x: Slice<'a, T>,
    /// The weight, a row.
    pub weight: Slice<'a, T>,
    /// The gradient of the result, rows by width.
    pub dy: Slice<'a, T>,
    /// What was added to the mean square.
    pub epsilon: f32,
}

impl<T: Element> Gradients<T> {
    /// Puts the gradient of an RMS norm's rows (rows by `width`) into `dx`, or adds it to what is there, and that of its
    /// weight into `d_weight`. `scratch` has [`Gradients::scratch_length`] of the width.
    #[allow(clippy::too_many_arguments)]
    pub fn rms_norm_backward<'a>(
        &self,
        stream: &Stream,
        norm: &Normed<'_, T>,
        dx: impl Into<SliceMut<'a, T>>,
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
            .write_rows(dx.into(), area(rows, width))
            .fits(&d_weight, width)
            .require(rows < 1 << 31, "too many rows");
        let launch = self.scratch(launch, &scratch, width).with_all([rows, width]).with(is_added).with(norm.epsilon);
        launch.check()?;
        let (kernel, shape) = self.norm_kernel([rows, width], launch.is_aligned::<T>(width));
        launch.skip_if(width == 0).run(kernel, shape)?;
        self.sum_partials(stream, scratch.pointer(), &d_weight, shape.grid[0], [width, width])
    }

    fn norm_kernel(&self, [rows, width]: [u32; 2], is_aligned: bool) -> (&Kernel, Shape) {
        match team(groups::<T>(width)) {
            Some((kernel, [threads, teams])) if is_aligned => {
                let shared_bytes = 4 * width * teams;
                let grid = [rows.div_ceil(teams).min(self.multiprocessors), 1, 1];
                (&self.rms_norm_backward[kernel], Shape { grid, block: [threads, teams, 1], shared_bytes })
            }
            _ => (&self.rms_norm_backward_any, Shape::line(rows.min(self.most_parts()), 256)),
        }
    }

    /// Puts the gradient of SwiGLU in place of `gate_up` (rows by twice `ffn`), which its `bias`, where there was one, is
    /// added to first; `d_activated` (rows by `ffn`) is the gradient of what it gave, which is computed again and put into
    /// `activated` where that is there.
    pub fn swiglu_backward<'a>(
        &self,
        stream: &Stream,
        gate_up: impl Into<SliceMut<'a, T>>,
        bias: Option<Slice<'a, T>>,
        d_activated: impl Into<Slice<'a, T>>,
        activated: Option<SliceMut<'a, T>>,
        [rows, ffn]: [u32; 2],
    ) -> Done {
        let launch = Launch::new(stream, "taking a gate's gradient")
            .write_rows(gate_up.into(), area(rows, ffn).saturating_mul(2))
            .read_rows(bias, 2 * u64::from(ffn))
            .read_rows(d_activated.into(), area(rows, ffn))
            .write_rows(activated, area(rows, ffn))
            .with_all([rows, ffn]);
        launch.run_pair::<T>(&self.swiglu_backward, [rows, ffn])
    }
}

/// The kernel, the number of threads per row of this number of groups, and the rows per block; nothing if a block
/// cannot keep a row.
fn team(groups: u32) -> Option<(usize, [u32; 2])> {
    let of = |kernel: usize| {
        let threads = groups.div_ceil(kernel as u32 + 1).next_multiple_of(32).max(32);
        (threads <= THREADS[kernel]).then(|| [threads, (THREADS[kernel] / threads).min(MOST_ROWS)])
    };
    match (of(0), of(1)) {
        // While one row is added up, another must keep the block busy.
        (Some(one), _) if one[1] > 1 => Some((0, one)),
        (_, Some(two)) => Some((1, two)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_has_as_many_rows_as_fill_it() {
        assert_eq!(team(96), Some((0, [96, 8])));
        assert_eq!(team(384), Some((0, [384, 2])));
        assert_eq!(team(640), Some((1, [320, 3])));
        assert_eq!(team(1), Some((0, [32, 15])));
        assert_eq!((team(2048), team(2049)), (Some((1, [1024, 1])), None));
        for groups in 1..3000 {
            let kept = team(groups).map(|(kernel, [threads, _])| (kernel as u32 + 1) * threads);
            assert!(kept.is_none_or(|kept| kept >= groups), "{groups}");
            let numbers = team(groups).map_or(0, |(_, [_, teams])| teams * groups * 8);
            assert!(4 * numbers <= SHARED_BYTES, "{groups}");
        }
    }
}
