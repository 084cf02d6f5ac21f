//! The weights of Qwen3-TTS: synthetic, or from a folder.

use std::path::Path;

use super::TtsConfig;
use crate::{Family, HasTensors, ModelError, TensorSpec, WeightsOf, folder::Folder};

pub(super) const CODEC_FOLDER: &str = "speech_tokenizer";

/// The weights of Qwen3-TTS, not yet on a device.
pub type TtsWeights = WeightsOf<TtsConfig>;

impl HasTensors for TtsConfig {
    fn all_tensors(&self) -> Vec<TensorSpec> {
        [self.talker_file_tensors(), self.codec_file_tensors()].concat()
    }
}

impl TtsWeights {
    /// Synthetic weights, filled as those of Qwen3.
    pub fn synthetic(seed: u64) -> Self {
        Self::filled(Family::Qwen3, seed)
    }

    /// The weights of a folder: `model.safetensors` (or several, with an index) and `speech_tokenizer/model.safetensors`.
    /// Checks names and shapes, and reads only headers.
    pub fn open(folder: &Path, config: &TtsConfig) -> Result<Self, ModelError> {
        config.check()?;
        let open = |folder: &Path, specs: Vec<TensorSpec>| {
            Folder::open_any(folder)?.checked(folder, &config.name, specs, is_harmless)
        };
        let talker = open(folder, config.talker_file_tensors())?;
        Ok(Self::stored(talker.with(open(&folder.join(CODEC_FOLDER), config.codec_file_tensors())?)))
    }
}

/// Tensors that checkpoints have and the model does not need: those of the speaker and audio encoders.
fn is_harmless(name: &str) -> bool {
    let is_of_encoder = name.starts_with("encoder.") || name.starts_with("speaker_encoder.");
    let is_input = name.starts_with("decoder.quantizer.") && name.ends_with(".input_proj.weight");
    is_of_encoder || is_input || name.ends_with("rotary_emb.inv_freq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, TensorData, synthetic::key, tts::Part};

    #[test]
    fn synthetic_weights_depend_on_the_published_names() {
        let config = TtsConfig::from_preset("tiny").unwrap();
        let weights = TtsWeights::synthetic(7);
        let spec = TtsConfig::renamed(Part::Talker, &config.talker.layer_tensors(1)[1]);
        let TensorData::Filled { fill: Fill::Random { key: found, .. }, count } = weights.tensor(&spec).unwrap() else {
            panic!("a matrix is random")
        };
        assert_eq!(found, key(7, "talker.model.layers.1.self_attn.q_proj.weight"));
        assert_eq!(count, 64 * 64);
        weights.check_finite(&config).unwrap();
    }

    #[test]
    fn tensors_of_encoders_are_ignored() {
        for name in ["encoder.x", "speaker_encoder.y", "decoder.quantizer.rvq_rest.input_proj.weight"] {
            assert!(is_harmless(name), "{name}");
        }
        assert!(!is_harmless("decoder.pre_transformer.input_proj.weight"));
    }
}
