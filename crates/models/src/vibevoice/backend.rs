//! The operations of VibeVoice on a device.

use std::ops::Range;

use super::{DiffusionOps, Engine, Guidance, VibeVoiceConfig, tensors::Connector};
use crate::{Done, LayerVisit, ModelError, Offloading, Replay, words::words};

/// The epsilon of the norms of connectors, as in the published classes.
pub const CONNECTOR_EPS: f32 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Positive,
    Negative,
    Both,
}

words! {
    /// A part of a token that may be replayed as a graph.
    pub enum Part {
        Positive = "transformer_positive",
        Negative = "transformer_negative",
        Both = "transformer",
        Diffusion = "diffusion",
        Decode = "audio_decode",
        Encode = "semantic_encode",
        Connect = "connect",
    }
}

impl Part {
    pub fn of_step(side: Side) -> Self {
        Self::ALL[side as usize]
    }

    /// The streams of a step of the language model.
    pub fn side(self) -> Option<Side> {
        [Side::Positive, Side::Negative, Side::Both].get(self as usize).copied()
    }
}

pub enum Read<'a, B: Backend> {
    Hidden,
    Logits,
    Latents,
    Samples,
    Semantic(&'a B::Flow),
}

/// The operations of all parts on a device. It holds what parts pass on: the next input row of the language model, the
/// hidden states of both streams, the latent, the samples and the semantic encoding.
pub trait Backend: DiffusionOps {
    type Voice;

    /// Runs a part, or replays it as a graph.
    fn launch(engine: &mut Engine<Self>, part: Part) -> Done {
        engine.run_part(part)
    }

    /// The number of the part's next replay, if its stages are recorded.
    fn replay_number(&mut self, _: Part) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// Prepares the noise of at most this many tokens, and the time embeddings of the solver's steps.
    fn begin_diffusion(engine: &mut Engine<Self>, guidance: &Guidance, tokens: usize) -> Done;

    /// Selects the latent to generate.
    fn begin_latent(&mut self, audio: usize) -> Done;

    /// Sets the position of a stream's next row.
    fn place(&mut self, side: Side, position: usize) -> Done;

    /// Runs the offloaded layers of a step unless [`Backend::step`] does. Returns the number of the pass.
    fn begin_pass(&mut self, _: Side) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// Runs a step of the language model. The positive stream samples a token.
    fn step(&mut self, side: Side) -> Done;

    /// Appends the samples of the acoustic decoder to the audio, and passes them to the semantic encoder.
    fn take_samples(&mut self, decoder: &mut Self::Flow, semantic: &mut Self::Flow) -> Done;

    fn voice(&mut self, latents: &[f32], connector: &Connector<Self>) -> Result<Self::Voice, ModelError>;

    /// The next input row: the acoustic connector of the latent plus the semantic connector of its encoding.
    fn connect(&mut self, semantic: &Self::Flow, connectors: [&Connector<Self>; 2]) -> Done;

    /// The next input row: the embedding of a token.
    fn take_row(&mut self, id: u32) -> Done;

    /// Runs a prompt, with the rows of voices in place of the tokens of audio.
    fn prefill(&mut self, config: &VibeVoiceConfig, ids: &[u32], voices: &[Self::Voice]) -> Done;

    /// The last sampled token, as an index of the special ids. Waits for the device.
    fn choice(&mut self) -> Result<usize, ModelError>;

    fn read(&mut self, what: Read<'_, Self>, range: Range<usize>) -> Result<Vec<f32>, ModelError>;
    fn offloading(&self) -> Option<Offloading>;
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;

    fn replay(&self) -> Replay {
        Replay::Launches
    }

    /// Milliseconds per part, the mean of this many replays. Empty if parts are not replayed.
    fn part_times(_: &mut Engine<Self>, _: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        Ok(Vec::new())
    }

    /// Forgets the last generation, once pending reads have arrived.
    fn reset(&mut self) -> Done {
        self.wait()
    }

    fn wait(&mut self) -> Done {
        Ok(())
    }
}
