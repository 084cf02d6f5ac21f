//! VibeVoice on the CPU.

mod backend;
mod diffusion;
mod memory;
mod tokenizer;

use self::backend::Cpu;
pub use self::memory::needed_vibevoice_bytes;
use super::conv::{Conv, Depthwise};
use super::{crew::Crew, model::Loader, number::Number, refuse_graph};
use crate::tts::{ConvTensors, TtsLoad};
use crate::vibevoice::{
    ConvShape, Engine, Kinds, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, VoiceLoad,
};
use crate::{ModelError, dtype::typed};

/// Loads VibeVoice into memory. It runs on this many threads, including the caller's.
pub fn vibevoice(
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    threads: usize,
) -> Result<Box<dyn VibeVoice>, ModelError> {
    config.check()?;
    options.dtype.refuse_quantised("text to speech")?;
    refuse_graph(options.graph)?;
    let _stage = laptime_probe::stage!("weights");
    let crew = Crew::new(threads)?;
    Ok(typed!(options.dtype, |T| {
        let loaded = config.load(&mut Loader::<T>::new(Some(weights), &crew))?;
        let backend = Cpu::load(&config, weights, &options, crew)?;
        Box::new(Engine::new(backend, config, options, (weights, loaded))?)
    }))
}

impl<T: Number> Kinds for Cpu<T> {
    type Matrix = Vec<T>;
    /// Vectors are kept in f32, after they were rounded to the dtype of the matrices.
    type Vector = Vec<f32>;
    type Conv = Conv<T>;
    type Depthwise = Depthwise;
}

impl<T: Number> VoiceLoad<Cpu<T>> for Loader<'_, T> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<Conv<T>, ModelError> {
        let (dilation, step) = if shape.is_transposed { (shape.stride, 1) } else { (1, shape.stride) };
        let mut conv = TtsLoad::conv(self, tensors, dilation)?;
        conv.step = step;
        Ok(conv)
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Depthwise, ModelError> {
        TtsLoad::depthwise(self, tensors)
    }
}
