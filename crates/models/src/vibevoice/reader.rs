//! Reading a script aloud, with the time that each part took.

use std::time::Instant;

use laptime_probe::{lap, stage};

use super::{Guidance, SpokenToken, VibeVoice, VoicePrompt};
use crate::{ModelError, tts::Audio};

/// How long the parts of a reading took, each waited for at its end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct ReadTiming {
    /// The voices and the prompt.
    pub prefill_ms: f64,
    /// All tokens.
    pub generation_ms: f64,
    /// How many there are.
    pub tokens: usize,
    /// How many of them are of audio.
    pub audio_tokens: usize,
}

/// A model that reads scripts aloud.
///
/// ```
/// use laptime_models::{
///     Dtype, cpu,
///     vibevoice::{Guidance, Reader, Script, VibeVoiceConfig, VibeVoiceWeights, Voice, VoicePrompt, VibeVoiceOptions},
/// };
///
/// let config = VibeVoiceConfig::from_preset("tiny")?;
/// let script = Script::parse("Speaker 1: Hello.")?;
/// let voices = [Voice::synthetic(&config, 1, 0)];
/// let prompt = VoicePrompt::new(&config, &config.tokenizer(None)?, &script, &voices)?;
/// let options = VibeVoiceOptions::new(Dtype::F32, prompt.ids.len(), 3);
/// let model = cpu::vibevoice(config, &VibeVoiceWeights::synthetic(1), options, 1)?;
///
/// // Synthetic weights know no end: three tokens are made, which are 0.4 s.
/// let guidance = Guidance { is_endless: true, ..Guidance::default() };
/// let (audio, timing) = Reader::new(model).read(&prompt, &guidance, 3)?;
/// assert_eq!((audio.seconds(), timing.tokens), (0.4, 3));
/// # Ok::<(), laptime_models::ModelError>(())
/// ```
pub struct Reader<'a> {
    model: Box<dyn VibeVoice + 'a>,
}

impl<'a> Reader<'a> {
    /// A reader with a model.
    pub fn new(model: Box<dyn VibeVoice + 'a>) -> Self {
        Self { model }
    }

    /// The model.
    pub fn model(&mut self) -> &mut dyn VibeVoice {
        &mut *self.model
    }

    /// Reads a prompt to its end, or until this many tokens were made.
    pub fn read(
        &mut self,
        prompt: &VoicePrompt,
        guidance: &Guidance,
        most_tokens: usize,
    ) -> Result<(Audio, ReadTiming), ModelError> {
        let lane = self.model.options().marks.lane.clone();
        let _stage = stage!("read_aloud", on = lane);
        self.model.wait()?;
        let started = Instant::now();
        self.model.begin(prompt, guidance, most_tokens)?;
        self.model.wait()?;
        let prefilled = Instant::now();
        while !self.token()?.is_end {}
        self.model.wait()?;
        let timing = ReadTiming {
            prefill_ms: prefilled.duration_since(started).as_secs_f64() * 1e3,
            generation_ms: prefilled.elapsed().as_secs_f64() * 1e3,
            tokens: self.model.tokens(),
            audio_tokens: self.model.audio_tokens(),
        };
        Ok((self.audio()?, timing))
    }

    /// Makes the next token, as a lap `token`.
    pub fn token(&mut self) -> Result<SpokenToken, ModelError> {
        let _lap = lap!("token", on = self.model.options().marks.lane, token = self.model.tokens());
        self.model.token()
    }

    /// The audio so far.
    pub fn audio(&mut self) -> Result<Audio, ModelError> {
        let rate = self.model.config().sample_rate;
        let made = self.model.audio_tokens();
        Ok(Audio { samples: self.model.audio(0..made)?, rate })
    }
}
