//! From text to audio, with the time that each part took.

use std::{ops::ControlFlow, time::Instant};

use laptime_probe::{lap, stage};

use super::{Audio, Frame, Prompt, QwenTts, Sampling, TextFeed};
use crate::{ModelError, Tokenizer};

/// Frames at most, as the official package has it.
const USUAL_FRAMES: usize = 2048;

/// How speech is made.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechOptions {
    /// How codes are chosen.
    pub sampling: Sampling,
    /// Frames at most; exactly as many if [`Sampling::is_endless`].
    pub most_frames: usize,
    /// When the text enters.
    pub feed: TextFeed,
}

impl Default for SpeechOptions {
    fn default() -> Self {
        Self { sampling: Sampling::default(), most_frames: USUAL_FRAMES, feed: TextFeed::default() }
    }
}

/// How long the parts of a synthesis took, each waited for at its end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timing {
    /// The prompt, until the first code was chosen.
    pub prefill_ms: f64,
    /// All frames.
    pub generation_ms: f64,
    /// How many there are.
    pub generation_frames: usize,
    /// Audio of them.
    pub decode_ms: f64,
}

/// A model with a tokenizer: text in, audio out.
///
/// ```
/// use laptime_models::{
///     Dtype, cpu,
///     tts::{Sampling, TtsOptions, SpeechOptions, Synthesizer, TtsConfig, TtsWeights},
/// };
///
/// let config = TtsConfig::from_preset("tiny")?;
/// let tokenizer = config.tokenizer(None)?;
/// let model = cpu::qwen_tts(config, &TtsWeights::synthetic(1), TtsOptions::new(Dtype::F32, 64), 1)?;
/// // Synthetic weights know no end: five frames are made, which are 0.4 s.
/// let sampling = Sampling { is_endless: true, ..Sampling::default() };
/// let options = SpeechOptions { sampling, most_frames: 5, ..SpeechOptions::default() };
///
/// let mut synthesizer = Synthesizer::new(model, tokenizer, options);
/// let (audio, timing) = synthesizer.synthesize_with_timing("Hello.", "ryan", "english", None)?;
/// assert_eq!((audio.seconds(), timing.generation_frames), (0.4, 5));
/// let total_ms = timing.prefill_ms + timing.generation_ms + timing.decode_ms;
/// assert!(total_ms > 0.0);
/// # Ok::<(), laptime_models::ModelError>(())
/// ```
pub struct Synthesizer<'a> {
    model: Box<dyn QwenTts + 'a>,
    tokenizer: Tokenizer,
    usual: SpeechOptions,
}

impl<'a> Synthesizer<'a> {
    /// A model with a tokenizer, and how speech is made unless asked otherwise.
    pub fn new(model: Box<dyn QwenTts + 'a>, tokenizer: Tokenizer, usual: SpeechOptions) -> Self {
        Self { model, tokenizer, usual }
    }

    /// The model.
    pub fn model(&mut self) -> &mut dyn QwenTts {
        &mut *self.model
    }

    /// The prompt for a text; an empty speaker is none.
    pub fn prompt(&self, text: &str, speaker: &str, language: &str, feed: TextFeed) -> Result<Prompt, ModelError> {
        Prompt::new(self.model.config(), &self.tokenizer, text, Some(speaker), language, feed)
    }

    /// Makes audio of a text, and tells how long each part took. Nothing needs to record for it. An empty speaker leaves
    /// the voice to the model; `auto` leaves the language to it.
    pub fn synthesize_with_timing(
        &mut self,
        text: &str,
        speaker: &str,
        language: &str,
        options: Option<&SpeechOptions>,
    ) -> Result<(Audio, Timing), ModelError> {
        let options = *options.unwrap_or(&self.usual);
        let prompt = self.prompt(text, speaker, language, options.feed)?;
        let rate = self.model.config().codec.sample_rate;
        let lane = self.model.options().marks.lane.clone();
        let _stage = stage!("synthesize", on = lane);
        self.model.wait()?;
        let started = Instant::now();
        self.model.begin(&prompt, &options.sampling, options.most_frames)?;
        self.model.wait()?;
        let prefilled = Instant::now();
        let frames = {
            let _stage = stage!("generate_frames", on = lane);
            while !self.frame()?.is_end {}
            self.model.wait()?;
            self.model.frames()
        };
        let generated = Instant::now();
        let samples = self.model.decode(0..frames)?;
        let timing = Timing {
            prefill_ms: milliseconds(started, prefilled),
            generation_ms: milliseconds(prefilled, generated),
            generation_frames: frames,
            decode_ms: milliseconds(generated, Instant::now()),
        };
        Ok((Audio { samples, rate }, timing))
    }

    /// Makes audio of a text and hands it on, this many frames at a time, as soon as they are made. Whoever takes it may
    /// break off. Says how many frames were made.
    pub fn stream(
        &mut self,
        prompt: &Prompt,
        options: &SpeechOptions,
        chunk: usize,
        take: &mut dyn FnMut(&[f32]) -> ControlFlow<()>,
    ) -> Result<usize, ModelError> {
        if chunk == 0 {
            return Err(ModelError::Refused("a chunk has at least one frame".to_owned()));
        }
        let lane = self.model.options().marks.lane.clone();
        let _stage = stage!("synthesize", on = lane);
        self.model.begin(prompt, &options.sampling, options.most_frames)?;
        let _stage = stage!("generate_frames", on = lane);
        let mut taken = 0;
        loop {
            let frame = self.frame()?;
            let made = frame.index + 1;
            if made - taken < chunk && !frame.is_end {
                continue;
            }
            let samples = self.model.decode(taken..made)?;
            taken = made;
            if take(&samples).is_break() || frame.is_end {
                return Ok(made);
            }
        }
    }

    /// Makes the next frame, as a lap.
    fn frame(&mut self) -> Result<Frame, ModelError> {
        let _lap = lap!("frame", on = self.model.options().marks.lane, frame = self.model.frames());
        self.model.frame()
    }
}

fn milliseconds(from: Instant, to: Instant) -> f64 {
    to.duration_since(from).as_secs_f64() * 1e3
}
