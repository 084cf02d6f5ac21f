//! The speech model on a GPU: every part of a token is a graph, and a token is chosen on the device, so that the host reads
//! one word a token.

mod connect;
mod diffusion;
mod engine;
mod language;
mod parts;
mod plan;
mod prompting;
mod room;
mod tokenizer;
mod tokenizer_weights;
mod weights;

use std::ops::Range;

use half::{bf16, f16};
use laptime_cuda::Device;

use self::engine::Engine;
pub use self::room::needed_speech_bytes;
use crate::{
    Attention, Dtype, GraphMode, LayerVisit, ModelError, Offloading, Options, Replay, Room, StreamMode,
    speech::{Guidance, SpeechConfig, SpeechWeights, SpokenToken, VoicePrompt, Voicing, VoicingOptions},
};

/// A speech model on a GPU.
pub struct GpuVoicing<'a> {
    /// One for each number type.
    engine: Box<dyn Replayed + 'a>,
}

/// What an engine of any number type can be asked beside.
trait Replayed: Voicing {
    fn replay(&self) -> Replay;
    fn part_times(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError>;
}

impl<'a> GpuVoicing<'a> {
    /// Puts a model's weights on a device. Those by formula are made there.
    pub fn new(
        device: &'a Device,
        config: SpeechConfig,
        weights: &SpeechWeights,
        options: VoicingOptions,
    ) -> Result<Self, ModelError> {
        Self::with((device, None), config, weights, options)
    }

    /// The same where layers do not all stay. Their copies are put on the stream of `copies`, which is the same device
    /// with streams of its own ([`Device::with_new_streams`]), and whose lane is that of the offloading.
    pub fn offloaded(
        device: &'a Device,
        copies: &'a Device,
        config: SpeechConfig,
        weights: &SpeechWeights,
        options: VoicingOptions,
    ) -> Result<Self, ModelError> {
        Self::with((device, Some(copies)), config, weights, options)
    }

    fn with(
        device: (&'a Device, Option<&'a Device>),
        config: SpeechConfig,
        weights: &SpeechWeights,
        options: VoicingOptions,
    ) -> Result<Self, ModelError> {
        config.check()?;
        let engine: Box<dyn Replayed + 'a> = match options.dtype {
            Dtype::F32 => Box::new(Engine::<f32>::new(device, config, weights, options)?),
            Dtype::Bf16 => Box::new(Engine::<bf16>::new(device, config, weights, options)?),
            Dtype::F16 => Box::new(Engine::<f16>::new(device, config, weights, options)?),
        };
        Ok(Self { engine })
    }

    /// Whether tokens are replayed as graphs, and if not, why.
    pub fn replay(&self) -> Replay {
        self.engine.replay()
    }

    /// What each part of a token takes where the last one was, in milliseconds: the mean of so many replays one behind the
    /// other. What is being said is forgotten.
    pub fn part_times(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        self.engine.part_times(times)
    }
}

impl Voicing for GpuVoicing<'_> {
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

/// Whether both streams run as one batch: where layers are streamed so.
fn batches(options: &VoicingOptions) -> bool {
    options.offload.as_ref().is_some_and(|offload| offload.mode == StreamMode::Batched)
}

/// How the language model is made ready.
fn decoder_options(options: &VoicingOptions) -> Options {
    Options {
        dtype: options.dtype,
        attention: Attention::Dense,
        kept: None,
        batch: 1,
        room: Room::Static(options.room),
        graph: GraphMode::Off,
        marks: options.marks.clone(),
        offload: None,
    }
}
