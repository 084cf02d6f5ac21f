//! FP8 weights: e4m3 codes, times a scale in f32.
//!
//! The matrices of a decoder's layers are quantised. Embedding, head, norms and biases stay in bf16, as in published FP8
//! checkpoints, and so do activations and cache. A weight is rounded to bf16 before it is quantised.

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::cpu::number::Number;
use crate::numbers::read_into;
use crate::weights::{TensorData, TensorSource};
use crate::{Dtype, ModelError, Role, TensorSpec, error::ensure};

/// The side of the blocks that share a scale in published checkpoints.
pub const BLOCK: usize = 128;

/// The code of NaN, without the sign.
const NAN: u8 = 0x7f;

/// The smallest normal number.
const SMALLEST_NORMAL: f32 = 1.0 / 64.0;

/// Corrects the exponent bias when the bits of a code are shifted to those of an f32.
const EXPONENTS_APART: f32 = f32::from_bits((127 + 120) << 23);

/// The nearest code of a number, ties to even. Larger numbers saturate.
pub fn encode(number: f32) -> u8 {
    let size = number.abs();
    let code = if number.is_nan() {
        NAN
    } else if size < SMALLEST_NORMAL {
        (size * 512.0).round_ties_even() as u8
    } else {
        let bits = size.to_bits();
        let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
        (rounded - (120 << 3)).min(u32::from(NAN) - 1) as u8
    };
    code | (number.to_bits() >> 24) as u8 & 0x80
}

/// The number of a code.
pub fn decode(code: u8) -> f32 {
    let size = code & 0x7f;
    let number = if size == NAN { f32::NAN } else { f32::from_bits(u32::from(size) << 20) * EXPONENTS_APART };
    if code > NAN { -number } else { number }
}

/// The scale for numbers up to `largest`: the smallest power of two that keeps them within 448.
///
/// A power of two loses no precision, and code times scale is exact in bf16, so products see the same weights whether or
/// not they are dequantised first.
pub fn scale_of(largest: f32) -> f32 {
    if largest == 0.0 {
        return 1.0;
    }
    let bits = largest.to_bits();
    let exponent = (bits >> 23) + u32::from(bits & 0x7f_ffff > 0x60_0000);
    f32::from_bits(exponent.saturating_sub(8).max(1) << 23)
}

/// Writes the codes of numbers that share a scale. Returns the scale.
pub fn quantise(numbers: &[f32], codes: &mut [u8]) -> f32 {
    let scale = scale_of(numbers.iter().fold(0.0_f32, |largest, number| largest.max(number.abs())));
    codes.iter_mut().zip(numbers).for_each(|(code, number)| *code = encode(number / scale));
    scale
}

/// Which weights share a scale in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WeightScales {
    /// Those of an output channel.
    #[default]
    Rows,
    /// 128 neighbours in an output channel, for published checkpoints with blocks of 128 x 128.
    Blocks,
}

impl WeightScales {
    /// The number of scales of a row of this width.
    pub fn columns(self, width: usize) -> usize {
        width.div_ceil(self.group(width))
    }

    /// The number of neighbours that share a scale.
    fn group(self, width: usize) -> usize {
        match self {
            Self::Rows => width.max(1),
            Self::Blocks => BLOCK,
        }
    }
}

/// Whether the weights of a tensor are quantised in this dtype.
pub(crate) fn is_quantised(dtype: Dtype, role: Role) -> bool {
    dtype == Dtype::Fp8 && role == Role::Linear
}

/// The memory layout of a quantised matrix: codes, then scales, both row-major and aligned to 16 bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Layout {
    pub rows: usize,
    pub width: usize,
    pub scales: WeightScales,
}

const ALIGNED: usize = 16;
const SCALE_BYTES: usize = size_of::<f32>();

impl Layout {
    pub fn new([rows, width]: [usize; 2], scales: WeightScales) -> Self {
        Self { rows, width, scales }
    }

