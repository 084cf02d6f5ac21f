//! Text to speech on the CPU.

mod codec;
mod engine;
mod load;
mod memory;
mod predictor;
mod steps;
mod talker;

use std::ops::Range;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::needed_tts_bytes;
pub(super) use self::steps::add_scaled;
use crate::{
    Dtype, GraphMode, ModelError,
    tts::{Frame, Prompt, Sampling, SpeakOptions, Speaking, TtsConfig, TtsWeights},
};

/// A text-to-speech model on the CPU.
pub struct CpuSpeaking {
    /// One for each number type.
    engine: Box<dyn Speaking>,
}

impl CpuSpeaking {
    /// Puts a model's weights into memory; it runs on so many threads, of which the caller is one.
    pub fn new(
        config: TtsConfig,
        weights: &TtsWeights,
        options: SpeakOptions,
        threads: usize,
    ) -> Result<Self, ModelError> {
        config.check()?;
        if options.graph == GraphMode::On {
            return Err(ModelError::Refused("there are no graphs on a CPU: leave `--graph on` out".to_owned()));
        }
        let engine: Box<dyn Speaking> = match options.dtype {
            Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
            Dtype::Bf16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
            Dtype::F16 => Box::new(Engine::<f16>::new(config, weights, options, threads)?),
        };
        Ok(Self { engine })
    }
}

impl Speaking for CpuSpeaking {
    fn config(&self) -> &TtsConfig {
        self.engine.config()
    }

    fn options(&self) -> &SpeakOptions {
        self.engine.options()
    }

    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling, most_frames: usize) -> Result<(), ModelError> {
        self.engine.begin(prompt, sampling, most_frames)
    }

    fn frame(&mut self) -> Result<Frame, ModelError> {
        self.engine.frame()
    }

    fn frames(&self) -> usize {
        self.engine.frames()
    }

    fn codes(&mut self, frames: Range<usize>) -> Result<Vec<u32>, ModelError> {
        self.engine.codes(frames)
    }

    fn decode(&mut self, frames: Range<usize>) -> Result<Vec<f32>, ModelError> {
        self.engine.decode(frames)
    }

    fn set_codes(&mut self, codes: &[u32]) -> Result<(), ModelError> {
        self.engine.set_codes(codes)
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.engine.logits()
    }

    fn hidden(&mut self) -> Result<Vec<f32>, ModelError> {
        self.engine.hidden()
    }

    fn wait(&mut self) -> Result<(), ModelError> {
        self.engine.wait()
    }

    fn reset(&mut self) -> Result<(), ModelError> {
        self.engine.reset()
    }
}
