//! Synthetic weights from a seed and the name of a tensor, bit-identical on every device.
//!
//! A number depends only on its index, so numbers are generated in any order, in parallel, and where they are needed. The
//! only rounding is that of the product with the amplitude, so fused operations give the same result.

use rayon::prelude::*;

use crate::{Config, Family, Role, TensorSpec};

/// The formula of a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// A constant.
    Constant(f32),
    /// [`value`] of this key at each index.
    Random {
        /// A hash of seed and tensor name.
        key: u64,
        /// The largest absolute value.
        amplitude: f32,
    },
}

impl Fill {
    /// The number at an index.
    pub fn at(self, index: u64) -> f32 {
        match self {
            Self::Constant(constant) => constant,
            Self::Random { key, amplitude } => value(key, index, amplitude),
        }
    }

    /// The first `count` numbers, generated on all threads.
    pub fn numbers(self, count: usize) -> Vec<f32> {
        (0..count).into_par_iter().with_min_len(PIECE).map(|index| self.at(index as u64)).collect()
    }
}

const PIECE: usize = 1 << 14;

/// The number at an index of a tensor: uniform between `-amplitude` and `amplitude`.
///
/// `u` has 24 bits and `2u - 1` is exact, so the only rounding is that of the last product.
pub fn value(key: u64, index: u64, amplitude: f32) -> f32 {
    const STEP: f32 = 1.0 / (1 << 24) as f32;
    let hash = mix((index as u32) ^ mix((index >> 32) as u32 ^ mix(key as u32) ^ (key >> 32) as u32));
    let u = (hash >> 8) as f32 * STEP;
    amplitude * (2.0 * u - 1.0)
}

/// The finaliser of MurmurHash3.
pub(crate) fn mix(mut h: u32) -> u32 {
    h ^= h >> 16;
    h = h.wrapping_mul(0x85eb_ca6b);
    h ^= h >> 13;
    h = h.wrapping_mul(0xc2b2_ae35);
    h ^ (h >> 16)
}

/// The key of a tensor: FNV-1a of the little-endian seed and the name.
pub fn key(seed: u64, name: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The formula of a tensor of a synthetic model.
pub fn fill(family: Family, spec: &TensorSpec, seed: u64) -> Fill {
    match deviation(family, spec) {
        None if spec.role == Role::Scale => Fill::Constant(SCALE),
        None if spec.role == Role::ZeroCentredNorm => Fill::Constant(0.0),
        None => Fill::Constant(1.0),
        Some(deviation) => Fill::Random { key: key(seed, &spec.name), amplitude: (3.0_f64.sqrt() * deviation) as f32 },
    }
}

/// The scale of residual branches: audible, but too small to accumulate.
const SCALE: f32 = 0.25;

/// The gain of a convolution, small enough for a chain of residual ones to stay bounded.
const CONV_GAIN: f64 = 0.65;

/// The standard deviation of a tensor, or none for constants: norms, open gates and scales.
fn deviation(family: Family, spec: &TensorSpec) -> Option<f64> {
    let by_width = || {
        let widths: usize = spec.shape.iter().sum();
        (2.0 / widths as f64).sqrt()
    };
    let by_inputs = |inputs: usize| CONV_GAIN / (inputs as f64).sqrt();
    match (spec.role, family) {
        (Role::Norm | Role::ZeroCentredNorm | Role::Gate | Role::Scale, _) => None,
        (Role::Conv, _) => Some(by_inputs(spec.shape.iter().skip(1).product())),
        // Each output overlaps two taps of the kernel, or one without overlap.
        (Role::Lengthen, _) => Some(by_inputs(2 * spec.shape.first().copied().unwrap_or(1))),
        (Role::Linear, _) | (Role::Head, Family::Course) => Some(by_width()),
        (Role::Embedding, Family::Course) => Some(1.0),
        (Role::Embedding | Role::Head | Role::Bias, _) => Some(0.02),
    }
}

impl Config {
    /// The formula of one of its tensors.
    pub fn fill(&self, spec: &TensorSpec, seed: u64) -> Fill {
        fill(self.family, spec, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_give_known_numbers() {
        assert_eq!(key(0, ""), 0xa8c7_f832_281a_39c5);
        assert_eq!(key(1, "lm_head.weight"), KEY);
        let numbers: Vec<u32> = [0, 1, 1 << 32].map(|index| value(KEY, index, 1.0).to_bits()).to_vec();
        assert_eq!(numbers, NUMBERS);
    }

    const KEY: u64 = 0xdfa8_1ad2_6c5f_f2e4;
    const NUMBERS: [u32; 3] = [0x3ee3_3f64, 0xbf1c_b84c, 0x3da5_6f60];

    #[test]
    fn numbers_have_the_requested_deviation_and_no_bias() {
        let numbers = Fill::Random { key: 7, amplitude: 3.0_f32.sqrt() }.numbers(100_000);
        let mean = numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / 1e5;
        let square = numbers.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.01, "mean {mean}, square {square}");
    }

    #[test]
    fn parallel_numbers_depend_only_on_their_index() {
        let fill = Fill::Random { key: 3, amplitude: 0.5 };
        let numbers = fill.numbers(3 * PIECE + 5);
        assert!((0..numbers.len()).step_by(977).all(|index| numbers[index] == fill.at(index as u64)));
    }

    #[test]
    fn seeds_and_names_give_other_numbers() {
        assert_ne!(key(1, "a"), key(2, "a"));
        assert_ne!(key(1, "a"), key(1, "b"));
    }

    #[test]
    fn each_role_is_filled_as_its_family_does() {
        let amplitude = |preset: &str, name: &str| {
            let config = Config::from_preset(preset).unwrap();
            let spec = config.tensors().into_iter().find(|spec| spec.name == name).unwrap();
            match config.fill(&spec, 0) {
                Fill::Constant(constant) => (constant, true),
                Fill::Random { amplitude, .. } => (amplitude, false),
            }
        };
        let root = 3.0_f64.sqrt();
        let q_proj = "model.layers.0.self_attn.q_proj";
        assert_eq!(amplitude("tiny", "model.norm.weight"), (1.0, true));
        assert_eq!(amplitude("tiny", "model.embed_tokens.weight"), ((root * 0.02) as f32, false));
        assert_eq!(amplitude("small", "model.embed_tokens.weight"), (root as f32, false));
        assert_eq!(amplitude("small", "lm_head.weight"), ((root * (2.0_f64 / 10_768.0).sqrt()) as f32, false));
        assert_eq!(amplitude("tiny", &format!("{q_proj}.weight")), ((root * 0.125) as f32, false));
        assert_eq!(amplitude("tiny-qwen2", &format!("{q_proj}.bias")), ((root * 0.02) as f32, false));
    }
}
