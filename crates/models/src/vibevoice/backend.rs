//! What VibeVoice needs of a device.

use std::ops::Range;

use super::{ConnectorOps, DiffusionOps, Engine, Guidance, Kinds, Solver, VibeVoiceConfig};
use crate::{LayerVisit, ModelError, Offloading, Replay};

/// Which of the two streams of the language model is stepped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The stream that has the script.
    Positive,
    /// The stream that has none.
    Negative,
    /// Both, as one batch.
    Both,
}

/// A part of a token, which a device may replay as a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    Positive,
    Negative,
    /// Both streams as one batch.
    Both,
    Diffusion,
    Decode,
    Encode,
    Connect,
}

impl Part {
    /// All parts, in order.
    pub const ALL: [Self; 7] =
        [Self::Positive, Self::Negative, Self::Both, Self::Diffusion, Self::Decode, Self::Encode, Self::Connect];

    /// The stream that it steps.
    pub fn side(self) -> Option<Side> {
        match self {
            Self::Positive => Some(Side::Positive),
            Self::Negative => Some(Side::Negative),
            Self::Both => Some(Side::Both),
            _ => None,
        }
    }

    /// Its stage.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Positive => "transformer_positive",
            Self::Negative => "transformer_negative",
            Self::Both => "transformer",
            Self::Diffusion => "diffusion",
            Self::Decode => "audio_decode",
            Self::Encode => "semantic_encode",
            Self::Connect => "connect",
        }
    }
}

/// A device: the operations of all parts, the language model, and what is read back.
///
/// A device holds what goes from part to part: the row that the language model runs next, the hidden states of both streams,
/// the latent, the samples and the semantic encoding.
pub trait Backend: DiffusionOps + ConnectorOps + Kinds<Number = f32> {
    /// Runs a part. A device may replay it as a graph; operation by operation is the reference.
    fn launch(engine: &mut Engine<Self>, part: Part) -> Result<(), ModelError> {
        engine.run_part(part)
    }

    /// Begins a generation of at most this many tokens: the noise, and the time embeddings of the solver's steps.
    fn begin_diffusion(
        engine: &mut Engine<Self>,
        guidance: &Guidance,
        solver: &Solver,
        tokens: usize,
    ) -> Result<(), ModelError>;

    /// Selects the latent that the diffusion makes.
    fn begin_latent(&mut self, audio: usize) -> Result<(), ModelError>;

    /// Sets the position of a stream's next row.
    fn place(&mut self, side: Side, position: usize) -> Result<(), ModelError>;

    /// Runs the offloaded layers of a step where they are not part of [`Backend::step`]; returns the number of the pass.
    fn begin_pass(&mut self, side: Side) -> Result<Option<u64>, ModelError> {
        let _ = side;
        Ok(None)
    }

    /// Runs a step of the language model. The positive stream samples a token.
    fn step(&mut self, side: Side) -> Result<(), ModelError>;

    /// Puts the samples of the acoustic decoder behind those before them and into the semantic encoder.
    fn take_samples(&mut self, decoder: &mut Self::Flow, semantic: &mut Self::Flow) -> Result<(), ModelError>;

    /// Makes the embedding of a token the next row.
    fn take_row(&mut self, id: u32) -> Result<(), ModelError>;

    /// Runs a prompt, in which the rows of voices take the place of tokens of audio.
    fn prefill(&mut self, config: &VibeVoiceConfig, ids: &[u32], voices: &[Self::Voice]) -> Result<(), ModelError>;

    /// The token that was sampled last, as an index of the ids that may be. Waits for the device.
    fn choice(&mut self) -> Result<usize, ModelError>;

    /// The logits of the positive stream. Waits for the device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// The normed hidden state of a stream: the positive one, then the negative one. Waits for the device.
    fn hidden(&mut self, stream: usize) -> Result<Vec<f32>, ModelError>;

    /// Some numbers of all latents. Waits for the device.
    fn latents(&mut self, range: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// Some of all samples. Waits for the device.
    fn samples(&mut self, range: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// The last semantic encoding. Waits for the device.
    fn semantic(&mut self, config: &VibeVoiceConfig, flow: &Self::Flow) -> Result<Vec<f32>, ModelError>;

    /// How layers are offloaded.
    fn offloading(&self) -> Option<Offloading>;

    /// The finished visits of offloaded layers since the last call.
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;

    /// Whether parts are replayed as graphs.
    fn replay(&self) -> Replay {
        Replay::Launches
    }

    /// The milliseconds of each part: the mean of this many replays. Empty where parts are not launched.
    fn part_times(engine: &mut Engine<Self>, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError> {
        let _ = (engine, times);
        Ok(Vec::new())
    }

    /// Forgets the last generation. What the host reads must have arrived before it is read again.
    fn reset(&mut self) -> Result<(), ModelError> {
        self.wait()
    }

    /// Waits for the device.
    fn wait(&mut self) -> Result<(), ModelError> {
        Ok(())
    }
}