    /// The layout of matrices of one width, stacked.
    pub fn of(tensors: &[TensorSpec], scales: WeightScales) -> Self {
        let rows = tensors.iter().map(|tensor| tensor.shape.first().copied().unwrap_or_default());
        let width = tensors.first().and_then(|tensor| tensor.shape.get(1).copied());
        Self::new([rows.fold(0, usize::saturating_add), width.unwrap_or_default()], scales)
    }

    pub fn columns(&self) -> usize {
        self.scales.columns(self.width)
    }

    fn code_bytes(&self) -> usize {
        self.rows.saturating_mul(self.width).next_multiple_of(ALIGNED)
    }

    /// Bytes of codes and scales.
    pub fn bytes(&self) -> usize {
        let scales = self.rows.saturating_mul(self.columns()).saturating_mul(SCALE_BYTES);
        self.code_bytes().saturating_add(scales.next_multiple_of(ALIGNED))
    }

    /// Dequantises a row.
    pub fn read_row<T: Number>(&self, storage: &[u8], row: usize, out: &mut [T]) {
        let codes = &storage[row * self.width..][..self.width];
        let scales = &storage[self.code_bytes() + row * self.columns() * SCALE_BYTES..];
        let group = self.scales.group(self.width);
        let (scales, _) = scales.as_chunks::<SCALE_BYTES>();
        for ((out, codes), scale) in out.chunks_mut(group).zip(codes.chunks(group)).zip(scales) {
            let scale = f32::from_le_bytes(*scale);
            out.iter_mut().zip(codes).for_each(|(out, code)| *out = T::narrow(decode(*code) * scale));
        }
    }
}

/// Packs stacked matrices of one width: stored codes and scales as they are, other weights quantised from bf16.
pub(crate) fn pack(
    weights: &dyn TensorSource,
    tensors: &[TensorSpec],
    scales: WeightScales,
    storage: &mut [u8],
) -> Result<(), ModelError> {
    let layout = Layout::of(tensors, scales);
    let (mut codes, mut scales) = storage.split_at_mut(layout.code_bytes());
    for tensor in tensors {
        let data = weights.tensor(tensor)?;
        let (name, has, wants) = (&tensor.name, data.count(), tensor.count());
        ensure!(has == wants, "`{name}` has {has} numbers, expected {wants}");
        let rows = tensor.shape.first().copied().unwrap_or_default();
        let (these, rest) = codes.split_at_mut(wants);
        let (their_scales, other_scales) = scales.split_at_mut(rows * layout.columns() * SCALE_BYTES);
        pack_rows(&data, layout, these, their_scales);
        (codes, scales) = (rest, other_scales);
    }
    Ok(())
}

fn pack_rows(data: &TensorData<'_>, layout: Layout, codes: &mut [u8], scales: &mut [u8]) {
    let (width, group) = (layout.width.max(1), layout.scales.group(layout.width));
    let rows = codes.par_chunks_mut(width).zip(scales.par_chunks_mut(layout.columns().max(1) * SCALE_BYTES));
    rows.enumerate().for_each_init(Vec::new, |numbers: &mut Vec<f32>, (row, (codes, scales))| {
        let (scales, _) = scales.as_chunks_mut::<SCALE_BYTES>();
        if let TensorData::Quantised(stored) = data {
            codes.copy_from_slice(&stored.codes[row * width..][..width]);
            let of_row = (0..scales.len()).map(|column| stored.scale(row, column * group));
            scales.iter_mut().zip(of_row).for_each(|(to, scale)| *to = scale.to_le_bytes());
            return;
        }
        numbers.resize(width, 0.0);
        data.read_at(row * width, numbers);
        numbers.iter_mut().for_each(|number| *number = half::bf16::from_f32(*number).to_f32());
        let groups = numbers.chunks(group).zip(codes.chunks_mut(group));
        for (scale, (numbers, codes)) in scales.iter_mut().zip(groups) {
            *scale = quantise(numbers, codes).to_le_bytes();
        }
    });
}

/// A matrix of e4m3 codes with scales.
#[derive(Debug, Clone, Copy)]
pub struct Quantised<'a> {
    /// A code for each weight.
    pub codes: &'a [u8],
    /// Weights per row.
    pub width: usize,
    /// The dtype of the scales.
    pub dtype: Dtype,
    /// A scale for each block of 128 x 128, little-endian.
    pub scales: &'a [u8],
}

