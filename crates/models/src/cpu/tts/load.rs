//! The weights of the codec decoder as decoding wants them.

use super::{
    super::{
        conv::{Conv, Depthwise},
        linear::Linear,
        model::{Body, Source},
        number::Number,
    },
    codec::{Block, Next, Unit},
    steps::{CentredNorm, Snake},
};
use crate::{
    ModelError, TensorSpec,
    tts::{BlockTensors, CodecTensors, ConvTensors, KERNELS, NextTensors, SnakeTensors, TtsConfig, UnitTensors},
    weights::TensorSource,
};

/// What a vector's use is at least, as in the official package.
const LEAST_USE: f32 = 1e-5;

/// What is added under the root of the norms of ConvNeXt blocks, as in the official classes.
const NEXT_EPS: f32 = 1e-6;

/// Where tensors come from.
#[derive(Clone, Copy)]
pub struct Load<'a>(pub Source<'a>);

impl Load<'_> {
    /// Numbers in f32, as the type rounds them.
    fn rounded<T: Number>(self, spec: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.0.rounded::<T>(&[spec])
    }

    /// The vectors of a codebook: sums over uses, in f32, then rounded.
    pub fn codebook<T: Number>(self, [sums, uses]: &[TensorSpec; 2]) -> Result<Vec<f32>, ModelError> {
        let (mut vectors, uses) = (self.0.stacked::<f32>(&[sums])?, self.0.stacked::<f32>(&[uses])?);
        let width = vectors.len() / uses.len();
        for (vector, uses) in vectors.chunks_mut(width).zip(&uses) {
            let uses = uses.max(LEAST_USE);
            vector.iter_mut().for_each(|number| *number = T::narrow(*number / uses).wide());
        }
        Ok(vectors)
    }

    /// Both projections side by side.
    pub fn projection<T: Number>(self, tensors: &CodecTensors, width: usize) -> Result<Vec<T>, ModelError> {
        let [first, rest] = &tensors.projections;
        let (first, rest) = (self.0.stacked::<T>(&[first])?, self.0.stacked::<T>(&[rest])?);
        let rows = first.chunks(width).zip(rest.chunks(width));
        Ok(rows.flat_map(|(first, rest)| first.iter().chain(rest)).copied().collect())
    }

    /// A convolution.
    pub fn conv<T: Number>(self, tensors: &ConvTensors, dilation: usize) -> Result<Conv<T>, ModelError> {
        let kernel = self.0.stacked::<T>(&[&tensors.weight])?;
        Ok(Conv::new(&kernel, tensors.weight.shape[1], self.rounded::<T>(&tensors.bias)?, dilation))
    }

    /// A transposed convolution.
    fn lengthen<T: Number>(self, tensors: &ConvTensors, stride: usize) -> Result<Conv<T>, ModelError> {
        let kernel = self.0.stacked::<T>(&[&tensors.weight])?;
        Ok(Conv::lengthening(&kernel, tensors.weight.shape[0], &self.rounded::<T>(&tensors.bias)?, stride))
    }

    /// An activation.
    pub fn snake<T: Number>(self, tensors: &SnakeTensors) -> Result<Snake, ModelError> {
        Ok(Snake::new(&self.rounded::<T>(&tensors.alpha)?, &self.rounded::<T>(&tensors.beta)?))
    }

    /// The layers of the transformer. What a layer multiplies what it adds with is multiplied into the matrices that make
    /// it, so that they are layers like all others.
    pub fn body<T: Number>(
        self,
        config: &TtsConfig,
        weights: &dyn TensorSource,
        tensors: &CodecTensors,
    ) -> Result<Body<T>, ModelError> {
        let mut body = Body::load(&config.codec.transformer, 0, Source { weights: Some(weights), crew: self.0.crew })?;
        for (layer, [attention, ffn]) in body.layers.iter_mut().zip(&tensors.scales) {
            scale_rows(&mut layer.output, &self.rounded::<T>(attention)?);
            scale_rows(&mut layer.down, &self.rounded::<T>(ffn)?);
        }
        Ok(body)
    }

    /// A block that lengthens, and a ConvNeXt block behind it.
    pub fn next<T: Number>(self, tensors: &NextTensors, ratio: usize) -> Result<Next<T>, ModelError> {
        let kernel = self.rounded::<T>(&tensors.depthwise.weight)?;
        Ok(Next {
            lengthen: self.lengthen(&tensors.lengthen, ratio)?,
            depthwise: Depthwise::new(&kernel, self.rounded::<T>(&tensors.depthwise.bias)?),
            norm: CentredNorm {
                weight: self.rounded::<T>(&tensors.norm.weight)?,
                bias: self.rounded::<T>(&tensors.norm.bias)?,
                eps: NEXT_EPS,
            },
            up: Linear::load(&tensors.up, self.0)?,
            down: Linear::load(&tensors.down, self.0)?,
            scale: self.rounded::<T>(&tensors.scale)?,
        })
    }

    /// A block that lengthens, and residual units behind it.
    pub fn block<T: Number>(self, tensors: &BlockTensors, rate: usize) -> Result<Block<T>, ModelError> {
        let units = tensors.units.iter().zip(KERNELS.dilations);
        Ok(Block {
            snake: self.snake::<T>(&tensors.snake)?,
            lengthen: self.lengthen(&tensors.lengthen, rate)?,
            units: units.map(|(unit, dilation)| self.unit(unit, dilation)).collect::<Result<_, _>>()?,
        })
    }

    fn unit<T: Number>(self, tensors: &UnitTensors, dilation: usize) -> Result<Unit<T>, ModelError> {
        Ok(Unit {
            snake: self.snake::<T>(&tensors.snake)?,
            wide: self.conv(&tensors.wide, dilation)?,
            snake_between: self.snake::<T>(&tensors.snake_between)?,
            narrow: self.conv(&tensors.narrow, 1)?,
        })
    }
}

/// Multiplies every row of a matrix with a number of its own.
fn scale_rows<T: Number>(matrix: &mut [T], scale: &[f32]) {
    let width = matrix.len() / scale.len();
    for (row, scale) in matrix.chunks_mut(width).zip(scale) {
        row.iter_mut().for_each(|number| *number = T::narrow(number.wide() * scale));
    }
}
