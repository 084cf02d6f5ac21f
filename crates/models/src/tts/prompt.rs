//! The prompt of the talker: positions before the first frame, and the text that enters frame by frame.

use super::{TokenIds, TtsConfig};
use crate::error::{ensure, fit};
use crate::{Done, ModelError, Tokenizer};

/// How text is given to the tokenizer, and how much of what comes back is not the text itself.
const BEFORE: &str = "<|im_start|>assistant\n";
const BEHIND: &str = "<|im_end|>\n<|im_start|>assistant\n";
const TOKENS_BEFORE: usize = 3;
const TOKENS_BEHIND: usize = 5;

/// One position of a prompt: what its embeddings are of, which are added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// A token of text.
    pub text: u32,
    /// An id of the codec's vocabulary, where there is one.
    pub codec: Option<u32>,
}

/// When the text enters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TextFeed {
    /// A token with every frame, the first one before the first frame: the official `non_streaming_mode=False`.
    #[default]
    ByFrame,
    /// All of it before the first frame: the official `non_streaming_mode=True`.
    Whole,
}

/// The prompt of the talker.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The positions that are run before the first frame.
    pub positions: Vec<Position>,
    /// The tokens of text that are added to the frames, one each.
    pub following: Vec<u32>,
    /// The token of text that is added when those are used up.
    pub pad: u32,
}

