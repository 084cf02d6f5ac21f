//! A speech model with its weights on a device: what can be asked of it, whatever the device.

use std::ops::Range;

use super::{VibeVoiceConfig, VoicePrompt};
use crate::{
    CacheCapacity, Done, Dtype, GraphMode, LayerVisit, Marks, ModelError, Offload, Offloading, Options, Replay,
    StreamMode, error::ensure, tts::random_bits,
};

/// How a model is made ready.
#[derive(Debug, Clone)]
pub struct VibeVoiceOptions {
    /// Number type of weights, activations and caches.
    pub dtype: Dtype,
    /// The capacity of the cache of the positive stream in positions: those of the prompt, and one a token.
    pub capacity: usize,
    /// The capacity of the cache of the negative stream in positions: one a token.
    pub negative_capacity: usize,
    /// Whether a token is replayed as graphs.
    pub graph: GraphMode,
    /// Which stages are marked, and where.
    pub marks: Marks,
    /// How layers of the language model are offloaded; none if all are resident.
    pub offload: Option<Offload>,
}

impl VibeVoiceOptions {
    /// Options for a dtype, for prompts of this many positions and this many new tokens, with defaults for the rest.
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

    /// Whether both streams run as one batch: where layers are streamed so.
    pub(crate) fn is_batched(&self) -> bool {
        self.offload.as_ref().is_some_and(|offload| offload.mode == StreamMode::Batched)
    }

    pub(crate) fn decoder(&self, capacity: usize) -> Options {
        let (marks, offload) = (self.marks.clone(), self.offload.clone());
        Options { marks, offload, ..Options::new(self.dtype, CacheCapacity::Static(capacity)) }
    }
}

/// How latents are made, and tokens chosen.
#[derive(Debug, Clone, PartialEq)]
pub struct Guidance {
    /// Steps of the solver: 10 or 20, usually.
    pub steps: usize,
    /// How far the positive stream is followed, away from the negative one: 1 is not at all further.
    pub scale: f32,
    /// What the diffusion begins with.
    pub noise: Noise,
    /// Whether the latents of voices are varied, as the published models do.
    pub varies_voices: bool,
    /// Whether every token is one of audio until as many were made as were asked for: synthetic weights know no end.
    pub is_endless: bool,
}

impl Default for Guidance {
    fn default() -> Self {
        Self { steps: 10, scale: 1.3, noise: Noise::Seed(42), varies_voices: true, is_endless: false }
    }
}

/// What the diffusion of a token begins with.
#[derive(Debug, Clone, PartialEq)]
pub enum Noise {
    /// Numbers of a seed and the place of the token.
    Seed(u64),
    /// These numbers, one audio token after another, followed by silence.
    Given(Vec<f32>),
}

/// Places of the noise of voices, far behind those of tokens.
const VOICE_PLACES: u32 = 1 << 31;

impl Guidance {
    /// Refuses what makes no latents.
    pub fn check(&self) -> Done {
        ensure!(self.scale.is_finite(), "`{}` is no scale to follow a stream by", self.scale);
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

    /// Varies the latents of a voice: all by one random size, each number by one of its own.
    pub(crate) fn vary(&self, voice: usize, deviation: f32, latents: &mut [f32]) {
        let Noise::Seed(seed) = self.noise else { return };
        if !self.varies_voices {
            return;
        }
        let noise = normal(seed, VOICE_PLACES.wrapping_add(voice as u32), latents.len() + 1);
        let Some((size, rest)) = noise.split_first() else { return };
        latents.iter_mut().zip(rest).for_each(|(latent, noise)| *latent += deviation * size * noise);
    }
}

/// What is known of a token when it is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpokenToken {
    /// Which one it is, from 0.
    pub index: usize,
    /// What was chosen: one of the model's ids.
    pub id: u32,
    /// Which token of audio it is, if it is one.
    pub audio: Option<usize>,
    /// Whether it is the last: the end was chosen, or as many were made as were asked for.
    pub is_end: bool,
}

/// VibeVoice on a device.
///
/// Stages are marked at every depth: `voice_encode` with `voice`, and `prefill` with `positions`; then, each with `token`,
/// `transformer_positive` (not in the first token: the prompt has run it), and of tokens of audio `transformer_negative`,
/// `diffusion` with `steps`, `audio_decode` and `semantic_encode`. Where both streams are one batch
/// ([`StreamMode::Batched`](crate::StreamMode::Batched)) their pass is `transformer`. Reads from the device are sync points:
/// `read_token` once per token, `read_audio`.
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
/// // Synthetic weights do not decide the end: three tokens are 0.4 s.
/// model.begin(&prompt, &Guidance { is_endless: true, ..Guidance::default() }, 3)?;
/// while !model.token()?.is_end {}
/// assert_eq!(model.audio(0..3)?.len(), 9600);
/// # Ok::<(), laptime_models::ModelError>(())
/// ```
pub trait VibeVoice {
    /// What the model is.
    fn config(&self) -> &VibeVoiceConfig;

