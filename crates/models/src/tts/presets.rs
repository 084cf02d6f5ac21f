//! Built-in models, by name. Each is a `config.json` in the format of the published checkpoints, with the fields that are read.

use super::{TokenIds, TtsConfig};
use crate::{Config, ModelError, presets};

pub(super) const TALKER: &str = include_str!("presets/0.6b.json");
pub(super) const CODEC: &str = include_str!("presets/codec.json");

/// A model to try things with: all parts of the others, a frame in milliseconds on two cores. Text tokens are bytes.
const TINY: [&str; 2] = [include_str!("presets/tiny.json"), include_str!("presets/tiny_codec.json")];

impl TtsConfig {
    /// The model of this name: `0.6b`, `1.7b` or `tiny`, case-insensitive, with or without `Qwen3-TTS-` before it.
    pub fn from_preset(name: &str) -> Result<Self, ModelError> {
        presets::by_name((name, "text-to-speech model"), built_in()?, |config| &config.name, plain)
    }

    /// All built-in models, small ones first.
    pub fn presets() -> Vec<Self> {
        built_in().unwrap_or_default()
    }
}

fn built_in() -> Result<Vec<TtsConfig>, ModelError> {
    let tiny = TtsConfig::from_json(TINY[0], TINY[1], "tiny")?;
    let small = TtsConfig::from_json(TALKER, CODEC, "Qwen3-TTS-0.6B")?;
    let talker = Config { hidden: 2048, ffn: 6144, ..small.talker.clone() };
    let large = TtsConfig { name: "Qwen3-TTS-1.7B".to_owned(), talker, ..small.clone() };
    let role = [256, 257, u32::from(b'\n')];
    Ok(vec![TtsConfig { ids: TokenIds { role, ..tiny.ids }, ..tiny }, small, large])
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
