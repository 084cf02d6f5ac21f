//! The weights of VibeVoice in memory.

use super::super::{
    conv::{Conv, Depthwise},
    model::Typed,
    number::Number,
};
use super::backend::Cpu;
use crate::ModelError;
use crate::tts::{ConvTensors, TtsLoad};
use crate::vibevoice::{ConvShape, Kinds, VoiceLoad};

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

impl<T: Number> VoiceLoad<Cpu<T>> for Typed<'_, T> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<StepConv<T>, ModelError> {
        let (dilation, step) = if shape.is_transposed { (shape.stride, 1) } else { (1, shape.stride) };
        Ok(StepConv { conv: TtsLoad::conv(self, tensors, dilation)?, step })
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Depthwise, ModelError> {
        TtsLoad::depthwise(self, tensors)
    }
}
