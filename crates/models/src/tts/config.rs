//! What a text-to-speech model is: its two decoders, its codec, and its special token ids.

use std::path::Path;

use super::{CodecConfig, Language, Speaker};
use crate::check::{Fault, check_parameters, check_sizes, refused};
use crate::{Config, Done, Dtype, HasTensors, ModelError, Tokenizer, error::require};

/// Ids at the end of the talker's vocabulary that stand for no code.
const CONTROL_IDS: usize = 1024;

/// Codes of a frame at most, far more than any codec has.
const MOST_GROUPS: usize = 64;

/// What a text-to-speech model is.
#[derive(Debug, Clone, PartialEq)]
pub struct TtsConfig {
    /// Its name, as results tell it.
    pub name: String,
    /// The decoder that makes a frame a step. Its vocabulary is the codec's: codes, then control ids. Its positions are
    /// told in three parts (M-RoPE) that are always equal here, which is plain rotation.
    pub talker: Config,
    /// The decoder that makes the other codes of a frame. Its vocabulary is one codebook.
    pub predictor: Config,
    /// Tokens of text.
    pub text_vocab: usize,
    /// Width of the embedding of text, which two linear parts bring to that of the talker.
    pub text_width: usize,
    /// Codes of a frame.
    pub groups: usize,
    /// What makes audio of codes.
    pub codec: CodecConfig,
    /// The ids that a prompt is made of.
    pub ids: TokenIds,
    /// The voices that it knows by name.
    pub speakers: Vec<Speaker>,
    /// The languages that it supports, including dialects.
    pub languages: Vec<Language>,
}

/// The ids that a prompt is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenIds {
    /// Of text: nothing is said.
    pub text_pad: u32,
    /// Of text: it begins.
    pub text_bos: u32,
    /// Of text: it has ended.
    pub text_eos: u32,
    /// Of text: the role begins, the role, and the line end behind it, where there is no tokenizer to ask.
    pub role: [u32; 3],
    /// Of codes: nothing is said.
    pub pad: u32,
    /// Of codes: they begin.
    pub bos: u32,
    /// Of codes: they have ended.
    pub eos: u32,
    /// Of codes: the language follows.
    pub think: u32,
    /// Of codes: no language follows.
    pub nothink: u32,
    /// Of codes: what is thought begins.
    pub think_bos: u32,
    /// Of codes: what is thought has ended.
    pub think_eos: u32,
}

impl TokenIds {
    fn text(&self) -> [u32; 6] {
        let [a, b, c] = self.role;
        [self.text_pad, self.text_bos, self.text_eos, a, b, c]
    }

    fn codes(&self) -> [u32; 7] {
        [self.pad, self.bos, self.eos, self.think, self.nothink, self.think_bos, self.think_eos]
    }
}

/// A decoder inside the model, whose tensors have other names than those of a decoder alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// The talker.
    Talker,
    /// The code predictor: layers and norm. It has an embedding and a head for every group.
    Predictor,
    /// The transformer of the codec decoder: layers and norm.
    Codec,
}

impl TtsConfig {
    /// The first id of the talker's vocabulary that stands for no code: these are never chosen, but for the end.
    pub fn first_control(&self) -> usize {
        self.talker.vocab.saturating_sub(CONTROL_IDS)
    }

    /// Whether the predictor is of another width than the talker, so that a linear part stands between them.
    pub fn has_bridge(&self) -> bool {
        self.predictor.hidden != self.talker.hidden
    }

    /// Codes of a frame that the predictor chooses.
    pub fn predicted(&self) -> usize {
        self.groups.saturating_sub(1)
    }

    /// The configuration of one of its decoders.
    pub fn part(&self, part: Part) -> &Config {
        match part {
            Part::Talker => &self.talker,
            Part::Predictor => &self.predictor,
            Part::Codec => &self.codec.transformer,
        }
    }

    /// What turns text into its tokens: the tokenizer of a folder, else bytes.
    pub fn tokenizer(&self, folder: Option<&Path>) -> Result<Tokenizer, ModelError> {
        let text = Config { name: self.name.clone(), vocab: self.text_vocab, ..self.talker.clone() };
        match folder {
            Some(folder) => Tokenizer::open(folder, &text),
            None => Tokenizer::bytes(&text),
        }
    }

    /// Refuses what makes no model, and says what is wrong.
    pub fn check(&self) -> Done {
        [Part::Talker, Part::Predictor, Part::Codec].into_iter().try_for_each(|part| self.part(part).check())?;
        let fault = self.check_sizes().and_then(|()| self.codec.check()).and_then(|()| self.check_ids());
        refused(&self.name, fault.and_then(|()| check_parameters(self.checked_parameters())))
    }

    fn check_sizes(&self) -> Fault {
        check_sizes("", [("text_vocab", self.text_vocab), ("text_width", self.text_width)])?;
        let (groups, vocab, book) = (self.groups, self.talker.vocab, self.codec.codebook);
        require!((2..=MOST_GROUPS).contains(&groups), "`groups` is {groups}, and it is 2 to {MOST_GROUPS}");
        let taken = self.codec.groups;
        require!(groups == taken, "it makes {groups} codes a frame, and its codec takes {taken}");
        let made = self.predictor.vocab;
        require!(made == book, "it makes codes below {made}, and its codec takes those below {book}");
        require!(
            (1..=book).contains(&self.first_control()),
            "`vocab` {vocab} of the talker is not {CONTROL_IDS} more than 1 to {book} codes"
        );
        Ok(())
    }

