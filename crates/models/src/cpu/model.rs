//! The weights of a model on the CPU. Matrices that multiply the same input are packed into one.

use std::{marker::PhantomData, ops::Range};

use laptime_probe::stage;

use super::{cache::zeros, crew::Crew, number::Number};
use crate::decoder::weights::{self, LayerWeights, Load, PARTS, Parameters, Part};
use crate::fp8::{self, Layout, WeightScales, is_quantised};
use crate::tensors::{product, sum};
use crate::{Config, Dtype, ModelError, Role, TensorSpec, error::ensure, weights::TensorSource};

const PART: usize = 1 << 15;

/// The weights of a layer. Vectors are f32, rounded to the dtype of the matrices first.
pub type Layer<T> = LayerWeights<Vec<T>, Vec<f32>>;

pub type Model<T> = Parameters<Vec<T>, Vec<f32>>;

/// The resident layers of a decoder, without embedding and head.
pub type Body<T> = weights::Body<Vec<T>, Vec<f32>>;

/// Loads weights in a dtype.
#[derive(Clone, Copy)]
pub struct Loader<'a, T> {
    /// None for zeros.
    pub weights: Option<&'a dyn TensorSource>,
    crew: &'a Crew,
    /// The scales of the matrices of layers if they are e4m3.
    pub fp8: Option<WeightScales>,
    of: PhantomData<T>,
}

impl<T: Number> Load for Loader<'_, T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;
    type Error = ModelError;

    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<Vec<T>, ModelError> {
        match self.fp8.filter(|_| tensors.iter().all(|tensor| tensor.role == Role::Linear)) {
            Some(scales) => self.quantised(tensors, scales),
            None => self.stacked(tensors),
        }
    }

    fn vector(&mut self, tensors: &[TensorSpec]) -> Result<Vec<f32>, ModelError> {
        self.rounded(tensors)
    }
}

impl<T: Number> Layer<T> {
    pub fn blank(config: &Config, fp8: Option<WeightScales>) -> Result<Self, ModelError> {
        Loader::new(None, &Crew::new(1)?).with_fp8(fp8).layer(config, 0)
    }

    pub fn bytes(&self) -> [&[u8]; PARTS] {
        self.parts().map(|part| match part {
            Some(Part::Matrix(numbers)) => bytemuck::cast_slice(numbers),
            Some(Part::Vector(numbers)) => bytemuck::cast_slice(numbers),
            None => &[],
        })
    }

    pub fn bytes_mut(&mut self) -> [&mut [u8]; PARTS] {
        self.parts_mut().map(|part| match part {
            Some(Part::Matrix(numbers)) => bytemuck::cast_slice_mut(numbers),
            Some(Part::Vector(numbers)) => bytemuck::cast_slice_mut(numbers),
            None => &mut [],
        })
    }
}

pub fn numbers<T: Number>(part: Part<&Vec<T>, &Vec<f32>>, range: Range<usize>) -> Vec<f32> {
    match part {
        Part::Matrix(numbers) => numbers[range].iter().map(|number| number.wide()).collect(),
        Part::Vector(numbers) => numbers[range].to_vec(),
    }
}

/// Bytes of a layer in memory: matrices in the dtype, vectors in f32.
pub fn layer_bytes(config: &Config, dtype: Dtype) -> u64 {
    let bytes = |spec: &TensorSpec| {
        let is_vector = matches!(spec.role, Role::Norm | Role::ZeroCentredNorm | Role::Bias);
        product(&spec.shape).saturating_mul(if is_vector { Dtype::F32 } else { dtype }.bytes())
    };
    let part = |tensors: &Vec<TensorSpec>| match tensors.first() {
        Some(first) if is_quantised(dtype, first.role) => Layout::of(tensors, config.weight_scales).bytes() as u64,
        _ => sum(tensors.iter().map(bytes)),
    };
    sum(weights::packed_tensors(&config.layer_tensors(0)).iter().map(part))
}

impl<'a, T: Number> Loader<'a, T> {
    pub fn new(weights: Option<&'a dyn TensorSource>, crew: &'a Crew) -> Self {
        Self { weights, crew, fp8: None, of: PhantomData }
    }

    pub fn with_fp8(self, fp8: Option<WeightScales>) -> Self {
        Self { fp8, ..self }
    }

    pub fn model(mut self, config: &Config) -> Result<Model<T>, ModelError> {
        let _stage = match self.weights {
            Some(_) => stage!("weights"),
            None => stage!("allocate"),
        };
        Parameters::load(config, 0, &mut self)
    }

    pub fn layer(mut self, config: &Config, layer: usize) -> Result<Layer<T>, ModelError> {
        LayerWeights::load(&config.layer_tensors(layer), &mut self)
    }

