//! How large a model is: parameters and bytes.

use super::TtsConfig;
use crate::Dtype;

impl TtsConfig {
    /// Bytes that the caches need for this many positions of the talker, and for a frame of the predictor.
    pub fn cache_bytes(&self, capacity: usize, dtype: Dtype) -> u64 {
        let talker = self.talker.kv_bytes_per_token(dtype).saturating_mul(capacity as u64);
        talker.saturating_add(self.predictor.kv_bytes_per_token(dtype).saturating_mul(self.groups as u64))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::tensors::checked_count;
    use crate::{Config, HasTensors, TensorSpec};

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