    fn check_ids(&self) -> Fault {
        let beyond = |ids: &[u32], capacity: usize| ids.iter().copied().find(|id| *id as usize >= capacity);
        if let Some(id) = beyond(&self.ids.text(), self.text_vocab) {
            return Err(format!("id {id} of text is beyond its {} tokens", self.text_vocab));
        }
        let named = self.speakers.iter().map(|speaker| speaker.id).chain(self.languages.iter().map(|one| one.id));
        let all: Vec<u32> = self.ids.codes().into_iter().chain(named).collect();
        match beyond(&all, self.talker.vocab) {
            Some(id) => Err(format!("id {id} is beyond the {} of the talker", self.talker.vocab)),
            None => Ok(()),
        }
    }
}

impl TtsConfig {
    /// Bytes that the caches need for this many positions of the talker, and for a frame of the predictor.
    pub fn cache_bytes(&self, capacity: usize, dtype: Dtype) -> u64 {
        let talker = self.talker.kv_bytes_per_token(dtype).saturating_mul(capacity as u64);
        talker.saturating_add(self.predictor.kv_bytes_per_token(dtype).saturating_mul(self.groups as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tensors::checked_count;
    use crate::{Config, HasTensors, TensorSpec};
    use proptest::prelude::*;

    fn refused(change: impl Fn(&mut TtsConfig)) -> String {
        let mut config = TtsConfig::from_preset("tiny").unwrap();
        change(&mut config);
        config.check().unwrap_err().to_string()
    }

    #[test]
    fn what_makes_no_model_is_named() {
        assert_eq!(refused(|config| config.groups = 1), "`tiny`: `groups` is 1, and it is 2 to 64");
        let fewer = refused(|config| config.groups = 3);
        assert_eq!(fewer, "`tiny`: it makes 3 codes a frame, and its codec takes 16");
        let beyond = refused(|config| config.ids.eos = 9999);
        assert_eq!(beyond, "`tiny`: id 9999 is beyond the 1152 of the talker");
        assert!(refused(|config| config.ids.text_pad = 512).contains("id 512 of text is beyond its 512 tokens"));
        assert!(refused(|config| config.text_width = 0).contains("`text_width` is 0"));
        assert!(refused(|config| config.predictor.vocab = 64).contains("codes below 64, and its codec takes"));
        assert!(refused(|config| config.talker.vocab = 1000).contains("`vocab` 1000 of the talker"));
        assert!(refused(|config| config.codec.rates = vec![]).contains("`rates`"));
    }

    /// Numbers of the layers and the norm of a part.
    fn body(config: &TtsConfig, prefix: &str) -> u64 {
        let is_of_it = |spec: &&TensorSpec| {
            let name = spec.name.strip_prefix(prefix).unwrap_or_default();
            name.starts_with("model.layers.") || name.starts_with("model.norm.")
        };
        config.talker_file_tensors().iter().filter(is_of_it).map(|spec| spec.count() as u64).sum()
    }

    #[test]
    fn parameters_are_those_of_the_published_models() {
        for (name, talker_body, bridge) in [("0.6b", 440_467_456, 0), ("1.7b", 1_409_410_048, 2048 * 1024 + 1024)] {
            let config = TtsConfig::from_preset(name).unwrap();
            let hidden = config.talker.hidden as u64;
            assert_eq!(body(&config, "talker."), talker_body, "{name}");
            assert_eq!(body(&config, "talker.code_predictor."), 78_655_744, "{name}");
            let text = 151_936 * 2048 + 2048 * 2048 + 2048 + 2048 * hidden + hidden;
            let codes = 2 * 3072 * hidden + 15 * 2048 * (hidden + 1024) + bridge;
            let talker = checked_count(&config.talker_file_tensors()).unwrap();
            assert_eq!(talker, talker_body + 78_655_744 + text + codes, "{name}");
        }
        // Files of 1.8 and 3.8 GB in bf16, and a codec decoder as large as the official class is.
        let preset = |name| TtsConfig::from_preset(name).unwrap();
        let talker = |name| checked_count(&preset(name).talker_file_tensors()).unwrap();
        let sizes = ["0.6b", "1.7b"].map(|name| talker(name) / 1_000_000);
        assert_eq!(sizes, [905, 1916]);
        assert_eq!(checked_count(&preset("0.6b").codec_file_tensors()), Some(CODEC));
    }

    /// Those of `Qwen3TTSTokenizerV2Decoder` with the published sizes, without what only its encoder needs.
    const CODEC: u64 = 114_060_993;

    #[test]
    fn caches_are_those_of_two_decoders() {
        let config = TtsConfig::from_preset("0.6b").unwrap();
        assert_eq!(config.cache_bytes(1000, Dtype::Bf16), 1000 * 114_688 + 16 * 2 * 5 * 8 * 128 * 2);
    }

    proptest! {
        #[test]
        fn any_sizes_are_taken_or_refused_without_a_panic(
            sizes in proptest::array::uniform8(prop_oneof![0_usize..100, Just(usize::MAX), Just(i32::MAX as usize)]),
        ) {
            let [hidden, text_width, code_width, latent, channels, codebook, rate, window] = sizes;
            let mut config = TtsConfig::from_preset("tiny").unwrap();
            config.talker = Config { hidden, ..config.talker };
            config.text_width = text_width;
            config.codec.code_width = code_width;
            config.codec.latent = latent;
            config.codec.channels = channels;
            config.codec.codebook = codebook;
            config.predictor.vocab = codebook;
            config.codec.rates = vec![rate; 3];
            config.codec.window = window;
            let bytes = config.weight_bytes(Dtype::F32);
            if config.check().is_ok() {
                prop_assert_eq!(bytes, config.parameters() * 4);
            }
        }
    }
}
