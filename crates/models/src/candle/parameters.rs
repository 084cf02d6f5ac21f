//! The tensors of a model's checkpoint as tensors of candle.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor, Var};

use crate::{Config, Dtype, ModelError, TensorData, TensorSpec, Weights};

/// candle's name of a number type.
pub fn type_of(dtype: Dtype) -> DType {
    match dtype {
        Dtype::F32 => DType::F32,
        Dtype::Bf16 => DType::BF16,
        Dtype::F16 => DType::F16,
    }
}

/// The tensors of a model by their names.
pub struct Parameters {
    pub by_name: BTreeMap<String, Tensor>,
}

impl Parameters {
    /// Reads or makes every tensor in a type.
    pub fn load(config: &Config, weights: &Weights, dtype: DType) -> Result<Self, ModelError> {
        let one = |spec: TensorSpec| Ok((spec.name.clone(), load_one(&spec, weights, dtype)?));
        Ok(Self { by_name: config.tensors().into_iter().map(one).collect::<Result<_, ModelError>>()? })
    }

    /// The same numbers, with gradients to be had.
    pub fn trainable(&self) -> candle_core::Result<Self> {
        let one = |(name, tensor): (&String, &Tensor)| Ok((name.clone(), Var::from_tensor(tensor)?.into_inner()));
        Ok(Self { by_name: self.by_name.iter().map(one).collect::<candle_core::Result<_>>()? })
    }

    /// A tensor that the model has.
    pub fn get(&self, name: &str) -> Result<Tensor, ModelError> {
        self.find(name).ok_or_else(|| ModelError::Refused(format!("there is no tensor `{name}`")))
    }

    /// A tensor that the model may have.
    pub fn find(&self, name: &str) -> Option<Tensor> {
        self.by_name.get(name).cloned()
    }
}

fn load_one(spec: &TensorSpec, weights: &Weights, dtype: DType) -> Result<Tensor, ModelError> {
    let data = weights.tensor(spec)?;
    if data.count() != spec.count() {
        let (name, has, wants) = (&spec.name, data.count(), spec.count());
        return Err(ModelError::Refused(format!("`{name}` has {has} numbers and not {wants}")));
    }
    if let TensorData::Stored { dtype: stored, bytes } = data
        && type_of(stored) == dtype
    {
        return Ok(Tensor::from_raw_buffer(bytes, dtype, &spec.shape, &Device::Cpu)?);
    }
    Ok(Tensor::from_vec(data.to_f32(), spec.shape.as_slice(), &Device::Cpu)?.to_dtype(dtype)?)
}
