//! The weights of VibeVoice in memory.

use std::marker::PhantomData;

use super::{
    super::{
        conv::{Conv, Depthwise},
        model::Source,
        number::Number,
    },
    backend::Cpu,
};
use crate::{
    ModelError, TensorSpec,
    tts::ConvTensors,
    vibevoice::{ConvShape, Kinds, Load},
};

/// A convolution, and the positions that become one.
pub struct StepConv<T> {
    pub conv: Conv<T>,
    pub step: usize,
}

impl<T: Number> Kinds for Cpu<T> {
    type Matrix = Vec<T>;
    /// Vectors are kept in f32, after they were rounded to the dtype of the matrices.
    type Vector = Vec<f32>;
    type Conv = StepConv<T>;
    type Depthwise = Depthwise;
}

/// Loads matrices of one dtype.
pub struct Typed<'a, T> {
    source: Source<'a>,
    of: PhantomData<T>,
}

impl<'a, T> Typed<'a, T> {
    pub fn new(source: Source<'a>) -> Self {
        Self { source, of: PhantomData }
    }
}

impl<T: Number> Load<Cpu<T>> for Typed<'_, T> {
    fn matrix(&mut self, tensors: &[TensorSpec]) -> Result<Vec<T>, ModelError> {
        self.source.stacked(&tensors.iter().collect::<Vec<_>>())
    }

    fn vector(&mut self, tensor: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.source.rounded::<T>(&[tensor])
    }

    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<StepConv<T>, ModelError> {
        let kernel = self.source.stacked::<T>(&[&tensors.weight])?;
        let bias = self.vector(&tensors.bias)?;
        Ok(match shape.is_transposed {
            true => StepConv { conv: Conv::lengthening(&kernel, shape.inputs, &bias, shape.stride), step: 1 },
            false => StepConv { conv: Conv::new(&kernel, shape.inputs, bias, 1), step: shape.stride },
        })
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Depthwise, ModelError> {
        Ok(Depthwise::new(&self.vector(&tensors.weight)?, self.vector(&tensors.bias)?))
    }
}
