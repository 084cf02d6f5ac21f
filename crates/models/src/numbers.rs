//! Numbers as bytes, low byte first, in each type.

use half::{bf16, f16};
use rayon::prelude::*;

use crate::{Dtype, cpu::number::Number};

const PIECE: usize = 1 << 16;

/// Bytes of a type as numbers of 32 bits; bytes behind the last whole number are left out.
pub fn to_f32(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let width = dtype.bytes() as usize;
    let mut numbers = vec![0.0; bytes.len() / width];
    let pieces = numbers.par_chunks_mut(PIECE).zip(bytes.par_chunks(PIECE * width));
    pieces.for_each(|(numbers, bytes)| read_into(numbers, dtype, bytes));
    numbers
}

/// Numbers of a type from their bytes, rounded to another.
pub fn read_into<T: Number>(numbers: &mut [T], dtype: Dtype, bytes: &[u8]) {
    match dtype {
        Dtype::F32 => copy(numbers, bytes, f32::from_le_bytes),
        Dtype::Bf16 | Dtype::Fp8 => copy(numbers, bytes, |bytes| bf16::from_le_bytes(bytes).to_f32()),
        Dtype::F16 => copy(numbers, bytes, |bytes| f16::from_le_bytes(bytes).to_f32()),
    }
}

fn copy<T: Number, const WIDTH: usize>(numbers: &mut [T], bytes: &[u8], read: impl Fn([u8; WIDTH]) -> f32) {
    let (whole, _) = bytes.as_chunks();
    numbers.iter_mut().zip(whole).for_each(|(number, bytes)| *number = T::narrow(read(*bytes)));
}

/// Numbers of 32 bits as bytes of a type, rounded to the nearest.
pub fn from_f32(dtype: Dtype, numbers: &[f32]) -> Vec<u8> {
    let width = dtype.bytes() as usize;
    let mut bytes = vec![0; numbers.len() * width];
    let pieces = bytes.par_chunks_mut(PIECE * width).zip(numbers.par_chunks(PIECE));
    pieces.for_each(|(bytes, numbers)| match dtype {
        Dtype::F32 => put(bytes, numbers, f32::to_le_bytes),
        Dtype::Bf16 | Dtype::Fp8 => put(bytes, numbers, |number| bf16::from_f32(number).to_le_bytes()),
        Dtype::F16 => put(bytes, numbers, |number| f16::from_f32(number).to_le_bytes()),
    });
    bytes
}

fn put<const WIDTH: usize>(bytes: &mut [u8], numbers: &[f32], write: impl Fn(f32) -> [u8; WIDTH]) {
    let (whole, _) = bytes.as_chunks_mut();
    for (bytes, number) in whole.iter_mut().zip(numbers) {
        *bytes = write(*number);
    }
}

/// The first number that is not finite, and where it is.
pub fn first_unusual(dtype: Dtype, bytes: &[u8]) -> Option<(usize, f32)> {
    let width = dtype.bytes() as usize;
    let in_piece = |(piece, bytes): (usize, &[u8])| {
        let mut numbers = vec![0.0; bytes.len() / width];
        read_into(&mut numbers, dtype, bytes);
        let index = numbers.iter().position(|number| !number.is_finite())?;
        Some((piece * PIECE + index, numbers[index]))
    };
    bytes.par_chunks(PIECE * width).enumerate().filter_map(in_piece).min_by_key(|(index, _)| *index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn the_first_number_that_is_not_finite_is_found_behind_the_first_piece() {
        let mut numbers = vec![0.5; 3 * PIECE];
        numbers[2 * PIECE + 7] = f32::INFINITY;
        numbers[2 * PIECE + 9] = f32::NAN;
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let bytes = from_f32(dtype, &numbers);
            assert_eq!(first_unusual(dtype, &bytes), Some((2 * PIECE + 7, f32::INFINITY)));
            assert_eq!(first_unusual(dtype, &bytes[..PIECE]), None);
        }
    }

    proptest! {
        #[test]
        fn numbers_of_a_type_come_back_as_they_were(bits in proptest::collection::vec(any::<u16>(), 0..200)) {
            let brain: Vec<f32> = bits.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect();
            let ieee: Vec<f32> = bits.iter().map(|&bits| f16::from_bits(bits).to_f32()).collect();
            for (dtype, numbers) in [(Dtype::F32, &brain), (Dtype::Bf16, &brain), (Dtype::F16, &ieee)] {
                let back = to_f32(dtype, &from_f32(dtype, numbers));
                prop_assert!(back.iter().zip(numbers).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));
            }
        }
    }
}