impl Quantised<'_> {
    /// The scale of a weight.
    pub fn scale(&self, row: usize, column: usize) -> f32 {
        let at = row / BLOCK * self.width.div_ceil(BLOCK) + column / BLOCK;
        let mut scale = [f32::NAN];
        read_into(&mut scale, self.dtype, &self.scales[at * self.dtype.bytes() as usize..]);
        scale[0]
    }

    /// The weight at an index.
    pub fn number(&self, index: usize) -> f32 {
        decode(self.codes[index]) * self.scale(index / self.width, index % self.width)
    }

    /// The first weight that is not finite, and its index.
    pub(crate) fn first_non_finite(&self) -> Option<(usize, f32)> {
        let numbers = (0..self.codes.len()).into_par_iter().map(|index| (index, self.number(index)));
        numbers.find_first(|(_, number)| !number.is_finite())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn every_code_survives_a_round_trip() {
        for code in 0..=u8::MAX {
            let number = decode(code);
            if code & 0x7f == 0x7f {
                assert!(number.is_nan(), "{code:#x}");
                assert_eq!(encode(f32::NAN) & 0x7f, 0x7f);
            } else {
                assert_eq!(encode(number), code, "{number}");
            }
        }
    }

    #[test]
    fn known_numbers_have_the_codes_of_the_standard() {
        let known = [(1.0, 0x38), (-1.0, 0xb8), (448.0, 0x7e), (0.015_625, 0x08), (0.001_953_125, 0x01), (1.75, 0x3e)];
        for (number, code) in known {
            assert_eq!((encode(number), decode(code)), (code, number));
        }
        assert_eq!((encode(0.0), encode(-0.0)), (0, 0x80));
    }

    #[test]
    fn halves_are_rounded_to_even_and_large_numbers_saturate() {
        // 17 is between 16 and 18, 19 between 18 and 20.
        assert_eq!([17.0, 19.0].map(|number| decode(encode(number))), [16.0, 20.0]);
        assert_eq!([464.0, 465.0, 1e30, f32::INFINITY].map(|number| decode(encode(number))), [448.0; 4]);
        assert_eq!(decode(encode(-1e30)), -448.0);
        // Half of the smallest subnormal number, and a little more.
        assert_eq!([1.0 / 1024.0, 1.01 / 1024.0].map(encode), [0, 1]);
        assert_eq!(encode(0.999 / 64.0), 0x08);
    }

    #[test]
    fn a_scale_is_the_smallest_power_of_two_for_the_largest_weight() {
        let mut codes = [0; 3];
        assert_eq!(quantise(&[0.5, -1.75, 0.0], &mut codes), 1.0 / 256.0);
        assert_eq!(codes.map(decode), [128.0, -448.0, 0.0]);
        assert_eq!(quantise(&[0.5, -1.757_812_5, 0.0], &mut codes), 1.0 / 128.0);
        assert_eq!(codes.map(decode), [64.0, -224.0, 0.0]);
        assert_eq!(quantise(&[0.0, -0.0, 0.0], &mut codes), 1.0);
        assert_eq!(codes.map(decode), [0.0; 3]);
        assert_eq!([448.0, 449.0, 1e-40].map(scale_of), [1.0, 2.0, f32::MIN_POSITIVE]);
    }

    #[test]
    fn a_code_times_its_scale_is_exact_in_bf16() {
        for code in (0..=u8::MAX).filter(|code| code & 0x7f != 0x7f) {
            let number = decode(code) * scale_of(0.037);
            assert_eq!(half::bf16::from_f32(number).to_f32(), number);
        }
    }

    proptest! {
        #[test]
        fn the_nearest_number_is_found(number in -448.0_f32..448.0) {
            let off = (decode(encode(number)) - number).abs();
            for code in (0..=u8::MAX).filter(|code| code & 0x7f != 0x7f) {
                prop_assert!(off <= (decode(code) - number).abs());
            }
        }
    }
}
