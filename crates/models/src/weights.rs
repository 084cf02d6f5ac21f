//! Where the weights of a model come from: a seed, or a folder.

use std::{borrow::Cow, collections::HashMap, marker::PhantomData, path::Path};

use rayon::prelude::*;

use crate::cpu::{number::Number, vectors::vectorized};
use crate::fp8::{Made, Quantised, is_quantised};
use crate::numbers::{first_unusual, from_f32, read_into, to_f32};
use crate::synthetic::{Fill, fill};
use crate::tensors::{TensorSpec, checked_count};
use crate::{Config, Done, Dtype, Family, ModelError, folder::Folder};

/// The weights of a model, before they are on a device; `C` is the configuration of the model.
#[derive(Debug)]
pub struct WeightsOf<C> {
    source: Source,
    of: PhantomData<fn() -> C>,
}

/// The weights of a decoder.
pub type Weights = WeightsOf<Config>;

#[derive(Debug)]
enum Source {
    Synthetic {
        family: Family,
        seed: u64,
    },
    Folder(Folder),
    /// Weights of which some are quantised.
    Quantised(Box<Source>, HashMap<String, Made>),
}

impl Source {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        match self {
            Self::Synthetic { family, seed } => {
                Ok(TensorData::Filled { fill: fill(*family, spec, *seed), count: spec.count() })
            }
            Self::Folder(folder) => folder.tensor(spec),
            Self::Quantised(inner, made) => made.get(&spec.name).map_or_else(|| inner.tensor(spec), |it| Ok(it.data())),
        }
    }
}

/// A model with a checkpoint.
pub trait HasTensors {
    /// Every tensor of the checkpoint.
    fn all_tensors(&self) -> Vec<TensorSpec>;

    /// Numbers in all its weights; none if their bytes cannot be counted in 63 bits.
    fn checked_parameters(&self) -> Option<u64> {
        checked_count(&self.all_tensors())
    }

    /// Numbers in all its weights, as far as they can be counted.
    fn parameters(&self) -> u64 {
        self.checked_parameters().unwrap_or(u64::MAX)
    }

    /// Bytes of its weights in a number type, as a checkpoint has them.
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
    /// Weights by formula, from a seed.
    pub fn synthetic(config: &Config, seed: u64) -> Self {
        Self::filled(config.family, seed)
    }

    /// The weights of a folder, once they are seen to fit the model: every tensor is there, in shape, and of a type
    /// that is known. Nothing is read but headers.
    pub fn open(folder: &Path, config: &Config) -> Result<Self, ModelError> {
        config.check()?;
        Ok(Self::stored(Folder::open(folder, config)?))
    }

    /// The same weights with the matrices of all layers rounded to e4m3, as an FP8 checkpoint has them. In other dtypes
    /// these are dequantised.
    pub fn quantised(self, config: &Config) -> Result<Self, ModelError> {
        let tensors = config.tensors().into_iter().filter(|spec| is_quantised(Dtype::Fp8, spec.role));
        let make = |spec: TensorSpec| Ok((spec.name.clone(), Made::of(&self, &spec, config.weight_scales)?));
        let made = tensors.map(make).collect::<Result<_, ModelError>>()?;
        Ok(Self { source: Source::Quantised(Box::new(self.source), made), of: PhantomData })
    }
}

impl<C> WeightsOf<C> {
    pub(crate) fn filled(family: Family, seed: u64) -> Self {
        Self { source: Source::Synthetic { family, seed }, of: PhantomData }
    }

    pub(crate) fn stored(folder: Folder) -> Self {
        Self { source: Source::Folder(folder), of: PhantomData }
    }

    /// Whether they are made by formula.
    pub fn is_synthetic(&self) -> bool {
        let mut source = &self.source;
        while let Source::Quantised(inner, _) = source {
            source = inner;
        }
        matches!(source, Source::Synthetic { .. })
    }

    /// The numbers of a tensor, by its published name.
    pub fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        self.source.tensor(spec)
    }
}

impl<C: HasTensors> WeightsOf<C> {
    /// Refuses weights that are no finite numbers, and names the first tensor with one. Reads all of them.
    pub fn check_finite(&self, config: &C) -> Done {
        if self.is_synthetic() {
            return Ok(());
        }
        let unusual = |spec: &TensorSpec| -> Done {
            let found = match self.tensor(spec)? {
                TensorData::Filled { .. } => None,
                TensorData::Stored { dtype, bytes } => first_unusual(dtype, bytes),
                TensorData::Quantised(quantised) => quantised.first_unusual(),
            };
            let Some((index, value)) = found else { return Ok(()) };
            let reason = format!("`{}` has {value} at {index}: the weights are not finite", spec.name);
            Err(ModelError::Refused(reason))
        };
        config.all_tensors().par_iter().map(unusual).find_first(Result::is_err).unwrap_or(Ok(()))
    }
}

/// The numbers of a tensor, row by row.
#[derive(Debug, Clone, Copy)]
pub enum TensorData<'a> {
    /// They are made by formula, where they are needed.
    Filled {
        /// The formula.
        fill: Fill,
        /// How many there are.
        count: usize,
    },
    /// They lie in a file, low byte first. The bytes may lie at any address.
    Stored {
        /// Their type.
        dtype: Dtype,
        /// The numbers.
        bytes: &'a [u8],
    },
    /// They are e4m3 with scales.
    Quantised(Quantised<'a>),
}

impl<'a> TensorData<'a> {
    /// How many numbers there are.
    pub fn count(&self) -> usize {
        match self {
            Self::Filled { count, .. } => *count,
            Self::Stored { dtype, bytes } => bytes.len() / dtype.bytes() as usize,
            Self::Quantised(quantised) => quantised.codes.len(),
        }
    }

    /// Writes the numbers from an index on.
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

    /// The numbers in 32 bits.
    pub fn to_f32(&self) -> Vec<f32> {
        match self {
            Self::Filled { fill, count } => fill.numbers(*count),
            Self::Stored { dtype, bytes } => to_f32(*dtype, bytes),
            Self::Quantised(quantised) => {
                (0..quantised.codes.len()).into_par_iter().map(|index| quantised.number(index)).collect()
            }
        }
    }

    /// The numbers in a type, as bytes, low byte first; those of a file as they are where the type is the same.
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
    fn synthetic_numbers_in_fewer_bits_are_the_nearest_to_those_of_32() {
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
