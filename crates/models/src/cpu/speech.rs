//! Speech on the CPU.

mod connector;
mod engine;
mod head;
mod memory;
mod said;
mod tokenizer;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::{most_resident_speech_layers, needed_speech_bytes};
use super::refuse_graph;
use crate::{
    Dtype, ModelError,
    speech::{SpeechConfig, SpeechWeights, Voicing, VoicingOptions},
};

/// Loads VibeVoice into memory. It runs on this many threads, including the caller's.
pub fn vibevoice(
    config: SpeechConfig,
    weights: &SpeechWeights,
    options: VoicingOptions,
    threads: usize,
) -> Result<Box<dyn Voicing>, ModelError> {
    config.check()?;
    refuse_graph(options.graph)?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
        Dtype::Bf16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
        Dtype::F16 => Box::new(Engine::<f16>::new(config, weights, options, threads)?),
    })
}