    pub fn stacked(&self, specs: &[TensorSpec]) -> Result<Vec<T>, ModelError> {
        let mut numbers = zeros(specs.iter().map(TensorSpec::count).sum())?;
        let Some(weights) = self.weights else { return Ok(numbers) };
        let mut rest = numbers.as_mut_slice();
        for spec in specs {
            let (these, others) = rest.split_at_mut(spec.count());
            rest = others;
            let data = weights.tensor(spec)?;
            let (name, has, wants) = (&spec.name, data.count(), these.len());
            ensure!(has == wants, "`{name}` has {has} numbers, expected {wants}");
            self.crew.each(these.len(), these.chunks_mut(PART).enumerate(), |(at, part)| data.read_at(at * PART, part));
        }
        Ok(numbers)
    }

    /// Codes and scales, stored in a buffer of the dtype.
    fn quantised(&self, tensors: &[TensorSpec], scales: WeightScales) -> Result<Vec<T>, ModelError> {
        let mut storage = zeros::<T>(Layout::of(tensors, scales).bytes() / size_of::<T>())?;
        if let Some(weights) = self.weights {
            fp8::pack(weights, tensors, scales, bytemuck::cast_slice_mut(&mut storage))?;
        }
        Ok(storage)
    }

    pub fn rows(&self, spec: &TensorSpec, rows: &[u32]) -> Result<Vec<T>, ModelError> {
        let [count, width] = spec.shape[..] else {
            return Err(ModelError::Refused(format!("`{}` is not a matrix", spec.name)));
        };
        let mut numbers = zeros(rows.len() * width)?;
        let Some(weights) = self.weights else { return Ok(numbers) };
        let data = weights.tensor(spec)?;
        let has_rows = data.count() == spec.count() && rows.iter().all(|row| (*row as usize) < count);
        ensure!(has_rows, "`{}` does not have the rows {rows:?}", spec.name);
        for (row, to) in rows.iter().zip(numbers.chunks_mut(width)) {
            data.read_at(*row as usize * width, to);
        }
        Ok(numbers)
    }

    /// Several tensors in f32, rounded to the dtype first. Zero-centred norms are shifted by 1.
    pub fn rounded(&self, specs: &[TensorSpec]) -> Result<Vec<f32>, ModelError> {
        let add = if specs.iter().any(|spec| spec.role == Role::ZeroCentredNorm) { 1.0 } else { 0.0 };
        Ok(self.stacked(specs)?.into_iter().map(|number| number.wide() + add).collect())
    }
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;
    use crate::Weights;

    #[test]
    fn the_parts_of_a_layer_add_up_to_its_bytes() {
        let crew = Crew::new(1).unwrap();
        for preset in ["tiny", "tiny-qwen2", "tiny-llama", "tiny-gemma3", "decoder_tiny"] {
            let config = Config::from_preset(preset).unwrap();
            let weights = Weights::synthetic(&config, 1);
            let mut layer: Layer<bf16> = Loader::new(Some(&weights), &crew).layer(&config, 1).unwrap();
            let bytes: u64 = layer.bytes().iter().map(|part| part.len() as u64).sum();
            assert_eq!(bytes, layer_bytes(&config, Dtype::Bf16), "{preset}");
            let mut other = Layer::<bf16>::blank(&config, None).unwrap();
            other.bytes_mut().into_iter().zip(layer.bytes()).for_each(|(to, from)| to.copy_from_slice(from));
            assert_eq!(layer.bytes_mut().map(|part| part.to_vec()), other.bytes().map(<[u8]>::to_vec), "{preset}");
            assert!(config.layers < 2 || other.qkv == layer.qkv);
            for scales in [WeightScales::Rows, WeightScales::Blocks] {
                let config = Config { weight_scales: scales, ..config.clone() };
                let layer = Layer::<bf16>::blank(&config, Some(scales)).unwrap();
                let bytes: u64 = layer.bytes().iter().map(|part| part.len() as u64).sum();
                assert_eq!(bytes, layer_bytes(&config, Dtype::Fp8), "{preset}");
            }
        }
    }

    #[test]
    fn every_tensor_of_a_checkpoint_can_be_found_after_loading() {
        for name in ["tiny", "tiny-qwen2", "tiny-llama", "decoder_tiny"] {
            let config = Config::from_preset(name).unwrap();
            let weights = Weights::synthetic(&config, 5);
            let crew = Crew::new(1).unwrap();
            let model: Model<f32> = Loader::new(Some(&weights), &crew).model(&config).unwrap();
            for spec in config.tensors() {
                let expected = weights.tensor(&spec).unwrap().to_f32();
                let (part, range) = model.find(&config, &spec).unwrap();
                assert!(numbers(part, range) == expected, "{name}: {}", spec.name);
            }
        }
    }
}
