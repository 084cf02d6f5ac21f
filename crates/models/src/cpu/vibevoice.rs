//! Speech on the CPU.

mod connector;
mod engine;
mod head;
mod memory;
mod said;
mod tokenizer;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::{most_resident_vibevoice_layers, needed_vibevoice_bytes};
use super::refuse_graph;
use crate::{
    Dtype, ModelError,
    vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights},
};

/// Loads VibeVoice into memory. It runs on this many threads, including the caller's.
pub fn vibevoice(
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    threads: usize,
) -> Result<Box<dyn VibeVoice>, ModelError> {
    config.check()?;
    refuse_graph(options.graph)?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
        Dtype::Bf16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
        Dtype::F16 => Box::new(Engine::<f16>::new(config, weights, options, threads)?),
    })
}