impl Prompt {
    /// The prompt for a text, in the order of the official package. Speakers and languages are given by name; without a
    /// speaker the voice is left to the model.
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
        let mut said = text.into_iter().chain([ids.text_eos]);
        let following = match feed {
            TextFeed::ByFrame => {
                positions.extend(said.next().map(|first| with(first, ids.bos)));
                said.collect()
            }
            TextFeed::Whole => {
                positions.extend(said.map(|text| with(text, ids.pad)));
                positions.push(with(ids.text_pad, ids.bos));
                Vec::new()
            }
        };
        Ok(Self { positions, following, pad: ids.text_pad })
    }

    /// The tokens of text: one per position, those that follow, and the one that serves all later frames.
    pub fn text_ids(&self) -> Vec<u32> {
        let first = self.positions.iter().map(|position| position.text);
        first.chain(self.following.iter().copied()).chain([self.pad]).collect()
    }

    /// The token of text that is added to a frame.
    pub fn text_at(&self, frame: usize) -> u32 {
        self.following.get(frame).copied().unwrap_or(self.pad)
    }

    /// Refuses a prompt that cannot be run to this many frames: ids that the model does not have, more positions than it
    /// or the cache has, or a text that would not end before they are used up.
    pub fn check(&self, config: &TtsConfig, most_frames: usize, capacity: usize) -> Done {
        let refuse = |reason: String| Err(ModelError::Refused(reason));
        if self.positions.len() < 2 || most_frames == 0 {
            return refuse("a prompt has at least two positions, and there is at least one frame".to_owned());
        }
        let (text_vocab, vocab) = (config.text_vocab, config.talker.vocab);
        if let Some(id) = self.text_ids().into_iter().find(|id| *id as usize >= text_vocab) {
            return refuse(format!("token {id} of text is beyond the {text_vocab} of `{}`", config.name));
        }
        let mut codes = self.positions.iter().filter_map(|position| position.codec);
        if let Some(id) = codes.find(|id| *id as usize >= vocab) {
            return refuse(format!("id {id} is beyond the {vocab} of `{}`", config.name));
        }
        self.check_length(config, most_frames, capacity)
    }

    fn check_length(&self, config: &TtsConfig, most_frames: usize, capacity: usize) -> Done {
        let (before, most) = (self.positions.len(), config.talker.context);
        let text = before.saturating_add(self.following.len());
        if text > most {
            return Err(ModelError::Refused(format!(
                "the text takes {text} positions of the talker, and `{}` has {most}: say it in parts",
                config.name
            )));
        }
        let tokens = before.saturating_add(most_frames);
        if capacity < most { fit(tokens, "the cache", capacity) } else { fit(tokens, &config.name, most) }
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
    ensure!(!text.trim().is_empty(), "there is no text to say");
    if tokenizer.is_bytes() {
        return Ok((config.ids.role.to_vec(), tokenizer.encode(text)?));
    }
    let mut all = tokenizer.encode(&format!("{BEFORE}{text}{BEHIND}"))?;
    let has_text = all.len() > TOKENS_BEFORE + TOKENS_BEHIND;
    ensure!(has_text, "the tokenizer makes no tokens of the text between the marks of its role");
    all.truncate(all.len() - TOKENS_BEHIND);
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

    fn told(prompt: &Prompt) -> Vec<(u32, u32)> {
        prompt.positions.iter().map(|position| (position.text, position.codec.unwrap_or_default())).collect()
    }

    const ROLE: [(u32, u32); 3] = [(151_644, 0), (77_091, 0), (198, 0)];

    #[test]
    fn ten_positions_come_before_the_first_frame_with_a_language_and_a_speaker() {
        let prompt = prompt("abc", Some("ryan"), "english", TextFeed::ByFrame).unwrap();
        let pad = 151_671;
        let expected = [(pad, 2154), (pad, 2156), (pad, 2050), (pad, 2157), (pad, 3061), (151_672, 2148), (97, 2149)];
        assert_eq!(told(&prompt), [&ROLE[..], &expected].concat());
        assert_eq!((prompt.following.as_slice(), prompt.pad), ([98, 99, 151_673].as_slice(), pad));
        assert_eq!([0, 2, 3, 100].map(|frame| prompt.text_at(frame)), [98, 151_673, pad, pad]);
    }

    #[test]
    fn without_language_and_speaker_there_are_eight() {
        let prompt = prompt("a", None, "auto", TextFeed::ByFrame).unwrap();
        let pad = 151_671;
        let expected = [(pad, 2155), (pad, 2156), (pad, 2157), (151_672, 2148), (97, 2149)];
        assert_eq!(told(&prompt), [&ROLE[..], &expected].concat());
        assert_eq!(prompt.following, [151_673]);
    }

    #[test]
    fn all_of_the_text_can_come_before_the_first_frame() {
        let prompt = prompt("ab", Some("ryan"), "english", TextFeed::Whole).unwrap();
        let behind = [(151_672, 2148), (97, 2148), (98, 2148), (151_673, 2148), (151_671, 2149)];
        assert_eq!(told(&prompt)[8..], behind);
        assert!(prompt.following.is_empty());
    }

    #[test]
    fn no_text_and_too_much_of_it_are_refused() {
        for text in ["", " \n\t"] {
            let error = prompt(text, None, "auto", TextFeed::ByFrame).unwrap_err().to_string();
            assert_eq!(error, "there is no text to say");
        }
        let config = TtsConfig::from_preset("0.6b").unwrap();
        for feed in [TextFeed::ByFrame, TextFeed::Whole] {
            let long = prompt(&"x".repeat(100_000), None, "auto", feed).unwrap();
            let error = long.check(&config, 100, 32_768).unwrap_err().to_string();
            assert!(error.starts_with("the text takes 1000"), "{error}");
            assert!(
                error.ends_with("positions of the talker, and `Qwen3-TTS-0.6B` has 32768: say it in parts"),
                "{error}"
            );
        }
    }

    #[test]
    fn frames_beyond_the_room_are_refused() {
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
    fn ids_of_another_model_are_refused() {
        let tiny = TtsConfig::from_preset("tiny").unwrap();
        let prompt = prompt("abc", None, "auto", TextFeed::ByFrame).unwrap();
        let error = prompt.check(&tiny, 10, 100).unwrap_err().to_string();
        assert_eq!(error, "token 151644 of text is beyond the 512 of `tiny`");
    }
}
