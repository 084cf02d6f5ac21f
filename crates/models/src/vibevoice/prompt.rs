//! The prompt: the voices, then the script.

use super::{Script, VibeVoiceConfig, Voice};
use crate::error::{ensure, fit};
use crate::{Done, ModelError, Tokenizer};

/// The instruction at the start of every prompt, as in the published processor.
const TASK: &str = " Transform the text provided by various speakers into speech output, utilizing the distinct voice of \
    each respective speaker.\n";

/// A prompt.
#[derive(Debug, Clone, PartialEq)]
pub struct VoicePrompt {
    /// The tokens. The latents of the voices replace the tokens of audio, in order.
    pub ids: Vec<u32>,
    /// The samples of the voices, padded with silence to whole tokens.
    pub voices: Vec<Vec<f32>>,
}

impl VoicePrompt {
    /// The prompt for a script, with one voice per speaker in order of first appearance.
    pub fn new(
        config: &VibeVoiceConfig,
        tokenizer: &Tokenizer,
        script: &Script,
        voices: &[Voice],
    ) -> Result<Self, ModelError> {
        let (speakers, given) = (script.speakers.len(), voices.len());
        ensure!(given == speakers, "the script has {speakers} speakers, got {given} voices");
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
        Ok(Self { ids, voices: voices.iter().map(|voice| padded(config, voice)).collect() })
    }

    /// Refuses ids outside the vocabulary, voices that do not match the tokens of audio, and more positions than fit.
    pub fn check(&self, config: &VibeVoiceConfig, most_tokens: usize, capacity: usize) -> Done {
        let (name, vocab, hop) = (&config.name, config.decoder.vocab, config.token_samples().max(1));
        ensure!(!self.ids.is_empty() && most_tokens > 0, "the prompt is empty, or no tokens are to be generated");
        let id = self.ids.iter().copied().max().unwrap_or_default();
        ensure!((id as usize) < vocab, "token {id} is outside the vocabulary of `{name}` ({vocab})");
        let is_whole = self.voices.iter().all(|voice| voice.len().is_multiple_of(hop));
        ensure!(is_whole, "a voice is not whole tokens of {hop} samples");
        let given: usize = self.voices.iter().map(|voice| voice.len() / hop).sum();
        let expected = self.ids.iter().filter(|id| **id == config.ids.audio).count();
        ensure!(given == expected, "the prompt has {expected} tokens of audio, but the voices have {given}");
        fit(self.ids.len().saturating_add(most_tokens), name, capacity.min(config.decoder.context))
    }
}

fn padded(config: &VibeVoiceConfig, voice: &Voice) -> Vec<f32> {
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
    fn voices_precede_the_text_in_order_of_first_appearance() {
        let (config, tokenizer) = parts();
        let script = Script::parse("Speaker 2: Hi.\nSpeaker 1: Yes.").unwrap();
        let voices = [Voice::new(vec![0.1; 3200]).unwrap(), Voice::new(vec![0.1; 3201]).unwrap()];
        let prompt = VoicePrompt::new(&config, &tokenizer, &script, &voices).unwrap();
        let text: String = prompt.ids.iter().map(|id| char::from_u32(*id).unwrap()).collect();
        let expected = format!(
            "{TASK} Voice input:\n Speaker 0:\u{100}\u{102}\u{101}\n Speaker 1:\u{100}\u{102}\u{102}\u{101}\n \
            Text input:\n Speaker 0: Hi.\n Speaker 1: Yes.\n Speech output:\n\u{100}"
        );
        assert_eq!(text, expected);
        assert_eq!(prompt.voices.iter().map(Vec::len).collect::<Vec<_>>(), [3200, 6400]);
        prompt.check(&config, 10, 400).unwrap();
        let error = VoicePrompt::new(&config, &tokenizer, &script, &voices[..1]).unwrap_err().to_string();
        assert_eq!(error, "the script has 2 speakers, got 1 voices");
    }

    #[test]
    fn invalid_prompts_are_refused() {
        let (config, _) = parts();
        let prompt = VoicePrompt { ids: vec![1, 258, 2], voices: vec![vec![0.0; 3200]] };
        prompt.check(&config, 1, 4).unwrap();
        let refused =
            |prompt: &VoicePrompt, most, capacity| prompt.check(&config, most, capacity).unwrap_err().to_string();
        assert!(refused(&prompt, 0, 4).contains("no tokens are to be generated"));
        assert!(refused(&prompt, 2, 4).contains('5'), "{}", refused(&prompt, 2, 4));
        let beyond = VoicePrompt { ids: vec![512], voices: vec![] };
        assert_eq!(refused(&beyond, 1, 4), "token 512 is outside the vocabulary of `tiny` (512)");
        let fewer = VoicePrompt { voices: vec![], ..prompt.clone() };
        assert_eq!(refused(&fewer, 1, 4), "the prompt has 1 tokens of audio, but the voices have 0");
        let cut = VoicePrompt { voices: vec![vec![0.0; 3000]], ..prompt };
        assert_eq!(refused(&cut, 1, 4), "a voice is not whole tokens of 3200 samples");
    }
}
