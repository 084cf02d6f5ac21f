//! The model without its numbers: tensors, work and sizes by the definition that loads and computes.

use std::convert::Infallible;

use super::ops::{CodecOps, Flow, decode};
use super::tensors::{
    CodecWeights, ConvTensors, LinearOf, NextWeights, Parts, PredictorWeights, Table, TalkerWeights, TtsLoad,
};
use super::{CodecConfig, TtsConfig};
use crate::decoder::count::{Counted, Specs};
use crate::decoder::weights::Load;
use crate::{Done, Dtype, ModelError, Role, TensorSpec};

impl Parts for Specs {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;
    /// With its dilation, or with its stride if it is transposed.
    type Conv = (ConvTensors, usize);
    type Depthwise = ConvTensors;
    type Snake = Vec<TensorSpec>;
    type Codebooks = Vec<TensorSpec>;
    type Bridge = LinearOf<Self>;
}

impl TtsLoad for Specs {
    type Parts = Self;

    fn conv(&mut self, tensors: &ConvTensors, step: usize) -> Result<(ConvTensors, usize), Infallible> {
        Ok((self.depthwise(tensors)?, step))
    }

    fn to_one(&mut self, tensors: &ConvTensors) -> Result<(ConvTensors, usize), Infallible> {
        self.conv(tensors, 1)
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<ConvTensors, Infallible> {
        self.0.extend([tensors.weight.clone(), tensors.bias.clone()]);
        Ok(tensors.clone())
    }

    fn snake(&mut self, tensors: &[TensorSpec; 2]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }

    fn codebooks(&mut self, tensors: &[[TensorSpec; 2]]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors.as_flattened())
    }

    fn side_by_side(&mut self, tensors: &[TensorSpec; 2]) -> Result<Vec<TensorSpec>, Infallible> {
        self.matrix(tensors)
    }

    fn scale_rows(&mut self, _: &mut Vec<TensorSpec>, scale: &TensorSpec) -> Result<(), Infallible> {
        self.matrix(std::slice::from_ref(scale)).map(drop)
    }

    fn bridge(&mut self, linear: LinearOf<Self>, _: [&Vec<TensorSpec>; 2]) -> Result<LinearOf<Self>, Infallible> {
        Ok(linear)
    }
}

impl TtsConfig {
    pub(super) fn codec_specs(&self) -> (CodecWeights<Specs>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let Ok(codec) = Table { config: self, loader: &mut loader }.codec();
        (codec, loader.0)
    }

    pub(super) fn talker_specs(&self) -> (TalkerWeights<Specs>, PredictorWeights<Specs>, Vec<TensorSpec>) {
        let mut loader = Specs::default();
        let mut table = Table { config: self, loader: &mut loader };
        let Ok(talker) = table.talker();
        let Ok(predictor) = table.predictor(&talker);
        (talker, predictor, loader.0)
    }

    /// Every tensor of the talker and the predictor: those of `model.safetensors`.
    pub fn talker_file_tensors(&self) -> Vec<TensorSpec> {
        self.talker_specs().2
    }

    /// Every tensor of the codec decoder: those of `speech_tokenizer/model.safetensors` that are needed.
    pub fn codec_file_tensors(&self) -> Vec<TensorSpec> {
        self.codec_specs().1
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CodecSizes {
    pub hidden: usize,
    pub inner: usize,
    /// Rows, inputs and taps of each convolution.
    pub convs: Vec<[usize; 3]>,
}

impl CodecSizes {
    pub fn new(config: &TtsConfig) -> Self {
        CodecCount::run(config, &config.codec_specs().0, 1, Dtype::F32).sizes
    }
}

pub struct CodecCount<'a> {
    config: &'a CodecConfig,
    /// The work of everything but the layers of the transformer.
    pub counted: Counted,
    pub sizes: CodecSizes,
}

impl<'a> CodecCount<'a> {
    pub fn run(config: &'a TtsConfig, weights: &CodecWeights<Specs>, frames: usize, dtype: Dtype) -> Self {
        let mut count = Self { config: &config.codec, counted: Counted::new(dtype), sizes: CodecSizes::default() };
        // A count refuses nothing.
        let _ = decode(&mut count, weights, frames);
        count
    }

    fn hidden(&mut self, rows: usize, width: usize) {
        self.sizes.hidden = self.sizes.hidden.max(rows.saturating_mul(width));
    }
}

impl CodecOps for CodecCount<'_> {
    type Parts = Specs;

    fn look_up(&mut self, weights: &CodecWeights<Specs>, frames: usize) -> Done {
        self.counted.read_numbers(&[frames, self.config.groups, self.config.vector_width()]);
        self.counted.product(&weights.projection, frames as u64);
        self.hidden(frames, self.config.code_width);
        Ok(())
    }

    fn conv(
        &mut self,
        (tensors, step): &(ConvTensors, usize),
        snake: Option<&Vec<TensorSpec>>,
        rows: usize,
        _: Flow,
    ) -> Result<usize, ModelError> {
        let side = |at: usize| tensors.weight.shape.get(at).copied().unwrap_or(1);
        let [inputs, outputs, taps, stride] = match tensors.weight.role {
            Role::Lengthen => [side(0), side(1), side(2).div_ceil((*step).max(1)), *step],
            _ => [side(1), side(0), side(2), 1],
        };
        self.counted.read(snake.into_iter().flatten());
        self.counted.conv(tensors, rows as u64);
        self.sizes.convs.push([rows, inputs, taps]);
        let rows = rows.saturating_mul(stride);
        self.hidden(rows, outputs);
        Ok(rows)
    }

    fn transformer(&mut self, _: &CodecWeights<Specs>, frames: usize) -> Done {
        let transformer = &self.config.transformer;
        self.counted.read_numbers(&[2, transformer.layers, transformer.hidden]);
        self.hidden(frames, transformer.hidden);
        Ok(())
    }

    fn depthwise_norm(&mut self, next: &NextWeights<Specs>, rows: usize) -> Done {
        self.counted.conv(&next.depthwise, rows as u64);
        self.counted.read(next.norm.iter().flatten());
        Ok(())
    }

    fn up_gelu(&mut self, next: &NextWeights<Specs>, rows: usize) -> Done {
        self.counted.layer(&next.up, rows);
        let inner = next.up.bias.iter().map(TensorSpec::count).sum();
        self.sizes.inner = self.sizes.inner.max(rows.saturating_mul(inner));
        // A product is a convolution with one tap.
        self.sizes.convs.extend([[rows, self.config.latent, 1], [rows, inner, 1]]);
        Ok(())
    }

    fn down_add(&mut self, next: &NextWeights<Specs>, rows: usize) -> Done {
        self.counted.layer(&next.down, rows);
        self.counted.read(&next.scale);
        Ok(())
    }

    fn to_samples(&mut self, weights: &CodecWeights<Specs>, rows: usize) -> Done {
        self.conv(&weights.last, Some(&weights.snake), rows, Flow::Hidden).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidden_states_are_largest_where_they_are_longest() {
        let sizes = CodecSizes::new(&TtsConfig::from_preset("0.6b").unwrap());
        assert_eq!((sizes.hidden, sizes.inner), (1920 * 96, 4 * 1024 * 4));
    }
}
