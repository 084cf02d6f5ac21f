//! The number types that a decoder on the CPU stores; it computes in f32 with all of them.

use half::{bf16, f16};

pub trait Number: Copy + Default + Send + Sync + bytemuck::Pod {
    const IS_F32: bool = false;

    fn wide(self) -> f32;
    fn narrow(number: f32) -> Self;

    /// The numbers themselves, if they are those of f32.
    fn as_f32(_numbers: &[Self]) -> Option<&[f32]> {
        None
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

    fn as_f32(numbers: &[Self]) -> Option<&[f32]> {
        Some(numbers)
    }
}

impl Number for bf16 {
    /// By its bits, which every processor has vectors for.
    #[inline(always)]
    fn wide(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        Self::from_f32(number)
    }
}

impl Number for f16 {
    /// By its bits, which every processor has vectors for; the library's conversion asks for a feature at every number.
    #[inline(always)]
    fn wide(self) -> f32 {
        let bits = u32::from(self.to_bits());
        let size = (bits & 0x7fff) << 13;
        // The exponent counts from another zero: 2^112 is the difference, and it puts subnormal numbers right too.
        let finite = (f32::from_bits(size) * f32::from_bits(0x7780_0000)).to_bits();
        let is_finite = size < 0x0f80_0000;
        f32::from_bits(if is_finite { finite } else { size | 0x7f80_0000 } | (bits & 0x8000) << 16)
    }

    #[inline(always)]
    fn narrow(number: f32) -> Self {
        Self::from_f32(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_half_is_widened_as_the_library_does() {
        for bits in 0..=u16::MAX {
            let half = f16::from_bits(bits);
            assert!(half.wide() == half.to_f32() || half.is_nan() && half.wide().is_nan(), "{bits:#x}");
            assert_eq!(half.wide().is_sign_negative(), half.is_sign_negative(), "{bits:#x}");
            let half = bf16::from_bits(bits);
            assert!(half.wide() == half.to_f32() || half.is_nan() && half.wide().is_nan(), "{bits:#x}");
        }
    }
}
