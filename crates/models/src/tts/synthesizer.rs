//! From text to audio, with the time of each part.

use std::{ops::ControlFlow, time::Instant};

use laptime_probe::{lap, stage};

use super::{Audio, Prompt, QwenTts, Sampling, TextFeed};
use crate::{ModelError, Tokenizer, error::ensure, marks::tool_range};

const MOST_FRAMES: usize = 2048;

/// Settings of a synthesis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct SpeechOptions {
    /// Sampling settings.
    pub sampling: Sampling,
    /// The maximum number of frames; the exact number if [`Sampling::is_endless`].
    pub most_frames: usize,
    /// When the talker gets the text.
    pub feed: TextFeed,
}

impl Default for SpeechOptions {
    fn default() -> Self {
        Self { sampling: Sampling::default(), most_frames: MOST_FRAMES, feed: TextFeed::default() }
    }
}

/// The times of a synthesis. The device is synchronised after each part.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Timing {
    /// Until the first code was sampled.
    pub prefill_ms: f64,
    /// All frames.
    pub generation_ms: f64,
    /// The number of frames.
    pub generation_frames: usize,
    /// The codec decoder.
    pub decode_ms: f64,
}

/// When the audio of the first frames was ready.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ready {
    /// The number of frames.
    pub frames: usize,
    /// Nanoseconds since the start.
    pub at_ns: u64,
}

/// The result of a synthesis, with times in nanoseconds.
#[derive(Debug, Clone, Default)]
pub struct Spoken {
    /// The audio.
    pub samples: Vec<f32>,
    /// Until the first code was sampled.
    pub prefill_ns: u64,
    /// Each frame, without its audio.
    pub frames_ns: Vec<u64>,
    /// All frames, without their audio.
    pub generation_ns: u64,
    /// The codec decoder.
    pub decode_ns: u64,
    /// When chunks were ready, if the audio was streamed.
    pub ready: Vec<Ready>,
}

/// Receives audio as soon as it is decoded. `Break` stops the generation.
pub type Listener<'a> = &'a mut dyn FnMut(&[f32]) -> ControlFlow<()>;

/// Generates the audio of a prompt, decoded at once or in chunks of this many frames. `now` is a clock in nanoseconds.
pub fn speak(
    model: &mut QwenTts<'_>,
    prompt: &Prompt,
    options: &SpeechOptions,
    chunk: Option<usize>,
    now: &dyn Fn() -> u64,
    listener: Listener<'_>,
) -> Result<Spoken, ModelError> {
    ensure!(chunk != Some(0), "a chunk needs at least one frame");
    let (lane, mut spoken, start) = (model.options().marks.lane.clone(), Spoken::default(), now());
    let _range = tool_range("synthesize");
    let _stage = stage!("synthesize", on = lane);
    model.begin(prompt, &options.sampling, options.most_frames)?;
    model.wait()?;
    let begun = now();
    spoken.prefill_ns = begun.saturating_sub(start);
    {
        let _range = tool_range("generate_frames");
        let _stage = stage!("generate_frames", on = lane);
        let (mut decoded, mut is_over) = (0, false);
        while !is_over {
            let (frame, took) = timed(now, || {
                let _range = tool_range("frame");
                let _lap = lap!("frame", on = lane, frame = model.frames());
                model.frame()
            })?;
            spoken.frames_ns.push(took);
            let frames = frame.index + 1;
            is_over = frame.is_end;
            if chunk.is_some_and(|chunk| frames - decoded >= chunk || frame.is_end) {
                let (samples, took) = timed(now, || model.decode(decoded..frames))?;
                spoken.decode_ns += took;
                spoken.ready.push(Ready { frames, at_ns: now().saturating_sub(start) });
                is_over |= listener(&samples).is_break();
                spoken.samples.extend(samples);
                decoded = frames;
            }
        }
        model.wait()?;
    }
    if chunk.is_some() {
        spoken.generation_ns = spoken.frames_ns.iter().sum();
        return Ok(spoken);
    }
    spoken.generation_ns = now().saturating_sub(begun);
    (spoken.samples, spoken.decode_ns) = timed(now, || model.decode(0..model.frames()))?;
    let _ = listener(&spoken.samples);
    Ok(spoken)
}

fn timed<R>(now: &dyn Fn() -> u64, run: impl FnOnce() -> Result<R, ModelError>) -> Result<(R, u64), ModelError> {
    let start = now();
    let result = run()?;
    Ok((result, now().saturating_sub(start)))
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
/// // Synthetic weights do not predict the end, so ask for exactly five frames: 0.4 s.
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
    model: QwenTts<'a>,
    tokenizer: Tokenizer,
    defaults: SpeechOptions,
}

impl<'a> Synthesizer<'a> {
    /// A model with its tokenizer and default settings.
    pub fn new(model: QwenTts<'a>, tokenizer: Tokenizer, defaults: SpeechOptions) -> Self {
        Self { model, tokenizer, defaults }
    }

    /// The model.
    pub fn model(&mut self) -> &mut QwenTts<'a> {
        &mut self.model
    }

    /// The prompt for a text. With an empty speaker the model chooses the voice.
    pub fn prompt(&self, text: &str, speaker: &str, language: &str, feed: TextFeed) -> Result<Prompt, ModelError> {
        Prompt::new(self.model.config(), &self.tokenizer, text, Some(speaker), language, feed)
    }

    /// Generates the audio of a text and measures each part, without a recording. With an empty speaker or the language
    /// `auto` the model chooses.
    pub fn synthesize_with_timing(
        &mut self,
        text: &str,
        speaker: &str,
        language: &str,
        options: Option<&SpeechOptions>,
    ) -> Result<(Audio, Timing), ModelError> {
        let options = *options.unwrap_or(&self.defaults);
        let prompt = self.prompt(text, speaker, language, options.feed)?;
        self.model.wait()?;
        let spoken = self.run(&prompt, &options, None, &mut |_| ControlFlow::Continue(()))?;
        let timing = Timing {
            prefill_ms: spoken.prefill_ns as f64 / 1e6,
            generation_ms: spoken.generation_ns as f64 / 1e6,
            generation_frames: spoken.frames_ns.len(),
            decode_ms: spoken.decode_ns as f64 / 1e6,
        };
        Ok((Audio { samples: spoken.samples, rate: self.model.config().codec.sample_rate }, timing))
    }

    /// Generates audio and passes it to the listener in chunks of this many frames. Returns the number of frames.
    pub fn stream(
        &mut self,
        prompt: &Prompt,
        options: &SpeechOptions,
        chunk: usize,
        listener: Listener<'_>,
    ) -> Result<usize, ModelError> {
        Ok(self.run(prompt, options, Some(chunk), listener)?.frames_ns.len())
    }

    fn run(
        &mut self,
        prompt: &Prompt,
        options: &SpeechOptions,
        chunk: Option<usize>,
        listener: Listener<'_>,
    ) -> Result<Spoken, ModelError> {
        let origin = Instant::now();
        let now = || u64::try_from(origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        speak(&mut self.model, prompt, options, chunk, &now, listener)
    }
}
