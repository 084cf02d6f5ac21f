//! The prompt of a speech model: the voices, and then who says what.

use super::{Script, VibeVoiceConfig, Voice};
use crate::error::{ensure, fit};
use crate::{Done, ModelError, Tokenizer};

/// What every prompt begins with, as the published processor has it.
const TASK: &str = " Transform the text provided by various speakers into speech output, utilizing the distinct voice of \
    each respective speaker.\n";

/// A prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct VoicePrompt {
    /// The tokens. In place of each one of audio the latents of the voices enter, in order.
    pub ids: Vec<u32>,
    /// The samples of the voices, each filled up with silence to whole tokens.
    pub voices: Vec<Vec<f32>>,
}

impl VoicePrompt {
    /// The prompt for a script, with a voice for each speaker in order of first appearance.
    pub fn new(
        config: &VibeVoiceConfig,
        tokenizer: &Tokenizer,
        script: &Script,
        voices: &[Voice],
    ) -> Result<Self, ModelError> {
        let (speakers, given) = (script.speakers.len(), voices.len());
        ensure!(given == speakers, "the script has {speakers} speakers, and there are {given} voices: one for each");
        let mut ids = tokenizer.encode(TASK)?;
        ids.extend(tokenizer.encode(" Voice input:\n")?);
        for (speaker, voice) in voices.iter().enumerate() {
            ids.extend(tokenizer.encode(&format!(" Speaker {speaker}:"))?);
            ids.push(config.ids.bos);
            ids.extend(std::iter::repeat_n(config.ids.audio, voice.tokens(config)));
            ids.push(config.ids.eos);
            ids.extend(tokenizer.encode("\n")?);
        }
        ids.extend(tokenizer.encode(" Text input:\n")?);
        for line in &script.lines {
            ids.extend(tokenizer.encode(&format!(" Speaker {}: {}\n", line.speaker, line.text))?);
        }
        ids.extend(tokenizer.encode(" Speech output:\n")?);
        ids.push(config.ids.bos);
        Ok(Self { ids, voices: voices.iter().map(|voice| filled_up(config, voice)).collect() })
    }

    /// Refuses what the model cannot run: ids that it does not know, voices that do not fill the tokens of audio, or more
    /// positions than fit.
    pub fn check(&self, config: &VibeVoiceConfig, most_tokens: usize, capacity: usize) -> Done {
        let refuse = |reason: String| Err(ModelError::Refused(reason));
        if self.ids.is_empty() || most_tokens == 0 {
            return refuse("there is nothing to say: a prompt has tokens, and at least one is made".to_owned());
        }
        if let Some(id) = self.ids.iter().find(|id| **id as usize >= config.decoder.vocab) {
            return refuse(format!("token {id} is beyond the {} of `{}`", config.decoder.vocab, config.name));
        }
        let hop = config.token_samples().max(1);
        if self.voices.iter().any(|voice| !voice.len().is_multiple_of(hop)) {
            return refuse(format!("a voice does not fill tokens of {hop} samples"));
        }
        let given: usize = self.voices.iter().map(|voice| voice.len() / hop).sum();
        let wanted = self.ids.iter().filter(|id| **id == config.ids.audio).count();
        if given != wanted {
            return refuse(format!("the prompt has {wanted} tokens of audio, and the voices fill {given}"));
        }
        let tokens = self.ids.len().saturating_add(most_tokens);
        fit(tokens, &config.name, capacity.min(config.decoder.context))
    }
}

fn filled_up(config: &VibeVoiceConfig, voice: &Voice) -> Vec<f32> {
    let mut samples = voice.samples.clone();
    samples.resize(voice.tokens(config).saturating_mul(config.token_samples()), 0.0);
    samples
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> (VibeVoiceConfig, Tokenizer) {
        let config = VibeVoiceConfig::from_preset("tiny").unwrap();
        let tokenizer = config.tokenizer(None).unwrap();
        (config, tokenizer)
    }

    #[test]
    fn voices_stand_before_the_text_in_order_of_first_appearance() {
        let (config, tokenizer) = parts();
        let script = Script::parse("Speaker 2: Hi.\nSpeaker 1: Yes.").unwrap();
        let voices = [Voice::new(vec![0.1; 3200]).unwrap(), Voice::new(vec![0.1; 3201]).unwrap()];
        let prompt = VoicePrompt::new(&config, &tokenizer, &script, &voices).unwrap();
        let told: String = prompt.ids.iter().map(|id| char::from_u32(*id).unwrap()).collect();
        let expected = format!(
            "{TASK} Voice input:\n Speaker 0:\u{100}\u{102}\u{101}\n Speaker 1:\u{100}\u{102}\u{102}\u{101}\n \
            Text input:\n Speaker 0: Hi.\n Speaker 1: Yes.\n Speech output:\n\u{100}"
        );
        assert_eq!(told, expected);
        assert_eq!(prompt.voices.iter().map(Vec::len).collect::<Vec<_>>(), [3200, 6400]);
        prompt.check(&config, 10, 400).unwrap();
        let error = VoicePrompt::new(&config, &tokenizer, &script, &voices[..1]).unwrap_err().to_string();
        assert_eq!(error, "the script has 2 speakers, and there are 1 voices: one for each");
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let (config, _) = parts();
        let prompt = VoicePrompt { ids: vec![1, 258, 2], voices: vec![vec![0.0; 3200]] };
        prompt.check(&config, 1, 4).unwrap();
        let refused =
            |prompt: &VoicePrompt, most, capacity| prompt.check(&config, most, capacity).unwrap_err().to_string();
        assert!(refused(&prompt, 0, 4).starts_with("there is nothing to say"));
        assert!(refused(&prompt, 2, 4).contains('5'), "{}", refused(&prompt, 2, 4));
        let beyond = VoicePrompt { ids: vec![512], voices: vec![] };
        assert_eq!(refused(&beyond, 1, 4), "token 512 is beyond the 512 of `tiny`");
        let fewer = VoicePrompt { voices: vec![], ..prompt.clone() };
        assert_eq!(refused(&fewer, 1, 4), "the prompt has 1 tokens of audio, and the voices fill 0");
        let cut = VoicePrompt { voices: vec![vec![0.0; 3000]], ..prompt };
        assert_eq!(refused(&cut, 1, 4), "a voice does not fill tokens of 3200 samples");
    }
}
