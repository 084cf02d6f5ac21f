//! Speech on the CPU.

mod connector;
mod engine;
mod head;
mod memory;
mod said;
mod tokenizer;

use std::ops::Range;

use half::{bf16, f16};

use self::engine::Engine;
pub use self::memory::{most_resident_speech_layers, needed_speech_bytes};
use crate::{
    Dtype, GraphMode, LayerVisit, ModelError, Offloading,
    speech::{Guidance, SpeechConfig, SpeechWeights, SpokenToken, VoicePrompt, Voicing, VoicingOptions},
};

/// A speech model on the CPU.
pub struct CpuVoicing {
    /// One for each number type.
    engine: Box<dyn Voicing>,
}

impl CpuVoicing {
    /// Puts a model's weights into memory; it runs on so many threads, of which the caller is one.
    pub fn new(
        config: SpeechConfig,
        weights: &SpeechWeights,
        options: VoicingOptions,
        threads: usize,
    ) -> Result<Self, ModelError> {
        config.check()?;
        if options.graph == GraphMode::On {
            return Err(ModelError::Refused("there are no graphs on a CPU: leave `--graph on` out".to_owned()));
        }
        let engine: Box<dyn Voicing> = match options.dtype {
            Dtype::F32 => Box::new(Engine::<f32>::new(config, weights, options, threads)?),
            Dtype::Bf16 => Box::new(Engine::<bf16>::new(config, weights, options, threads)?),
            Dtype::F16 => Box::new(Engine::<f16>::new(config, weights, options, threads)?),
        };
        Ok(Self { engine })
    }
}

impl Voicing for CpuVoicing {
    fn config(&self) -> &SpeechConfig {
        self.engine.config()
    }

    fn options(&self) -> &VoicingOptions {
        self.engine.options()
    }

    fn begin(&mut self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Result<(), ModelError> {
        self.engine.begin(prompt, guidance, most_tokens)
    }

    fn token(&mut self) -> Result<SpokenToken, ModelError> {
        self.engine.token()
    }

    fn tokens(&self) -> usize {
        self.engine.tokens()
    }

    fn audio_tokens(&self) -> usize {
        self.engine.audio_tokens()
    }

    fn audio(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        self.engine.audio(tokens)
    }

    fn latents(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError> {
        self.engine.latents(tokens)
    }

    fn decode(&mut self, latents: &[f32]) -> Result<Vec<f32>, ModelError> {
        self.engine.decode(latents)
    }

    fn encode(&mut self, samples: &[f32]) -> Result<[Vec<f32>; 2], ModelError> {
        self.engine.encode(samples)
    }

    fn logits(&mut self) -> Result<Vec<f32>, ModelError> {
        self.engine.logits()
    }

    fn hidden(&mut self) -> Result<[Vec<f32>; 2], ModelError> {
        self.engine.hidden()
    }

    fn semantic(&mut self) -> Result<Vec<f32>, ModelError> {
        self.engine.semantic()
    }

    fn offloading(&self) -> Option<Offloading> {
        self.engine.offloading()
    }

    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError> {
        self.engine.layer_visits()
    }

    fn wait(&mut self) -> Result<(), ModelError> {
        self.engine.wait()
    }

    fn reset(&mut self) -> Result<(), ModelError> {
        self.engine.reset()
    }
}
