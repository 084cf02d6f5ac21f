//! The models that are known by name.

use super::voices::{published_languages, published_speakers};
use super::{CodecConfig, Speaker, TokenIds, TtsConfig};
use crate::{Config, Dtype, ModelError, presets};

const PUBLISHED_CODES: u32 = 2048;

const TINY_CODES: u32 = 128;

impl TtsConfig {
    /// The model of this name: `0.6b`, `1.7b` or `tiny`, case-insensitive, with or without `Qwen3-TTS-` before it.
    pub fn from_preset(name: &str) -> Result<Self, ModelError> {
        presets::by_name((name, "text-to-speech model"), Self::presets(), |config| &config.name, plain)
    }

    /// Every model that is known by name, small ones first.
    pub fn presets() -> Vec<Self> {
        vec![
            tiny(),
            published("Qwen3-TTS-0.6B", [1024, 28, 16, 8, 128, 3072]),
            published("Qwen3-TTS-1.7B", [2048, 28, 16, 8, 128, 6144]),
        ]
    }
}

fn plain(name: &str) -> String {
    let lower = presets::published_name(name);
    let mut rest = lower.as_str();
    for prefix in ["qwen3-tts-", "12hz-"] {
        rest = rest.strip_prefix(prefix).unwrap_or(rest);
    }
    let without = ["-customvoice", "-base", "-voicedesign"].into_iter().find_map(|variant| rest.strip_suffix(variant));
    without.unwrap_or(rest).to_owned()
}

fn decoder(name: &str, sizes: [usize; 6], vocab: usize, context: usize) -> Config {
    Config { vocab, context, tied: false, ..presets::base(name, sizes) }
}

/// The transformer of a codec: no norm by head, short wavelengths.
fn codec_transformer(sizes: [usize; 6], codebook: usize) -> Config {
    let base = decoder("codec", sizes, codebook, 8000);
    let rope = crate::Rope { theta: 1e4, ..base.rope };
    Config { rope, norm_eps: 1e-5, qk_norm: false, ..base }
}

fn published(name: &str, talker: [usize; 6]) -> TtsConfig {
    let codes = PUBLISHED_CODES as usize;
    TtsConfig {
        name: name.to_owned(),
        talker: decoder("talker", talker, codes + 1024, 32_768),
        predictor: decoder("code_predictor", [1024, 5, 16, 8, 128, 3072], codes, 65_536),
        text_vocab: 151_936,
        text_width: 2048,
        groups: 16,
        codec: CodecConfig {
            groups: 16,
            codebook: codes,
            code_width: 512,
            latent: 1024,
            transformer: codec_transformer([512, 8, 16, 16, 64, 1024], codes),
            window: 72,
            ratios: vec![2, 2],
            rates: vec![8, 5, 4, 3],
            channels: 1536,
            sample_rate: 24_000,
        },
        ids: ids([151_671, 151_672, 151_673], [151_644, 77_091, 198], PUBLISHED_CODES),
        speakers: published_speakers(),
        languages: published_languages(),
    }
}

fn ids([text_pad, text_bos, text_eos]: [u32; 3], role: [u32; 3], codes: u32) -> TokenIds {
    TokenIds {
        text_pad,
        text_bos,
        text_eos,
        role,
        pad: codes + 100,
        bos: codes + 101,
        eos: codes + 102,
        think: codes + 106,
        nothink: codes + 107,
        think_bos: codes + 108,
        think_eos: codes + 109,
    }
}

/// A model of no use but to try things: every part of the others, milliseconds a frame on two cores. Tokens of text are
/// bytes, and the special tokens.
fn tiny() -> TtsConfig {
    let small = |config: Config| Config { dtype: Dtype::F32, ..config };
    let codes = TINY_CODES as usize;
    let mut config = published("tiny", [64, 2, 4, 2, 16, 192]);
    let moved = |id: u32| id - PUBLISHED_CODES + TINY_CODES;
    let speakers = config.speakers.into_iter().map(|speaker| Speaker { id: moved(speaker.id), ..speaker });
    config.languages.iter_mut().for_each(|language| language.id = moved(language.id));
    TtsConfig {
        talker: small(decoder("talker", [64, 2, 4, 2, 16, 192], codes + 1024, 4096)),
        predictor: small(decoder("code_predictor", [32, 2, 2, 1, 16, 96], codes, 4096)),
        text_vocab: 512,
        text_width: 48,
        codec: CodecConfig {
            codebook: codes,
            code_width: 32,
            latent: 48,
            transformer: small(codec_transformer([32, 2, 4, 4, 16, 64], codes)),
            window: 8,
            channels: 64,
            ..config.codec
        },
        ids: ids([258, 259, 260], [256, 257, 10], TINY_CODES),
        speakers: speakers.collect(),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_in_any_case_and_spelling() {
        for name in ["0.6b", "0.6B", "qwen3-tts-0.6b", "Qwen/Qwen3-TTS-12Hz-0.6B-CustomVoice"] {
            assert_eq!(TtsConfig::from_preset(name).unwrap().name, "Qwen3-TTS-0.6B");
        }
        assert_eq!(TtsConfig::from_preset("tiny").unwrap().name, "tiny");
        let error = TtsConfig::from_preset("7b").unwrap_err().to_string();
        assert_eq!(error, "there is no text-to-speech model `7b`: there are `tiny`, `0.6b`, `1.7b`");
    }

    #[test]
    fn every_preset_is_valid() {
        for config in TtsConfig::presets() {
            config.check().unwrap();
            assert_eq!((config.groups, config.codec.frame_samples()), (16, 1920));
        }
    }

    #[test]
    fn the_ids_are_those_of_the_published_models() {
        let TokenIds { pad, bos, eos, think, nothink, think_bos, think_eos, .. } =
            TtsConfig::from_preset("1.7b").unwrap().ids;
        assert_eq!([pad, bos, eos], [2148, 2149, 2150]);
        assert_eq!([think, nothink, think_bos, think_eos], [2154, 2155, 2156, 2157]);
        let tiny = TtsConfig::from_preset("tiny").unwrap();
        assert_eq!((tiny.ids.eos, tiny.speaker("ryan").unwrap().id, tiny.first_control()), (230, 1141, 128));
    }
}
