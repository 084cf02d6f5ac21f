//! The weights of a model: synthetic from a seed, or from a folder.

use std::{borrow::Cow, marker::PhantomData, path::Path};

use rayon::prelude::*;

use crate::cpu::{number::Number, vectors::vectorized};
use crate::fp8::Quantised;
use crate::numbers::{first_non_finite, from_f32, read_into, to_f32};
use crate::synthetic::{Fill, fill};
use crate::tensors::{TensorSpec, checked_count};
use crate::{Config, Done, Dtype, Family, ModelError, folder::Folder};

/// The weights of a model with configuration `C`, before they are on a device.
#[derive(Debug)]
pub struct WeightsOf<C> {
    source: Source,
    of: PhantomData<fn() -> C>,
}

/// The weights of a decoder.
pub type Weights = WeightsOf<Config>;

#[derive(Debug)]
enum Source {
    Synthetic { family: Family, seed: u64 },
    Folder(Folder),
}

/// A model with a checkpoint.
pub trait HasTensors {
    /// Every tensor of the checkpoint.
    fn all_tensors(&self) -> Vec<TensorSpec>;

    /// The number of parameters, or none if their bytes do not fit 63 bits.
    fn checked_parameters(&self) -> Option<u64> {
        checked_count(&self.all_tensors())
    }

    /// The number of parameters, saturating.
    fn parameters(&self) -> u64 {
        self.checked_parameters().unwrap_or(u64::MAX)
    }

    /// Bytes of its weights in a dtype, as a checkpoint has them.
    fn weight_bytes(&self, dtype: Dtype) -> u64 {
        self.parameters().saturating_mul(dtype.bytes())
    }
}

impl HasTensors for Config {
    fn all_tensors(&self) -> Vec<TensorSpec> {
        self.tensors()
    }
}

pub(crate) trait TensorSource: Sync {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError>;
}

impl<C> TensorSource for WeightsOf<C> {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        Self::tensor(self, spec)
    }
}

impl Weights {
    /// Synthetic weights from a seed.
    pub fn synthetic(config: &Config, seed: u64) -> Self {
        Self::filled(config.family, seed)
    }

    /// Opens the weights in a folder. Checks that every tensor is there with the right shape and a supported dtype. Reads
    /// only headers.
    pub fn open(folder: &Path, config: &Config) -> Result<Self, ModelError> {
        config.check()?;
        Ok(Self::stored(Folder::open(folder, config)?))
    }
}

impl<C> WeightsOf<C> {
    pub(crate) fn filled(family: Family, seed: u64) -> Self {
        Self { source: Source::Synthetic { family, seed }, of: PhantomData }
    }

    pub(crate) fn stored(folder: Folder) -> Self {
        Self { source: Source::Folder(folder), of: PhantomData }
    }

    /// Whether they are synthetic.
    pub fn is_synthetic(&self) -> bool {
        matches!(self.source, Source::Synthetic { .. })
    }

    /// The numbers of a tensor, by its published name.
    pub fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        match &self.source {
            Source::Synthetic { family, seed } => {
                Ok(TensorData::Filled { fill: fill(*family, spec, *seed), count: spec.count() })
            }
            Source::Folder(folder) => folder.tensor(spec),
        }
    }
}

impl<C: HasTensors> WeightsOf<C> {
    /// Refuses NaN and infinite weights, naming the first tensor that has one. Reads all weights.
    pub fn check_finite(&self, config: &C) -> Done {
        if self.is_synthetic() {
            return Ok(());
        }
        let check = |spec: &TensorSpec| -> Done {
            let found = match self.tensor(spec)? {
                TensorData::Filled { .. } => None,
                TensorData::Stored { dtype, bytes } => first_non_finite(dtype, bytes),
                TensorData::Quantised(quantised) => quantised.first_non_finite(),
            };
            let Some((index, value)) = found else { return Ok(()) };
            let reason = format!("`{}` has {value} at {index}: the weights are not finite", spec.name);
            Err(ModelError::Refused(reason))
        };
        config.all_tensors().par_iter().map(check).find_first(Result::is_err).unwrap_or(Ok(()))
    }
}

/// The numbers of a tensor, row-major.
#[derive(Debug, Clone, Copy)]
pub enum TensorData<'a> {
    /// Synthetic, generated where they are needed.
    Filled {
        /// The formula.
        fill: Fill,
        /// The number of elements.
        count: usize,
    },
    /// In a file, little-endian and unaligned.
    Stored {
        /// Their dtype.
        dtype: Dtype,
        /// Their bytes.
        bytes: &'a [u8],
    },
    /// e4m3 with scales.
    Quantised(Quantised<'a>),
}

impl<'a> TensorData<'a> {
    /// The number of elements.
    pub fn count(&self) -> usize {
        match self {
            Self::Filled { count, .. } => *count,
            Self::Stored { dtype, bytes } => bytes.len() / dtype.bytes() as usize,
            Self::Quantised(quantised) => quantised.codes.len(),
        }
    }

    /// Reads numbers from an index on.
    pub(crate) fn read_at<T: Number>(&self, from: usize, to: &mut [T]) {
        match self {
            Self::Filled { fill, .. } => {
                let fill = *fill;
                vectorized!({
                    for (at, to) in to.iter_mut().enumerate() {
                        *to = T::narrow(fill.at((from + at) as u64));
                    }
                });
            }
            Self::Stored { dtype, bytes } => read_into(to, *dtype, &bytes[from * dtype.bytes() as usize..]),
            Self::Quantised(quantised) => {
                to.iter_mut().enumerate().for_each(|(at, to)| *to = T::narrow(quantised.number(from + at)));
            }
        }
    }

    /// The numbers in f32.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::Filled { fill, count } => fill.numbers(*count),
            Self::Stored { dtype, bytes } => to_f32(*dtype, bytes),
            Self::Quantised(quantised) => {
                (0..quantised.codes.len()).into_par_iter().map(|index| quantised.number(index)).collect()
            }
        }
    }

    /// The numbers as little-endian bytes of a dtype. Borrowed from a file that has this dtype.
    pub fn to_bytes(&self, dtype: Dtype) -> Cow<'a, [u8]> {
        match self {
            Self::Stored { dtype: stored, bytes } if *stored == dtype => Cow::Borrowed(bytes),
            _ => Cow::Owned(from_f32(dtype, &self.to_f32())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synthetic_bf16_numbers_are_rounded_f32_ones() {
        let config = Config::from_preset("tiny").unwrap();
        let weights = Weights::synthetic(&config, 1);
        let spec = &config.layer_tensors(0)[1];
        let data = weights.tensor(spec).unwrap();
        let (exact, bytes) = (data.to_f32(), data.to_bytes(Dtype::Bf16));
        assert_eq!((exact.len(), data.count(), bytes.len()), (spec.count(), spec.count(), 2 * spec.count()));
        let read_back = to_f32(Dtype::Bf16, &bytes);
        assert!(exact.iter().zip(&read_back).all(|(a, b)| half::bf16::from_f32(*a).to_f32() == *b));
    }

    #[test]
    fn norms_of_synthetic_weights_are_one() {
        let config = Config::from_preset("tiny").unwrap();
        let data = Weights::synthetic(&config, 1).tensor(&config.final_norm_tensor()).unwrap().to_f32();
        assert_eq!(data, vec![1.0; 64]);
    }
}
