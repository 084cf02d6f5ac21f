//! Text to speech on the CPU.

mod codec;
mod engine;
mod load;
mod memory;
mod predictor;
mod steps;
mod talker;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::needed_tts_bytes;
pub(super) use self::steps::add_scaled;
use super::refuse_graph;
use crate::{
    Dtype, ModelError,
    tts::{SpeakOptions, Speaking, TtsConfig, TtsWeights},
};

/// Loads Qwen3-TTS into memory. It runs on this many threads, including the caller's.
pub fn qwen_tts(
    config: TtsConfig,
    weights: &TtsWeights,
    options: SpeakOptions,
    threads: usize,
) -> Result<Box<dyn Speaking>, ModelError> {
    config.check()?;
    refuse_graph(options.graph)?;
    Ok(match options.dtype {
        Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
        Dtype::Bf16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
        Dtype::F16 => Box::new(Engine::<f16>::new(config, weights, options, threads)?),
    })
}
