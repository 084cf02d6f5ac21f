//! The element types of a decoder on the CPU, which computes in f32.

use half::{bf16, f16};

use super::vectors::{dot, vectorized};
use super::{halves, rows::Rows};

pub trait Number: Copy + Default + Send + Sync + bytemuck::Pod {
    const IS_F32: bool = false;
    const IS_BF16: bool = false;

    fn wide(self) -> f32;
    fn narrow(number: f32) -> Self;

    /// Converts numbers to f32.
    #[inline(always)]
    fn widen(numbers: &[Self], to: &mut [f32]) {
        to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number.wide());
    }

    /// Computes the dot products of each of a few rows with each row of weights by special instructions, if there are any.
    fn fast_dots(_x: Rows<'_, f32>, _weights: Rows<'_, Self>, _sums: &mut [f32]) -> bool {
        false
    }

    /// Computes the dot products of each of a few rows with each row of weights.
    fn dots(x: Rows<'_, f32>, weights: Rows<'_, Self>, sums: &mut [f32]) {
        if Self::fast_dots(x, weights, sums) {
            return;
        }
        vectorized!(for column in 0..weights.count {
            for at in 0..x.count {
                sums[at * weights.count + column] = dot(x.row(at), weights.row(column));
            }
        });
    }
}

impl Number for f32 {
    const IS_F32: bool = true;

    #[inline(always)]
    fn wide(self) -> f32 {
        self
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        number
    }
}

impl Number for bf16 {
    const IS_BF16: bool = true;

    /// Shifts bits, which every processor can vectorize.
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        let bits = number.to_bits();
        // To nearest, ties to even.
        let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
        Self::from_bits(if number.is_nan() { bits >> 16 | 0x40 } else { rounded } as u16)
    }

    fn fast_dots(x: Rows<'_, f32>, weights: Rows<'_, Self>, sums: &mut [f32]) -> bool {
        halves::dots(x, weights, sums)
    }
}

impl Number for f16 {
    /// Shifts bits, which every processor can vectorize; `half` checks for a CPU feature at every number.
    #[inline(always)]
    fn wide(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let size = (bits & 0x7fff) << 13;
        // Multiplying by 2^112 corrects the exponent bias, also of subnormals.
        let finite = (f32::from_bits(size) * f32::from_bits(0x7780_0000)).to_bits();
        let is_finite = size < 0x0f80_0000;
        f32::from_bits(if is_finite { finite } else { size | 0x7f80_0000 } | (bits & 0x8000) << 16)
    }

    /// Without branches, so it can be vectorized.
    #[inline(always)]
    fn narrow(number: f32) -> Self {
        let size = number.to_bits() & 0x7fff_ffff;
        // To nearest, ties to even. Too large numbers become infinite.
        let normal = (size.wrapping_sub(0x3800_0000).wrapping_add(0xfff + (size >> 13 & 1)) >> 13).min(0x7c00);
        // The last bit of 0.5 has the value of the last bit of a subnormal.
        let subnormal = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0.5_f32.to_bits());
        let finite = if size < 0x3880_0000 { subnormal } else { normal };
        let half = if size > 0x7f80_0000 { 0x7e00 } else { finite };
        Self::from_bits((half | number.to_bits() >> 16 & 0x8000) as u16)
    }

    fn fast_dots(x: Rows<'_, f32>, weights: Rows<'_, Self>, sums: &mut [f32]) -> bool {
        halves::dots(x, weights, sums)
    }

    fn widen(numbers: &[Self], to: &mut [f32]) {
        if !halves::widen(numbers, to) {
            vectorized!(to.iter_mut().zip(numbers).for_each(|(to, number)| *to = number.wide()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_widens_as_in_the_half_crate() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            assert!(half.wide() == half.to_f32() || half.is_nan() && half.wide().is_nan(), "{bits:#x}");
            assert_eq!(half.wide().is_sign_negative(), half.is_sign_negative(), "{bits:#x}");
            let half = bf16::from_bits(bits);
            assert!(half.wide() == half.to_f32() || half.is_nan() && half.wide().is_nan(), "{bits:#x}");
        }
    }

    #[test]
    fn every_number_rounds_as_in_the_half_crate() {
        // All signs, exponents and upper bits, each with lower bits at, below and above the middle of two halves.
        let lower = [0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x7fff, 0x8000, 0x8001, 0xffff];
        for number in (0..=u16::MAX).flat_map(|upper| lower.map(|lower| f32::from_bits(u32::from(upper) << 16 | lower)))
        {
            let (half, expected) = (f16::narrow(number), f16::from_f32(number));
            assert!(half.to_bits() == expected.to_bits() || half.is_nan() && expected.is_nan(), "{number:e}");
            let (half, expected) = (bf16::narrow(number), bf16::from_f32(number));
            assert!(half.to_bits() == expected.to_bits() || half.is_nan() && expected.is_nan(), "{number:e}");
        }
    }
}
