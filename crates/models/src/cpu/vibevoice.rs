//! VibeVoice on the CPU.

mod backend;
mod diffusion;
mod loader;
mod memory;
mod tokenizer;

use self::backend::Cpu;
pub use self::memory::needed_vibevoice_bytes;
use super::{crew::Crew, model::Source, refuse_graph};
use crate::vibevoice::{Engine, VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights};
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
        let loaded = config.load(&mut Source { weights: Some(weights), crew: &crew, fp8: None }.typed::<T>())?;
        let backend = Cpu::load(&config, weights, &options, crew)?;
        Box::new(Engine::new(backend, config, options, (weights, loaded))?)
    }))
}
