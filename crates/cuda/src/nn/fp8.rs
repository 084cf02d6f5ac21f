//! Quantisation of matrices to FP8 (e4m3) and back.

use super::FP8;
use crate::launch::*;

/// Neighbours that share a block scale; the kernels have the same constant.
const BLOCK: u32 = 128;
/// The alignment of codes and scales in bytes.
const ALIGNED: u64 = 16;
const THREADS: u32 = 256;

/// Which weights of an FP8 matrix share a scale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fp8Scales {
    /// One scale per row.
    Rows,
    /// One scale per 128 neighbours of a row.
    Blocks,
}

impl Fp8Scales {
    fn group(self, width: u32) -> u32 {
        match self {
            Self::Rows => width.max(1),
            Self::Blocks => BLOCK,
        }
    }

    /// The size of a matrix `[rows, width]` in elements of `T`: codes row by row, then scales row by row, both aligned to
    /// 16 bytes.
    pub fn elements<T>(self, [rows, width]: [u32; 2]) -> u64 {
        let codes = area(rows, width).next_multiple_of(ALIGNED);
        let scales = area(rows, width.div_ceil(self.group(width))).saturating_mul(4).next_multiple_of(ALIGNED);
        codes.saturating_add(scales) / size_of::<T>().max(1) as u64
    }
}

kernels! {
    /// Quantises matrices of one dtype to FP8, and back, on one device. FP8 matrices are stored in buffers of that dtype: see
    /// [`Fp8Scales::elements`].
    Fp8
    FP8 { quantise: Kernel = kernel("quantise_fp8"), dequantise: Kernel = kernel("dequantise_fp8"), }
}

impl<T: Element> Fp8<T> {
    /// Quantises a matrix. A scale is the smallest power of two for which the largest scaled weight is at most 448; weights
    /// are rounded to nearest.
    pub fn quantise(
        &self,
        stream: &Stream,
        from: impl Read<T>,
        to: impl Write<T>,
        shape: [u32; 2],
        scales: Fp8Scales,
    ) -> Done {
        let ([rows, width], group) = (shape, scales.group(shape[1]));
        let launch = Launch::new(stream, "quantising")
            .read(from, area(rows, width))
            .write(to, scales.elements::<T>(shape))
            .with_all([rows, width, group]);
        let threads = group.next_multiple_of(32).min(THREADS);
        launch.run(&self.quantise, Shape::new([rows, width.div_ceil(group), 1], [threads, 1, 1]))
    }

    /// Dequantises a matrix.
    pub fn dequantise(
        &self,
        stream: &Stream,
        from: impl Read<T>,
        to: impl Write<T>,
        shape: [u32; 2],
        scales: Fp8Scales,
    ) -> Done {
        let ([rows, width], group) = (shape, scales.group(shape[1]));
        let launch = Launch::new(stream, "dequantising")
            .read(from, scales.elements::<T>(shape))
            .write(to, area(rows, width))
            .with_all([rows, width, group]);
        launch.run(&self.dequantise, Shape::line(rows, THREADS))
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn codes_and_scales_are_aligned_to_16_bytes() {
        assert_eq!(Fp8Scales::Rows.elements::<bf16>([4096, 2560]), (4096 * 2560 + 4096 * 4) / 2);
        assert_eq!(Fp8Scales::Blocks.elements::<bf16>([4096, 2560]), (4096 * 2560 + 4096 * 4 * 20) / 2);
        assert_eq!(Fp8Scales::Rows.elements::<bf16>([3, 7]), (32 + 16) / 2);
        assert_eq!(Fp8Scales::Blocks.elements::<f32>([3, 130]), (400 + 32) / 4);
    }
}
