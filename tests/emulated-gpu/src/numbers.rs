//! Types of numbers: how the bits of a register are read and rounded.

/// A type that a register holds: 16 and 32 bits are in the low bits of a word, 64 bits take two.
pub(crate) trait Number: Copy {
    type Bits: Copy + Default;
    const IS_WIDE: bool;
    fn of(bits: Self::Bits) -> Self;
    fn bits(self) -> Self::Bits;
}

macro_rules! number {
    ($($type:ty, $bits:ty, $is_wide:literal, |$from:ident| $of:expr, |$value:ident| $to:expr;)*) => {
        $(impl Number for $type {
            type Bits = $bits;
            const IS_WIDE: bool = $is_wide;
            #[inline(always)]
            fn of($from: $bits) -> Self {
                $of
            }
            #[inline(always)]
            fn bits(self) -> $bits {
                let $value = self;
                $to
            }
        })*
    };
}

number! {
    u32, u32, false, |bits| bits, |value| value;
    i32, u32, false, |bits| bits as i32, |value| value as u32;
    u16, u32, false, |bits| bits as u16, |value| u32::from(value);
    i16, u32, false, |bits| bits as i16, |value| u32::from(value as u16);
    f32, u32, false, |bits| f32::from_bits(bits), |value| value.to_bits();
    u64, u64, true, |bits| bits, |value| value;
    i64, u64, true, |bits| bits as i64, |value| value as u64;
    f64, u64, true, |bits| f64::from_bits(bits), |value| value.to_bits();
}

/// Widens an f16.
#[inline(always)]
pub(crate) fn from_f16(bits: u32) -> f32 {
    let size = (bits & 0x7fff) << 13;
    // The exponents of the two types have different zeros; the product also scales subnormal numbers.
    let scaled = (f32::from_bits(size) * f32::from_bits(0x7780_0000)).to_bits();
    let special = size | 0x7f80_0000;
    let size = if bits & 0x7c00 == 0x7c00 { special } else { scaled };
    f32::from_bits(size | (bits & 0x8000) << 16)
}

/// Rounds to the nearest f16, or the even one of two.
#[inline(always)]
pub(crate) fn to_f16(value: f32) -> u32 {
    let bits = value.to_bits();
    let (sign, size) = (bits >> 16 & 0x8000, bits & 0x7fff_ffff);
    let normal = size.wrapping_sub(112 << 23).wrapping_add(0xfff + (size >> 13 & 1)) >> 13;
    // Adding one half puts the bits of a subnormal number at the end.
    let subnormal = (f32::from_bits(size) + 0.5).to_bits().wrapping_sub(0x3f00_0000);
    let finite = if size < 113 << 23 { subnormal } else { normal };
    let large = if size > 0x7f80_0000 { 0x7fff } else { 0x7c00 };
    let result = if size >= 143 << 23 { large } else { finite };
    if size > 0x7f80_0000 { 0x7fff } else { sign | result }
}

/// Rounds to bf16: to nearest, ties to even.
#[inline(always)]
pub(crate) fn to_bf16(value: f32) -> u32 {
    let bits = value.to_bits();
    let rounded = bits.wrapping_add(0x7fff + (bits >> 16 & 1)) >> 16;
    if bits & 0x7fff_ffff > 0x7f80_0000 { 0x7fff } else { rounded }
}

/// Converts bf16 to f32.
#[inline(always)]
pub(crate) fn from_bf16(bits: u32) -> f32 {
    f32::from_bits(bits << 16)
}

/// Two f16 from two codes in e4m3, the lower one first.
#[inline(always)]
pub(crate) fn f16_pair_from_e4m3(codes: u32) -> u32 {
    let one = |code: u32| {
        let value = f32::from_bits((code & 0x7f) << 20) * f32::from_bits(0x7b80_0000);
        let bits = if code & 0x7f == 0x7f { 0x7fff } else { to_f16(value) };
        bits | (code & 0x80) << 8
    };
    one(codes & 0xff) | one(codes >> 8 & 0xff) << 16
}

/// `a b + c`, rounded down.
#[inline(always)]
pub(crate) fn fma_down(a: f32, b: f32, c: f32) -> f32 {
    // A product of two f32 is exact in f64, and so is what their sum loses.
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    let sum = product + c;
    let kept = sum - product;
    let lost = (product - (sum - kept)) + (c - kept);
    let nearest = sum as f32;
    let is_above = f64::from(nearest) > sum || (f64::from(nearest) == sum && lost < 0.0);
    if is_above { nearest.next_down() } else { nearest }
}

/// Flushes subnormals to zero.
#[inline(always)]
pub(crate) fn flushed(value: f32) -> f32 {
    if value.is_subnormal() { 0.0_f32.copysign(value) } else { value }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_is_widened_and_narrowed_back() {
        for bits in (0..0x7c01).chain(0x8000..0xfc01) {
            assert_eq!(to_f16(from_f16(bits)), bits, "{bits:#x}");
        }
        assert_eq!((from_f16(0x3c00), from_f16(1), from_f16(0x7bff)), (1.0, 2.0_f32.powi(-24), 65504.0));
        assert!(from_f16(0x7e00).is_nan());
    }

    #[test]
    fn a_number_between_two_becomes_the_nearer_or_the_even_one() {
        let step = 2.0_f32.powi(-11);
        assert_eq!([1.0 + step, 1.0 + 3.0 * step, 1.0 + 1.1 * step].map(to_f16), [0x3c00, 0x3c02, 0x3c01]);
        assert_eq!([65519.0, 65520.0, 1e-8, 3e-8, f32::NAN].map(to_f16), [0x7bff, 0x7c00, 0, 1, 0x7fff]);
        assert_eq!([1.0 + 2.0_f32.powi(-8), 1.0 + 3.0 * 2.0_f32.powi(-8), -1.0].map(to_bf16), [0x3f80, 0x3f82, 0xbf80]);
    }

    #[test]
    fn codes_of_e4m3_are_widened() {
        let both = |codes| [from_f16(f16_pair_from_e4m3(codes) & 0xffff), from_f16(f16_pair_from_e4m3(codes) >> 16)];
        assert_eq!(both(0x7e38), [1.0, 448.0]);
        assert_eq!(both(0xb801), [2.0_f32.powi(-9), -1.0]);
        assert!(both(0x7f)[0].is_nan());
    }

    #[test]
    fn a_sum_can_be_rounded_down() {
        assert_eq!(fma_down(1.0, 1.0, 1e-20), 1.0);
        assert_eq!(fma_down(1.0, 1.0, -1e-20), 1.0_f32.next_down());
        assert_eq!(fma_down(3.0, 0.5, 12_582_912.0), 12_582_913.0);
        assert_eq!(fma_down(-3.0, 0.5, 12_582_912.0), 12_582_910.0);
    }
}
