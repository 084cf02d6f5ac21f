//! The weights of Qwen3-TTS on the CPU.

use std::{marker::PhantomData, slice::from_ref};

use super::super::conv::{Conv, Depthwise, Linear};
use super::super::{cache::zeros, model::Loader, number::Number, steps::Snake};
use crate::tts::{ConvTensors, Parts, TtsLoad, codebook};
use crate::{Done, ModelError, Role, TensorSpec};

/// How the CPU holds weights: matrices in their dtype, vectors in f32 after they were rounded to it.
pub struct CpuParts<T>(PhantomData<T>);

impl<T> Parts for CpuParts<T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;
    type Conv = Conv<T>;
    type Depthwise = Depthwise;
    type Snake = Snake;
    type Codebooks = Vec<f32>;
    type Bridge = Linear<T>;
}

impl<T: Number> TtsLoad for Loader<'_, T> {
    type Parts = CpuParts<T>;

    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<Conv<T>, ModelError> {
        let ConvTensors { weight, bias } = tensors;
        let (kernel, bias) = (self.stacked(from_ref(weight))?, self.rounded(from_ref(bias))?);
        Ok(match weight.role {
            Role::Lengthen => Conv::lengthening(&kernel, weight.shape[0], &bias, step),
            _ => Conv::new(&kernel, weight.shape[1], bias, step),
        })
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Depthwise, ModelError> {
        Ok(Depthwise::new(&self.rounded(from_ref(&tensors.weight))?, self.rounded(from_ref(&tensors.bias))?))
    }

    fn to_one(&mut self, tensors: &ConvTensors) -> Result<Conv<T>, ModelError> {
        self.conv(tensors, 1)
    }

    fn snake(&mut self, [alpha, beta]: &[TensorSpec; 2]) -> Result<Snake, ModelError> {
        Ok(Snake::new(&self.rounded(from_ref(alpha))?, &self.rounded(from_ref(beta))?))
    }

    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<Vec<f32>, ModelError> {
        let mut all = zeros(tensors.iter().map(|[sums, _]| sums.count()).sum())?;
        let (mut rest, Some(weights)) = (all.as_mut_slice(), self.weights) else { return Ok(all) };
        for tensors in tensors {
            let (these, others) = rest.split_at_mut(tensors[0].count());
            rest = others;
            these.iter_mut().zip(codebook(weights, tensors)?).for_each(|(to, number)| *to = T::narrow(number).wide());
        }
        Ok(all)
    }

    fn side_by_side(&mut self, [first, second]: &[TensorSpec; 2]) -> Result<Vec<T>, ModelError> {
        let (left, right) = (first.shape[1], second.shape[1]);
        let (first, second) = (self.stacked(from_ref(first))?, self.stacked(from_ref(second))?);
        let rows = first.chunks(left).zip(second.chunks(right));
        Ok(rows.flat_map(|(left, right)| left.iter().chain(right)).copied().collect())
    }

    fn scale_rows(&mut self, matrix: &mut Vec<T>, scale: &TensorSpec) -> Done {
        let scale = self.rounded(from_ref(scale))?;
        let width = matrix.len() / scale.len();
        for (row, scale) in matrix.chunks_mut(width).zip(scale) {
            row.iter_mut().for_each(|number| *number = T::narrow(number.wide() * scale));
        }
        Ok(())
    }

    fn bridge(&mut self, linear: Linear<T>, _: [&Vec<T>; 2]) -> Result<Linear<T>, ModelError> {
        Ok(linear)
    }
}