    /// How it was prepared.
    fn options(&self) -> &VibeVoiceOptions;

    /// Encodes the voices of a prompt and runs it, for at most this many tokens. The last generation is forgotten. Refuses
    /// what [`VoicePrompt::check`] does.
    fn begin(&mut self, prompt: &VoicePrompt, guidance: &Guidance, most_tokens: usize) -> Done;

    /// Generates the next token: the positive stream continues, a token is sampled, and for one of audio the samples are
    /// made and encoded. Refuses to continue behind the last token, or behind one that failed.
    fn token(&mut self) -> Result<SpokenToken, ModelError>;

    /// Tokens since [`VibeVoice::begin`].
    fn tokens(&self) -> usize;

    /// How many of them are of audio.
    fn audio_tokens(&self) -> usize;

    /// The samples of some tokens of audio, between -1 and 1. Waits for the device.
    fn audio(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// The latents of some tokens of audio, as the diffusion head left them. Waits for the device.
    fn latents(&mut self, tokens: Range<usize>) -> Result<Vec<f32>, ModelError>;

    /// The samples of latents of the tokenizer, from silence on. The generation is not touched.
    fn decode(&mut self, latents: &[f32]) -> Result<Vec<f32>, ModelError>;

    /// What the acoustic and the semantic encoder make of samples, from silence on. The generation is not touched.
    fn encode(&mut self, samples: &[f32]) -> Result<[Vec<f32>; 2], ModelError>;

    /// The logits of [`SpecialIds::all`](super::SpecialIds::all) at the last position of the positive stream. Waits for the
    /// device.
    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;

    /// The normed hidden states of both streams at the last position of each: empty where it ran none. Waits for the device.
    fn hidden(&mut self) -> Result<[Vec<f32>; 2], ModelError>;

    /// The semantic encoding of the last token of audio. Waits for the device.
    fn semantic(&mut self) -> Result<Vec<f32>, ModelError>;

    /// How layers are offloaded; none if all are resident.
    fn offloading(&self) -> Option<Offloading>;

    /// The finished visits of offloaded layers since the last call, in order. Does not wait for the device.
    fn layer_visits(&mut self) -> Result<Vec<LayerVisit>, ModelError>;

    /// Whether tokens are replayed as graphs, and if not, why.
    fn replay(&self) -> Replay;

    /// The milliseconds of each part of a token at the last position: the mean of this many replays. Empty on a device that
    /// does not launch parts. Forgets the generation.
    fn part_times(&mut self, times: usize) -> Result<Vec<(&'static str, f64)>, ModelError>;

    /// Waits until the device has done everything.
    fn wait(&mut self) -> Done;

    /// Forgets the prompt and all tokens.
    fn reset(&mut self) -> Done;
}

/// This many numbers as they are drawn from a normal distribution, for one place: pairs of even numbers turned into pairs of
/// normal ones (Box and Muller), in 64 bits.
pub fn normal(seed: u64, place: u32, count: usize) -> Vec<f32> {
    let pairs = (0..count.div_ceil(2)).flat_map(|pair| {
        let even = |which: u32| (f64::from(random_bits(seed, place, 2 * pair as u32 + which)) + 0.5) / 2.0_f64.powi(32);
        let (length, angle) = ((-2.0 * even(0).ln()).sqrt(), std::f64::consts::TAU * even(1));
        [(length * angle.cos()) as f32, (length * angle.sin()) as f32]
    });
    pairs.take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn noise_is_given_or_of_a_seed() {
        let given = Guidance { noise: Noise::Given(vec![1.0, 2.0, 3.0]), ..Guidance::default() };
        assert_eq!((given.noise_of(0, 2), given.noise_of(1, 2)), (vec![1.0, 2.0], vec![3.0, 0.0]));
        let drawn = Guidance::default();
        assert_eq!(drawn.noise_of(3, 4), normal(42, 3, 4));
        assert!(Guidance { scale: f32::NAN, ..drawn }.check().is_err());
    }

    #[test]
    fn voices_are_varied_only_where_asked() {
        let mut latents = [0.0; 64];
        Guidance { varies_voices: false, ..Guidance::default() }.vary(0, 0.5, &mut latents);
        assert_eq!(latents, [0.0; 64]);
        Guidance::default().vary(0, 0.5, &mut latents);
        let mut other = [0.0; 64];
        Guidance::default().vary(1, 0.5, &mut other);
        assert!(latents.iter().all(|latent| *latent != 0.0) && latents != other);
    }

    #[test]
    fn numbers_are_normal_and_those_of_their_place() {
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
