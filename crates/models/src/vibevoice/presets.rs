//! Built-in models, by name. Each is a `config.json` in the format of the published checkpoints, with the fields that are read.

use super::VibeVoiceConfig;
use crate::{ModelError, presets};

pub(super) const SMALL: &str = include_str!("presets/1.5b.json");
pub(super) const LARGE: &str = include_str!("presets/7b.json");

/// A model to try things with: all parts of the others, a token in milliseconds on two cores. Text tokens are bytes.
const TINY: &str = include_str!("presets/tiny.json");

impl VibeVoiceConfig {
    /// The model of this name: `tiny`, `1.5b` or `7b`, case-insensitive, with or without `VibeVoice-` before it; `large` is
    /// `7b`.
    pub fn from_preset(name: &str) -> Result<Self, ModelError> {
        presets::by_name((name, "speech model"), built_in()?, |config| &config.name, plain)
    }

    /// All built-in models, small ones first.
    pub fn presets() -> Vec<Self> {
        built_in().unwrap_or_default()
    }
}

fn built_in() -> Result<Vec<VibeVoiceConfig>, ModelError> {
    let published = [(TINY, "tiny"), (SMALL, "VibeVoice-1.5B"), (LARGE, "VibeVoice-7B")];
    published.into_iter().map(|(text, name)| VibeVoiceConfig::from_json(text, name)).collect()
}

fn plain(name: &str) -> String {
    let lower = presets::published_name(name);
    match lower.strip_prefix("vibevoice-").unwrap_or(&lower).trim_end_matches("-hf") {
        "large" => "7b".to_owned(),
        other => other.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;

    #[test]
    fn names_are_found_in_any_case_and_spelling() {
        for name in ["1.5b", "1.5B", "vibevoice-1.5b", "microsoft/VibeVoice-1.5B", "vibevoice/VibeVoice-1.5B-hf"] {
            assert_eq!(VibeVoiceConfig::from_preset(name).unwrap().name, "VibeVoice-1.5B");
        }
        assert_eq!(VibeVoiceConfig::from_preset("VibeVoice-Large").unwrap().name, "VibeVoice-7B");
        let error = VibeVoiceConfig::from_preset("0.5b").unwrap_err().to_string();
        assert_eq!(error, "there is no speech model `0.5b`: there are `tiny`, `1.5b`, `7b`");
    }

    #[test]
    fn every_preset_is_valid_and_has_tokens_of_3200_samples() {
        for config in VibeVoiceConfig::presets() {
            config.check().unwrap();
            assert_eq!((config.token_samples(), config.sample_rate), (3200, 24_000));
        }
    }

    #[test]
    fn language_models_are_those_of_qwen() {
        for (name, qwen, context) in [("1.5b", "Qwen2.5-1.5B", 65_536), ("7b", "Qwen2.5-7B", 32_768)] {
            let decoder = VibeVoiceConfig::from_preset(name).unwrap().decoder;
            let qwen = Config { name: decoder.name.clone(), context, ..Config::from_preset(qwen).unwrap() };
            assert_eq!(decoder, qwen);
        }
    }
}
