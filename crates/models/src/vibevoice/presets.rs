//! The models that are known by name.

use super::{HeadConfig, SpecialIds, TokenizerConfig, VibeVoiceConfig};
use crate::{Config, Dtype, Family, ModelError, presets};

/// How much wider than the stream the feed-forward part of the published heads is.
const HEAD_WIDENING: usize = 3;

impl VibeVoiceConfig {
    /// The model of this name: `tiny`, `1.5b` or `7b`, case-insensitive, with or without `VibeVoice-` before it; `large` is
    /// `7b`.
    pub fn from_preset(name: &str) -> Result<Self, ModelError> {
        presets::by_name((name, "speech model"), Self::presets(), |config| &config.name, plain)
    }

    /// Every model that is known by name, small ones first.
    pub fn presets() -> Vec<Self> {
        let small = Config { context: 65_536, ..decoder([1536, 28, 12, 2, 128, 8960]) };
        let large = Config { vocab: 152_064, tied: false, ..decoder([3584, 28, 28, 4, 128, 18_944]) };
        vec![tiny(), published("VibeVoice-1.5B", small), published("VibeVoice-7B", large)]
    }
}

fn plain(name: &str) -> String {
    let lower = presets::published_name(name);
    match lower.strip_prefix("vibevoice-").unwrap_or(&lower).trim_end_matches("-hf") {
        "large" => "7b".to_owned(),
        other => other.to_owned(),
    }
}

fn decoder(sizes: [usize; 6]) -> Config {
    let base = presets::base("language_model", sizes);
    Config { family: Family::Qwen2, context: 32_768, qk_norm: false, qkv_bias: true, ..base }
}

fn published(name: &str, decoder: Config) -> VibeVoiceConfig {
    let acoustic = TokenizerConfig {
        latent: 64,
        filters: 32,
        ratios: vec![2, 2, 4, 5, 5, 8],
        depths: vec![3, 3, 3, 3, 3, 3, 8],
        kernel: 7,
        widening: 4,
        norm_eps: 1e-5,
    };
    let ffn = HEAD_WIDENING * decoder.hidden;
    VibeVoiceConfig {
        name: name.to_owned(),
        decoder,
        head: HeadConfig { layers: 4, ffn, frequencies: 256, period: 10_000.0, norm_eps: 1e-5 },
        semantic: TokenizerConfig { latent: 128, ..acoustic.clone() },
        acoustic,
        voice_deviation: 0.625,
        sample_rate: 24_000,
        ids: SpecialIds { bos: 151_652, eos: 151_653, audio: 151_654, end: 151_643 },
    }
}

/// A model of no use but to try things: every part of the others, milliseconds a token on two cores. Tokens of text are
/// bytes.
fn tiny() -> VibeVoiceConfig {
    let small = Config { vocab: 512, context: 4096, dtype: Dtype::F32, ..decoder([64, 4, 4, 2, 16, 192]) };
    let config = published("tiny", small);
    let tokenizer = |large: TokenizerConfig, latent| TokenizerConfig {
        latent,
        filters: 4,
        depths: vec![1, 1, 1, 1, 1, 1, 2],
        ..large
    };
    VibeVoiceConfig {
        head: HeadConfig { layers: 2, frequencies: 32, ..config.head },
        acoustic: tokenizer(config.acoustic, 16),
        semantic: tokenizer(config.semantic, 24),
        ids: SpecialIds { bos: 256, eos: 257, audio: 258, end: 259 },
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn every_preset_holds_the_rules_and_says_a_token_in_3200_samples() {
        for config in VibeVoiceConfig::presets() {
            config.check().unwrap();
            assert_eq!((config.token_samples(), config.sample_rate), (3200, 24_000));
        }
    }

    #[test]
    fn language_models_are_those_of_qwen() {
        for (name, qwen) in [("1.5b", "Qwen2.5-1.5B"), ("7b", "Qwen2.5-7B")] {
            let decoder = VibeVoiceConfig::from_preset(name).unwrap().decoder;
            assert_eq!(decoder.parameters(), Config::from_preset(qwen).unwrap().parameters());
        }
    }
}
