//! The talker's prompt: the positions before the first frame, and the text that follows frame by frame.

use super::{TokenIds, TtsConfig};
use crate::error::{ensure, fit};
use crate::{Done, ModelError, Tokenizer};

/// The chat template around a text, and its length in tokens.
const BEFORE: &str = "<|im_start|>assistant\n";
const AFTER: &str = "<|im_end|>\n<|im_start|>assistant\n";
const TOKENS_BEFORE: usize = 3;
const TOKENS_AFTER: usize = 5;

/// One position of a prompt. Its embeddings are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// A text token.
    pub text: u32,
    /// An id of the talker's vocabulary.
    pub codec: Option<u32>,
}

/// When the talker gets the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextFeed {
    /// One token per frame: the official `non_streaming_mode=False`.
    #[default]
    ByFrame,
    /// All of it before the first frame: the official `non_streaming_mode=True`.
    Whole,
}

/// The talker's prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The positions before the first frame.
    pub positions: Vec<Position>,
    /// Text tokens that are added to the frames, one each.
    pub following: Vec<u32>,
    /// The text token that is added to all later frames.
    pub pad: u32,
}

impl Prompt {
    /// The prompt for a text, as the official package builds it. Without a speaker the model chooses the voice.
    pub fn new(
        config: &TtsConfig,
        tokenizer: &Tokenizer,
        text: &str,
        speaker: Option<&str>,
        language: &str,
        feed: TextFeed,
    ) -> Result<Self, ModelError> {
        let speaker = speaker.filter(|name| !name.is_empty()).map(|name| config.speaker(name)).transpose()?;
        let language = config.language_id(language, speaker)?;
        let (role, text) = tokens(config, tokenizer, text)?;
        let ids = &config.ids;
        let mut positions: Vec<Position> = role.into_iter().map(|text| Position { text, codec: None }).collect();
        let control = control_ids(ids, language, speaker.map(|speaker| speaker.id));
        positions.extend(control.into_iter().map(|codec| with(ids.text_pad, codec)));
        positions.push(with(ids.text_bos, ids.pad));
        let mut text = text.into_iter().chain([ids.text_eos]);
        let following = match feed {
            TextFeed::ByFrame => {
                positions.extend(text.next().map(|first| with(first, ids.bos)));
                text.collect()
            }
            TextFeed::Whole => {
                positions.extend(text.map(|text| with(text, ids.pad)));
                positions.push(with(ids.text_pad, ids.bos));
                Vec::new()
            }
        };
        Ok(Self { positions, following, pad: ids.text_pad })
    }

    /// All text tokens: those of the positions, those that follow, and the padding.
    pub(crate) fn text_ids(&self) -> Vec<u32> {
        let first = self.positions.iter().map(|position| position.text);
        first.chain(self.following.iter().copied()).chain([self.pad]).collect()
    }

    /// Refuses a prompt that cannot be run to this many frames: it has ids outside the vocabularies, more positions than
    /// fit, or a text that is too long.
    pub fn check(&self, config: &TtsConfig, most_frames: usize, capacity: usize) -> Done {
        let (before, most, name) = (self.positions.len(), config.talker.context, &config.name);
        let is_long_enough = before > 1 && most_frames > 0;
        ensure!(is_long_enough, "a prompt needs at least two positions and one frame");
        let (text_vocab, vocab) = (config.text_vocab, config.talker.vocab);
        let id = self.text_ids().into_iter().max().unwrap_or_default();
        ensure!((id as usize) < text_vocab, "text token {id} is outside the vocabulary of `{name}` ({text_vocab})");
        let id = self.positions.iter().filter_map(|position| position.codec).max().unwrap_or_default();
        ensure!((id as usize) < vocab, "id {id} is outside the talker's vocabulary of `{name}` ({vocab})");
        let text = before.saturating_add(self.following.len());
        ensure!(text <= most, "the text needs {text} positions of the talker, but `{name}` has {most}: split the text");
        let tokens = before.saturating_add(most_frames);
        if capacity < most { fit(tokens, "the cache", capacity) } else { fit(tokens, name, most) }
    }
}

fn with(text: u32, codec: u32) -> Position {
    Position { text, codec: Some(codec) }
}

fn control_ids(ids: &TokenIds, language: Option<u32>, speaker: Option<u32>) -> Vec<u32> {
    let mut control = match language {
        None => vec![ids.nothink, ids.think_bos, ids.think_eos],
        Some(language) => vec![ids.think, ids.think_bos, language, ids.think_eos],
    };
    control.extend(speaker);
    control
}

