//! VibeVoice on the CPU.

mod backend;
mod diffusion;
mod loader;
mod memory;
mod tokenizer;

use half::{bf16, f16};

pub use self::memory::needed_vibevoice_bytes;
use self::{backend::Cpu, loader::Typed};
use super::{crew::Crew, model::Source, number::Number, refuse_graph};
use crate::{
    Dtype, ModelError,
    vibevoice::{Engine, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights},
};

/// Loads VibeVoice into memory. It runs on this many threads, including the caller's.
pub fn vibevoice(
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    threads: usize,
) -> Result<Box<dyn VibeVoice>, ModelError> {
    fn typed<T: Number>(
        config: VibeVoiceConfig,
        weights: &VibeVoiceWeights,
        options: VibeVoiceOptions,
        threads: usize,
    ) -> Result<Box<dyn VibeVoice>, ModelError> {
        let _stage = laptime_probe::stage!("weights");
        let crew = Crew::new(threads)?;
        let loaded = config.published().load(&mut Typed::<T>::new(Source { weights: Some(weights), crew: &crew }))?;
        let backend = Cpu::load(&config, weights, &options, crew)?;
        Ok(Box::new(Engine::new(backend, config, options, (weights, loaded))?))
    }
    config.check()?;
    refuse_graph(options.graph)?;
    match options.dtype {
        Dtype::F32 => typed::<f32>(config, weights, options, threads),
        Dtype::Bf16 => typed::<bf16>(config, weights, options, threads),
        Dtype::F16 => typed::<f16>(config, weights, options, threads),
    }
}
