//! Matrices in e4m3, made from numbers and turned back.

use super::FP8;
use crate::launch::*;

/// Neighbours of a row that share a scale in blocks; the kernels have the same number.
const BLOCK: u32 = 128;
/// Bytes that codes and scales begin at a multiple of.
const ALIGNED: u64 = 16;
const THREADS: u32 = 256;

/// Which weights of a matrix in e4m3 share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fp8Scales {
    /// Those of a row.
    Rows,
    /// 128 neighbours of a row.
    Blocks,
}

impl Fp8Scales {
    fn group(self, width: u32) -> u32 {
        match self {
            Self::Rows => width.max(1),
            Self::Blocks => BLOCK,
        }
    }

    /// Numbers of `T` in whose memory a matrix `[rows, width]` fits: codes row by row, then scales row by row, each from
    /// a multiple of 16 bytes on.
    pub fn numbers<T>(self, [rows, width]: [u32; 2]) -> u64 {
        let codes = area(rows, width).next_multiple_of(ALIGNED);
        let scales = area(rows, width.div_ceil(self.group(width))).saturating_mul(4).next_multiple_of(ALIGNED);
        codes.saturating_add(scales) / size_of::<T>().max(1) as u64
    }
}

kernels! {
    /// Makes matrices in e4m3 from numbers of a type, and turns them back, on one device. They lie in memory of that type;
    /// see [`Fp8Scales::numbers`].
    Fp8
    FP8 { quantise: Kernel = kernel("quantise_fp8"), dequantise: Kernel = kernel("dequantise_fp8"), }
}

impl<T: Element> Fp8<T> {
    /// Quantises a matrix. A scale is the least power of two with which the largest of its numbers is not above 448;
    /// numbers are rounded to nearest.
    pub fn quantise<'a>(
        &self,
        stream: &Stream,
        from: impl Into<Slice<'a, T>>,
        to: impl Into<SliceMut<'a, T>>,
        shape: [u32; 2],
        scales: Fp8Scales,
    ) -> Done {
        let ([rows, width], group) = (shape, scales.group(shape[1]));
        let launch = Launch::new(stream, "quantising")
            .read(from.into(), area(rows, width))
            .write(to.into(), scales.numbers::<T>(shape))
            .with_all([rows, width, group]);
        let grid = [rows, width.div_ceil(group), 1];
        launch.run(
            &self.quantise,
            Shape { grid, block: [group.next_multiple_of(32).min(THREADS), 1, 1], shared_bytes: 0 },
        )
    }

    /// Writes the numbers of a quantised matrix.
    pub fn dequantise<'a>(
        &self,
        stream: &Stream,
        from: impl Into<Slice<'a, T>>,
        to: impl Into<SliceMut<'a, T>>,
        shape: [u32; 2],
        scales: Fp8Scales,
    ) -> Done {
        let ([rows, width], group) = (shape, scales.group(shape[1]));
        let launch = Launch::new(stream, "dequantising")
            .read(from.into(), scales.numbers::<T>(shape))
            .write(to.into(), area(rows, width))
            .with_all([rows, width, group]);
        launch.run(&self.dequantise, Shape::line(rows, THREADS))
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn codes_and_scales_begin_at_multiples_of_16_bytes() {
        assert_eq!(Fp8Scales::Rows.numbers::<bf16>([4096, 2560]), (4096 * 2560 + 4096 * 4) / 2);
        assert_eq!(Fp8Scales::Blocks.numbers::<bf16>([4096, 2560]), (4096 * 2560 + 4096 * 4 * 20) / 2);
        assert_eq!(Fp8Scales::Rows.numbers::<bf16>([3, 7]), (32 + 16) / 2);
        assert_eq!(Fp8Scales::Blocks.numbers::<f32>([3, 130]), (400 + 32) / 4);
    }
}
