//! What VibeVoice needs of a device.

use std::ops::Range;

use super::{DiffusionOps, Engine, Guidance, VibeVoiceConfig, tensors::Connector};
use crate::{Done, LayerVisit, ModelError, Offloading, Replay};

/// The epsilon of the norms of connectors, as in the published classes.
pub const CONNECTOR_EPS: f32 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    Positive,
    Negative,
    Both,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Step(Side),
    Diffusion,
    Decode,
    Encode,
    Connect,
}

impl Part {
    pub const ALL: [Self; 7] = [
        Self::Step(Side::Positive),
        Self::Step(Side::Negative),
        Self::Step(Side::Both),
        Self::Diffusion,
        Self::Decode,
        Self::Encode,
        Self::Connect,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Step(Side::Positive) => "transformer_positive",
            Self::Step(Side::Negative) => "transformer_negative",
            Self::Step(Side::Both) => "transformer",
            Self::Diffusion => "diffusion",
            Self::Decode => "audio_decode",
            Self::Encode => "semantic_encode",
            Self::Connect => "connect",
        }
    }
}

pub enum Read<'a, B: Backend> {
    Hidden,
    Logits,
    Latents,
    Samples,
    Semantic(&'a B::Flow),
}

/// A device: the operations of all parts, the language model, and what is read back.
///
/// A device holds what goes from part to part: the row that the language model runs next, the hidden states of both streams,
/// the latent, the samples and the semantic encoding.
pub trait Backend: DiffusionOps {
    type Voice;

    /// Runs a part. A device may replay it as a graph; operation by operation is the reference.
    fn launch(engine: &mut Engine<Self>, part: Part) -> Done {
        engine.run_part(part)
    }

    /// The number of the next replay of a part, for the span around it, if the stages inside it are recorded.
    fn replay_number(&mut self, _: Part) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// Begins a generation of at most this many tokens: the noise, and the time embeddings of the solver's steps.
    fn begin_diffusion(engine: &mut Engine<Self>, guidance: &Guidance, tokens: usize) -> Done;

    /// Selects the latent that the diffusion makes.
    fn begin_latent(&mut self, audio: usize) -> Done;

    /// Sets the position of a stream's next row.
    fn place(&mut self, side: Side, position: usize) -> Done;

    /// Runs the offloaded layers of a step where they are not part of [`Backend::step`]; returns the number of the pass.
    fn begin_pass(&mut self, _: Side) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// Runs a step of the language model. The positive stream samples a token.
    fn step(&mut self, side: Side) -> Done;

    /// Puts the samples of the acoustic decoder behind those before them and into the semantic encoder.
    fn take_samples(&mut self, decoder: &mut Self::Flow, semantic: &mut Self::Flow) -> Done;

    fn voice(&mut self, latents: &[f32], connector: &Connector<Self>) -> Result<Self::Voice, ModelError>;

    /// Makes the next row: the acoustic connector of the last latent, plus the semantic one of its semantic encoding.
    fn connect(&mut self, semantic: &Self::Flow, connectors: [&Connector<Self>; 2]) -> Done;

    fn take_row(&mut self, id: u32) -> Done;

    /// Runs a prompt, in which the rows of voices take the place of tokens of audio.
    fn prefill(&mut self, config: &VibeVoiceConfig, ids: &[u32], voices: &[Self::Voice]) -> Done;

    /// The token that was sampled last, as an index of the ids that may be. Waits for the device.
    fn choice(&mut self) -> Result<usize, ModelError>;

    fn read(&mut self, what: Read<'_, Self>, range: Range<usize>) -> Result<Vec<f32>, ModelError>;
    fn offloading(&self) -> Option<Offloading>;
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;

    fn replay(&self) -> Replay {
        Replay::Launches
    }

    /// The milliseconds of each part: the mean of this many replays. Empty where parts are not launched.
    fn part_times(_: &mut Engine<Self>, _: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        Ok(Vec::new())
    }

    /// Forgets the last generation. What the host reads must have arrived before it is read again.
    fn reset(&mut self) -> Done {
        self.wait()
    }

    fn wait(&mut self) -> Done {
        Ok(())
    }
}
