//! Converts between little-endian bytes of a dtype and numbers.

use rayon::prelude::*;

use crate::{Dtype, cpu::number::Number, dtype::typed};

const PIECE: usize = 1 << 16;

/// Bytes of a dtype as f32. An incomplete number at the end is dropped.
pub fn to_f32(dtype: Dtype, bytes: &[u8]) -> Vec<f32> {
    let width = dtype.bytes() as usize;
    let mut numbers = vec![0.0; bytes.len() / width];
    let pieces = numbers.par_chunks_mut(PIECE).zip(bytes.par_chunks(PIECE * width));
    pieces.for_each(|(numbers, bytes)| read_into(numbers, dtype, bytes));
    numbers
}

/// Reads numbers of a dtype, rounded to another type.
pub fn read_into<T: Number>(numbers: &mut [T], dtype: Dtype, bytes: &[u8]) {
    typed!(dtype, |S| {
        let stored = bytes.chunks_exact(size_of::<S>()).map(bytemuck::pod_read_unaligned::<S>);
        numbers.iter_mut().zip(stored).for_each(|(number, stored)| *number = T::narrow(stored.wide()));
    });
}

/// f32 as bytes of a dtype, rounded to the nearest.
pub fn from_f32(dtype: Dtype, numbers: &[f32]) -> Vec<u8> {
    let width = dtype.bytes() as usize;
    let mut bytes = vec![0; numbers.len() * width];
    let pieces = bytes.par_chunks_mut(PIECE * width).zip(numbers.par_chunks(PIECE));
    pieces.for_each(|(bytes, numbers)| {
        typed!(dtype, |T| {
            for (to, number) in bytes.chunks_exact_mut(width).zip(numbers) {
                to.copy_from_slice(bytemuck::bytes_of(&<T as Number>::narrow(*number)));
            }
        });
    });
    bytes
}

/// The first number that is not finite, and its index.
pub fn first_non_finite(dtype: Dtype, bytes: &[u8]) -> Option<(usize, f32)> {
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
    use half::{bf16, f16};
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_non_finite_number_is_found_after_the_first_piece() {
        let mut numbers = vec![0.5; 3 * PIECE];
        numbers[2 * PIECE + 7] = f32::INFINITY;
        numbers[2 * PIECE + 9] = f32::NAN;
        for dtype in [Dtype::F32, Dtype::Bf16, Dtype::F16] {
            let bytes = from_f32(dtype, &numbers);
            assert_eq!(first_non_finite(dtype, &bytes), Some((2 * PIECE + 7, f32::INFINITY)));
            assert_eq!(first_non_finite(dtype, &bytes[..PIECE]), None);
        }
    }

    proptest! {
        #[test]
        fn numbers_survive_a_round_trip(bits in proptest::collection::vec(any::<u16>(), 0..200)) {
            let brain: Vec<f32> = bits.iter().map(|&bits| bf16::from_bits(bits).to_f32()).collect();
            let ieee: Vec<f32> = bits.iter().map(|&bits| f16::from_bits(bits).to_f32()).collect();
            for (dtype, numbers) in [(Dtype::F32, &brain), (Dtype::Bf16, &brain), (Dtype::F16, &ieee)] {
                let back = to_f32(dtype, &from_f32(dtype, numbers));
                prop_assert!(back.iter().zip(numbers).all(|(a, b)| a == b || (a.is_nan() && b.is_nan())));
            }
        }
    }
}
