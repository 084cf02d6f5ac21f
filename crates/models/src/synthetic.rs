//! Weights by a formula: the same on every device, bit by bit, from a seed and a tensor's name.
//!
//! A number depends on its place alone, so that they are made in any order, in parallel, and where they are needed. One
//! rounding happens, when the amplitude is multiplied with; a device that fuses operations cannot come out otherwise.

use rayon::prelude::*;

use crate::{Config, Family, Role, TensorSpec};

/// What fills a tensor.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Fill {
    /// One number everywhere.
    Constant(f32),
    /// [`value`] of this key at each index.
    Random {
        /// What tells tensors and seeds apart.
        key: u64,
        /// Numbers lie between this and its negative.
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

    /// The first `count` numbers, made on all threads.
    pub fn numbers(self, count: usize) -> Vec<f32> {
        (0..count).into_par_iter().with_min_len(PIECE).map(|index| self.at(index as u64)).collect()
    }
}

const PIECE: usize = 1 << 14;

/// The number at an index of a tensor: even between `-amplitude` and `amplitude`.
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

/// The key of a tensor: FNV-1a of the seed, low byte first, and of the name.
pub fn key(seed: u64, name: &str) -> u64 {
    let bytes = seed.to_le_bytes().into_iter().chain(name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// What fills a tensor of a model whose weights are made from a seed.
pub fn fill(family: Family, spec: &TensorSpec, seed: u64) -> Fill {
    match deviation(family, spec) {
        None if spec.role == Role::Scale => Fill::Constant(SCALE),
        None if spec.role == Role::ZeroCentredNorm => Fill::Constant(0.0),
        None => Fill::Constant(1.0),
        Some(deviation) => Fill::Random { key: key(seed, &spec.name), amplitude: (3.0_f64.sqrt() * deviation) as f32 },
    }
}

/// What residual parts multiply what they add with: enough to be heard, too little to grow from part to part.
const SCALE: f32 = 0.25;

/// How much wider what goes through a convolution may become, so that a chain of residual ones stays within bounds.
const CONV_GAIN: f64 = 0.65;

/// The standard deviation of a tensor's numbers, or none for those that are all the same: norms and gates, which are open
/// so, and scales.
fn deviation(family: Family, spec: &TensorSpec) -> Option<f64> {
    let by_width = || {
        let widths: usize = spec.shape.iter().sum();
        (2.0 / widths as f64).sqrt()
    };
    let by_inputs = |inputs: usize| CONV_GAIN / (inputs as f64).sqrt();
    match (spec.role, family) {
        (Role::Norm | Role::ZeroCentredNorm | Role::Gate | Role::Scale, _) => None,
        (Role::Conv, _) => Some(by_inputs(spec.shape.iter().skip(1).product())),
        // Each number that comes out has two of the kernel's, or one if it does not overlap.
        (Role::Lengthen, _) => Some(by_inputs(2 * spec.shape.first().copied().unwrap_or(1))),
        (Role::Linear, _) | (Role::Head, Family::Course) => Some(by_width()),
        (Role::Embedding, Family::Course) => Some(1.0),
        (Role::Embedding | Role::Head | Role::Bias, _) => Some(0.02),
    }
}

impl Config {
    /// What fills one of its tensors from a seed.
    pub fn fill(&self, spec: &TensorSpec, seed: u64) -> Fill {
        fill(self.family, spec, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_keys_and_numbers_come_out() {
        assert_eq!(key(0, ""), 0xa8c7_f832_281a_39c5);
        assert_eq!(key(1, "lm_head.weight"), KEY);
        let numbers: Vec<u32> = [0, 1, 1 << 32].map(|index| value(KEY, index, 1.0).to_bits()).to_vec();
        assert_eq!(numbers, NUMBERS);
    }

    const KEY: u64 = 0xdfa8_1ad2_6c5f_f2e4;
    const NUMBERS: [u32; 3] = [0x3ee3_3f64, 0xbf1c_b84c, 0x3da5_6f60];

    #[test]
    fn numbers_have_the_deviation_that_was_asked_for_and_no_lean() {
        let numbers = Fill::Random { key: 7, amplitude: 3.0_f32.sqrt() }.numbers(100_000);
        let mean = numbers.iter().map(|&x| f64::from(x)).sum::<f64>() / 1e5;
        let square = numbers.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>() / 1e5;
        assert!(mean.abs() < 0.01 && (square - 1.0).abs() < 0.01, "mean {mean}, square {square}");
    }

    #[test]
    fn parallel_numbers_are_those_of_their_places() {
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
