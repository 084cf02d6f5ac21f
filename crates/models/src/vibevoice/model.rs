//! VibeVoice on a device, and the settings of a generation.

use std::ops::Range;

use super::{VibeVoiceConfig, VoicePrompt};
use crate::{
    CacheCapacity, Done, Dtype, GraphMode, LayerVisit, Marks, ModelError, Offload, Offloading, Options, Replay,
    StreamMode, error::ensure, tts::random_bits,
};

/// How a model is loaded.
#[derive(Debug, Clone)]
pub struct VibeVoiceOptions {
    /// Dtype of weights, activations and caches.
    pub dtype: Dtype,
    /// Capacity of the positive stream's cache: the positions of the prompt, and one per token.
    pub capacity: usize,
    /// Capacity of the negative stream's cache: one position per token.
    pub negative_capacity: usize,
    /// Whether tokens are replayed as graphs.
    pub graph: GraphMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
    /// How layers of the language model are offloaded, if some are.
    pub offload: Option<Offload>,
}

impl VibeVoiceOptions {
    /// Options for a dtype, prompts of this many positions and this many new tokens.
    pub fn new(dtype: Dtype, positions: usize, tokens: usize) -> Self {
        let capacity = positions.saturating_add(tokens);
        Self {
            dtype,
            capacity,
            negative_capacity: tokens,
            graph: GraphMode::default(),
            marks: Marks::default(),
            offload: None,
        }
    }

    /// Whether both streams run as one batch.
    pub(crate) fn is_batched(&self) -> bool {
        self.offload.as_ref().is_some_and(|offload| offload.mode == StreamMode::Batched)
    }

    pub(crate) fn decoder(&self, capacity: usize) -> Options {
        let (marks, offload) = (self.marks.clone(), self.offload.clone());
        Options { marks, offload, ..Options::new(self.dtype, CacheCapacity::Static(capacity)) }
    }
}

/// Settings of the diffusion and of sampling.
#[derive(Debug, Clone, PartialEq)]
pub struct Guidance {
    /// Solver steps, usually 10 or 20.
    pub steps: usize,
    /// Classifier-free guidance scale; 1 ignores the negative stream.
    pub scale: f32,
    /// The initial noise.
    pub noise: Noise,
    /// Whether noise is added to the latents of voices, as in the published models.
    pub varies_voices: bool,
    /// Whether all tokens are of audio, up to the maximum: synthetic weights do not predict the end.
    pub is_endless: bool,
}

impl Default for Guidance {
    fn default() -> Self {
        Self { steps: 10, scale: 1.3, noise: Noise::Seed(42), varies_voices: true, is_endless: false }
    }
}

/// The initial noise of the diffusion.
#[derive(Debug, Clone, PartialEq)]
pub enum Noise {
    /// From a seed and the index of the token.
    Seed(u64),
    /// These values, one token of audio after another, then zeros.
    Given(Vec<f32>),
}

/// The noise of voices has indices far above those of tokens.
const FIRST_VOICE: u32 = 1 << 31;

impl Guidance {
    /// Refuses a scale that is not finite.
    pub fn check(&self) -> Done {
        ensure!(self.scale.is_finite(), "the guidance scale is {}, expected a finite number", self.scale);
        Ok(())
    }

    pub(crate) fn noise_of(&self, token: usize, latent: usize) -> Vec<f32> {
        match &self.noise {
            Noise::Seed(seed) => normal(*seed, token as u32, latent),
            Noise::Given(numbers) => {
                let from = token.saturating_mul(latent);
                (0..latent).map(|at| numbers.get(from.saturating_add(at)).copied().unwrap_or_default()).collect()
            }
        }
    }

    /// Adds noise to the latents of a voice, with one random amplitude for all.
    pub(crate) fn vary(&self, voice: usize, deviation: f32, latents: &mut [f32]) {
        let Noise::Seed(seed) = self.noise else { return };
        if !self.varies_voices {
            return;
        }
        let noise = normal(seed, FIRST_VOICE.wrapping_add(voice as u32), latents.len() + 1);
        let Some((amplitude, rest)) = noise.split_first() else { return };
        latents.iter_mut().zip(rest).for_each(|(latent, noise)| *latent += deviation * amplitude * noise);
    }
}

/// A generated token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpokenToken {
    /// Its index, from 0.
    pub index: usize,
    /// The sampled special id.
    pub id: u32,
    /// Its index among the tokens of audio, if it is one.
    pub audio: Option<usize>,
    /// Whether it is the last: the end was sampled, or this is the maximum.
    pub is_end: bool,
}

/// VibeVoice on a device.
///
/// Stages are marked at every depth: `voice_encode` with `voice`, and `prefill` with `positions`; then, each with `token`,
/// `transformer_positive` (except in the first token, which the prompt includes), and for tokens of audio
/// `transformer_negative`, `diffusion` with `steps`, `audio_decode` and `semantic_encode`. If both streams are one batch
/// ([`StreamMode::Batched`](crate::StreamMode::Batched)), their pass is `transformer`. Reads from the device are sync
/// points: `read_token` once per token, `read_audio`.
///
/// ```
/// use laptime_models::{
///     Dtype, cpu,
///     vibevoice::{Guidance, Script, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, Voice, VoicePrompt},
/// };
///
/// let config = VibeVoiceConfig::from_preset("tiny")?;
/// let voices = [Voice::synthetic(&config, 1, 0)];
/// let script = Script::parse("Speaker 1: Hello.")?;
/// let prompt = VoicePrompt::new(&config, &config.tokenizer(None)?, &script, &voices)?;
/// let options = VibeVoiceOptions::new(Dtype::F32, prompt.ids.len(), 3);
/// let mut model = cpu::vibevoice(config, &VibeVoiceWeights::synthetic(1), options, 1)?;
///
/// // Synthetic weights do not predict the end, so ask for exactly three tokens: 0.4 s.
/// model.begin(&prompt, &Guidance { is_endless: true, ..Guidance::default() }, 3)?;
/// while !model.token()?.is_end {}
/// assert_eq!(model.audio(0..3)?.len(), 9600);
/// # Ok::<(), laptime_models::ModelError>(())
/// ```
pub trait VibeVoice {
    /// The configuration.
    fn config(&self) -> &VibeVoiceConfig;

