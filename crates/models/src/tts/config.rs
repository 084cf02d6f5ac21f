//! The configuration of Qwen3-TTS.

use std::path::Path;

use super::{CodecConfig, Language, Speaker};
use crate::check::{Fault, check_parameters, check_sizes, refused};
use crate::{Config, Done, Dtype, HasTensors, ModelError, Tokenizer, error::require};

/// Control ids at the end of the talker's vocabulary.
const CONTROL_IDS: usize = 1024;

const MOST_GROUPS: usize = 64;

/// The configuration of Qwen3-TTS.
#[derive(Debug, Clone, PartialEq)]
pub struct TtsConfig {
    /// Its name in results.
    pub name: String,
    /// The decoder that generates frames. Its vocabulary is codes, then control ids. The three positions of M-RoPE are
    /// always equal here, which is plain RoPE.
    pub talker: Config,
    /// The code predictor, which generates the other codes of a frame. Its vocabulary is one codebook.
    pub predictor: Config,
    /// Size of the text vocabulary.
    pub text_vocab: usize,
    /// Width of the text embedding. Two linear layers project it to the talker's width.
    pub text_width: usize,
    /// Codes per frame.
    pub groups: usize,
    /// The codec decoder.
    pub codec: CodecConfig,
    /// Special token ids.
    pub ids: TokenIds,
    /// Named speakers.
    pub speakers: Vec<Speaker>,
    /// Supported languages, including dialects.
    pub languages: Vec<Language>,
}

/// Special token ids: the first four of the text vocabulary, the others of the talker's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "named as in the published configuration")]
pub struct TokenIds {
    pub text_pad: u32,
    pub text_bos: u32,
    pub text_eos: u32,
    /// Start of the role, the role, and a newline, for a model without a tokenizer.
    pub role: [u32; 3],
    pub pad: u32,
    pub bos: u32,
    pub eos: u32,
    pub think: u32,
    pub nothink: u32,
    pub think_bos: u32,
    pub think_eos: u32,
}

/// A decoder of the model. Its tensors have a prefix in the checkpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Talker,
    /// Layers and norm; embeddings and heads are per group.
    Predictor,
    /// The transformer of the codec: layers and norm.
    Codec,
}

impl TtsConfig {
    /// The first control id. Of these, only the end of speech is ever sampled.
    pub(crate) fn first_control(&self) -> usize {
        self.talker.vocab.saturating_sub(CONTROL_IDS)
    }

    /// Whether a linear layer projects from the talker's width to the predictor's.
    pub(crate) fn has_bridge(&self) -> bool {
        self.predictor.hidden != self.talker.hidden
    }

    /// Codes per frame that the predictor generates.
    pub(crate) fn predicted(&self) -> usize {
        self.groups.saturating_sub(1)
    }

    pub(crate) fn part(&self, part: Part) -> &Config {
        match part {
            Part::Talker => &self.talker,
            Part::Predictor => &self.predictor,
            Part::Codec => &self.codec.transformer,
        }
    }

    /// The tokenizer of a folder, or one over bytes.
    pub fn tokenizer(&self, folder: Option<&Path>) -> Result<Tokenizer, ModelError> {
        let text = Config { name: self.name.clone(), vocab: self.text_vocab, ..self.talker.clone() };
        folder.map_or_else(|| Tokenizer::bytes(&text), |folder| Tokenizer::open(folder, &text))
    }

    /// Refuses an invalid configuration.
    pub fn check(&self) -> Done {
        [Part::Talker, Part::Predictor, Part::Codec].into_iter().try_for_each(|part| self.part(part).check())?;
        let fault = self.check_sizes().and_then(|()| self.codec.check()).and_then(|()| self.check_ids());
        refused(&self.name, fault.and_then(|()| check_parameters(self.checked_parameters())))
    }

    fn check_sizes(&self) -> Fault {
        check_sizes("", [("text_vocab", self.text_vocab), ("text_width", self.text_width)])?;
        let (groups, vocab, book) = (self.groups, self.talker.vocab, self.codec.codebook);
        require!((2..=MOST_GROUPS).contains(&groups), "`groups` is {groups}, expected 2 to {MOST_GROUPS}");
        let expected = self.codec.groups;
        require!(groups == expected, "frames have {groups} codes, but the codec expects {expected}");
        let codes = self.predictor.vocab;
        require!(codes == book, "the code predictor has {codes} codes, but the codebooks have {book}");
        require!(
            (1..=book).contains(&self.first_control()),
            "`vocab` of the talker is {vocab}, expected {CONTROL_IDS} plus 1 to {book} codes"
        );
        Ok(())
    }

    fn check_ids(&self) -> Fault {
        let TokenIds { text_pad, text_bos, text_eos, role, pad, bos, eos, think, nothink, think_bos, think_eos } =
            self.ids;
        let largest_text = [text_pad, text_bos, text_eos].into_iter().chain(role).max().unwrap_or_default();
        let (text_vocab, vocab) = (self.text_vocab, self.talker.vocab);
        require!(
            (largest_text as usize) < text_vocab,
            "text id {largest_text} is outside its vocabulary of {text_vocab}"
        );
        let named = self.speakers.iter().map(|speaker| speaker.id).chain(self.languages.iter().map(|one| one.id));
        let special = [pad, bos, eos, think, nothink, think_bos, think_eos];
        let largest = special.into_iter().chain(named).max().unwrap_or_default();
        require!((largest as usize) < vocab, "id {largest} is outside the talker's vocabulary of {vocab}");
        Ok(())
    }

    /// Bytes of the KV caches: this many positions of the talker, and a frame of the predictor.
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
    fn an_invalid_configuration_is_refused_by_field() {
        assert_eq!(refused(|config| config.groups = 1), "`tiny`: `groups` is 1, expected 2 to 64");
        let fewer = refused(|config| config.groups = 3);
        assert_eq!(fewer, "`tiny`: frames have 3 codes, but the codec expects 16");
        let beyond = refused(|config| config.ids.eos = 9999);
        assert_eq!(beyond, "`tiny`: id 9999 is outside the talker's vocabulary of 1152");
        assert!(refused(|config| config.ids.text_pad = 512).contains("text id 512 is outside its vocabulary of 512"));
        assert!(refused(|config| config.text_width = 0).contains("`text_width` is 0"));
        assert!(refused(|config| config.predictor.vocab = 64).contains("64 codes, but the codebooks have 128"));
        assert!(refused(|config| config.talker.vocab = 1000).contains("`vocab` of the talker is 1000"));
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
    fn cache_bytes_count_both_decoders() {
        let config = TtsConfig::from_preset("0.6b").unwrap();
        assert_eq!(config.cache_bytes(1000, Dtype::Bf16), 1000 * 114_688 + 16 * 2 * 5 * 8 * 128 * 2);
    }

    proptest! {
        #[test]
        fn any_sizes_are_accepted_or_refused_without_a_panic(
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