/// The tokens of the role, and those of the text.
fn tokens(config: &TtsConfig, tokenizer: &Tokenizer, text: &str) -> Result<(Vec<u32>, Vec<u32>), ModelError> {
    ensure!(!text.trim().is_empty(), "the text is empty");
    if tokenizer.is_bytes() {
        return Ok((config.ids.role.to_vec(), tokenizer.encode(text)?));
    }
    let mut all = tokenizer.encode(&format!("{BEFORE}{text}{AFTER}"))?;
    ensure!(all.len() > TOKENS_BEFORE + TOKENS_AFTER, "the tokenizer gives no tokens for the text");
    all.truncate(all.len() - TOKENS_AFTER);
    let text = all.split_off(TOKENS_BEFORE);
    Ok((all, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prompt(text: &str, speaker: Option<&str>, language: &str, feed: TextFeed) -> Result<Prompt, ModelError> {
        let config = TtsConfig::from_preset("0.6b").unwrap();
        let tokenizer = config.tokenizer(None).unwrap();
        Prompt::new(&config, &tokenizer, text, speaker, language, feed)
    }

    fn ids_of(prompt: &Prompt) -> Vec<(u32, u32)> {
        prompt.positions.iter().map(|position| (position.text, position.codec.unwrap_or_default())).collect()
    }

    const ROLE: [(u32, u32); 3] = [(151_644, 0), (77_091, 0), (198, 0)];

    #[test]
    fn ten_positions_precede_the_first_frame_with_a_language_and_a_speaker() {
        let prompt = prompt("abc", Some("ryan"), "english", TextFeed::ByFrame).unwrap();
        let pad = 151_671;
        let expected = [(pad, 2154), (pad, 2156), (pad, 2050), (pad, 2157), (pad, 3061), (151_672, 2148), (97, 2149)];
        assert_eq!(ids_of(&prompt), [&ROLE[..], &expected].concat());
        assert_eq!((prompt.following.as_slice(), prompt.pad), ([98, 99, 151_673].as_slice(), pad));
    }

    #[test]
    fn without_language_and_speaker_there_are_eight() {
        let prompt = prompt("a", None, "auto", TextFeed::ByFrame).unwrap();
        let pad = 151_671;
        let expected = [(pad, 2155), (pad, 2156), (pad, 2157), (151_672, 2148), (97, 2149)];
        assert_eq!(ids_of(&prompt), [&ROLE[..], &expected].concat());
        assert_eq!(prompt.following, [151_673]);
    }

    #[test]
    fn the_whole_text_can_precede_the_first_frame() {
        let prompt = prompt("ab", Some("ryan"), "english", TextFeed::Whole).unwrap();
        let end = [(151_672, 2148), (97, 2148), (98, 2148), (151_673, 2148), (151_671, 2149)];
        assert_eq!(ids_of(&prompt)[8..], end);
        assert!(prompt.following.is_empty());
    }

    #[test]
    fn an_empty_text_and_one_that_is_too_long_are_refused() {
        for text in ["", " \n\t"] {
            let error = prompt(text, None, "auto", TextFeed::ByFrame).unwrap_err().to_string();
            assert_eq!(error, "the text is empty");
        }
        let config = TtsConfig::from_preset("0.6b").unwrap();
        for feed in [TextFeed::ByFrame, TextFeed::Whole] {
            let long = prompt(&"x".repeat(100_000), None, "auto", feed).unwrap();
            let error = long.check(&config, 100, 32_768).unwrap_err().to_string();
            assert!(error.starts_with("the text needs 1000"), "{error}");
            let end = "positions of the talker, but `Qwen3-TTS-0.6B` has 32768: split the text";
            assert!(error.ends_with(end), "{error}");
        }
    }

    #[test]
    fn frames_beyond_the_capacity_are_refused() {
        let config = TtsConfig::from_preset("0.6b").unwrap();
        let prompt = prompt("abc", None, "auto", TextFeed::ByFrame).unwrap();
        assert!(prompt.check(&config, 92, 100).is_ok());
        let error = prompt.check(&config, 93, 100).unwrap_err().to_string();
        assert_eq!(error, "101 tokens do not fit: `the cache` has 100");
        let error = prompt.check(&config, 40_000, 50_000).unwrap_err().to_string();
        assert_eq!(error, "40008 tokens do not fit: `Qwen3-TTS-0.6B` has 32768");
        assert!(prompt.check(&config, 0, 100).is_err());
    }

    #[test]
    fn ids_outside_the_vocabulary_are_refused() {
        let tiny = TtsConfig::from_preset("tiny").unwrap();
        let prompt = prompt("abc", None, "auto", TextFeed::ByFrame).unwrap();
        let error = prompt.check(&tiny, 10, 100).unwrap_err().to_string();
        assert_eq!(error, "text token 151673 is outside the vocabulary of `tiny` (512)");
    }
}