    /// The options it was loaded with.
    fn options(&self) -> &VibeVoiceOptions;

    /// Encodes the voices of a prompt and runs it, for at most this many tokens. Forgets the last generation.
    fn begin(&mut self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Done;

    /// Generates the next token, and its samples if it is one of audio. Fails after the last token and after an error.
    fn token(&mut self) -> Result<SpokenToken, ModelError>;

    /// Tokens of audio since [`VibeVoice::begin`].
    fn audio_tokens(&self) -> usize;

    /// The samples of some tokens of audio, between -1 and 1. Waits for the device.
    fn audio(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// The latents of some tokens of audio. Waits for the device.
    fn latents(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// Decodes latents after silence. The generation is not changed.
    fn decode(&mut self, latents: &[f32]) -> Result<Vec<f32>, ModelError>;

    /// The acoustic and semantic encodings of samples after silence. The generation is not changed.
    fn encode(&mut self, samples: &[f32]) -> Result<[Vec<f32>; 2], ModelError>;

    /// The logits of [`SpecialIds::all`](super::SpecialIds::all) at the positive stream's last position. Waits for the device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// The normed hidden states of both streams at their last positions; empty without one. Waits for the device.
    fn hidden(&mut self) -> Result<[Vec<f32>; 2], ModelError>;

    /// The semantic encoding of the last token of audio. Waits for the device.
    fn semantic(&mut self) -> Result<Vec<f32>, ModelError>;

    /// How layers are offloaded, if some are.
    fn offloading(&self) -> Option<Offloading>;

    /// The finished visits of offloaded layers since the last call, in order. Does not wait for the device.
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;

    /// Whether tokens are replayed as graphs, and if not, why not.
    fn replay(&self) -> Replay;

    /// Milliseconds per part of a token at the last position, the mean of this many replays. Empty on the CPU. Forgets the
    /// generation.
    fn part_times(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError>;

    /// Waits for the device.
    fn wait(&mut self) -> Done;

    /// Forgets the prompt and all tokens.
    fn reset(&mut self) -> Done;
}

/// This many normally distributed numbers for an index, by the Box-Muller transform in 64 bits.
pub fn normal(seed: u64, index: u32, count: usize) -> Vec<f32> {
    let pairs = (0..count.div_ceil(2)).flat_map(|pair| {
        let uniform =
            |which: u32| (f64::from(random_bits(seed, index, 2 * pair as u32 + which)) + 0.5) / 2.0_f64.powi(32);
        let (length, angle) = ((-2.0 * uniform(0).ln()).sqrt(), std::f64::consts::TAU * uniform(1));
        [(length * angle.cos()) as f32, (length * angle.sin()) as f32]
    });
    pairs.take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_given_or_from_a_seed() {
        let given = Guidance { noise: Noise::Given(vec![1.0, 2.0, 3.0]), ..Guidance::default() };
        assert_eq!((given.noise_of(0, 2), given.noise_of(1, 2)), (vec![1.0, 2.0], vec![3.0, 0.0]));
        let drawn = Guidance::default();
        assert_eq!(drawn.noise_of(3, 4), normal(42, 3, 4));
        assert!(Guidance { scale: f32::NAN, ..drawn }.check().is_err());
    }

    #[test]
    fn voices_are_varied_only_if_asked() {
        let mut latents = [0.0; 64];
        Guidance { varies_voices: false, ..Guidance::default() }.vary(0, 0.5, &mut latents);
        assert_eq!(latents, [0.0; 64]);
        Guidance::default().vary(0, 0.5, &mut latents);
        let mut other = [0.0; 64];
        Guidance::default().vary(1, 0.5, &mut other);
        assert!(latents.iter().all(|latent| *latent != 0.0) && latents != other);
    }

    #[test]
    fn numbers_are_normal_and_depend_on_seed_and_index() {
        let drawn: Vec<f64> = (0..500).flat_map(|place| normal(7, place, 63)).map(f64::from).collect();
        let count = drawn.len() as f64;
        let moment = |power: i32| drawn.iter().map(|number| number.powi(power)).sum::<f64>() / count;
        assert!(moment(1).abs() < 0.02 && (moment(2) - 1.0).abs() < 0.03, "{} {}", moment(1), moment(2));
        assert!((moment(4) - 3.0).abs() < 0.2, "{}", moment(4));
        assert_eq!(normal(7, 3, 5), normal(7, 3, 64)[..5]);
        assert_ne!(normal(7, 3, 5), normal(7, 4, 5));
        assert_ne!(normal(7, 3, 5), normal(8, 3, 5));
    }
}
