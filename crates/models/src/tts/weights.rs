//! Where the weights of a text-to-speech model come from: a seed, or a folder.

use std::path::Path;

use super::TtsConfig;
use crate::{
    Family, ModelError, TensorData, TensorSpec,
    folder::Folder,
    misfit::Misfit,
    synthetic::fill,
    weights::{TensorSource, check_finite},
};

/// The folder inside a checkpoint that has the codec.
pub(super) const CODEC_FOLDER: &str = "speech_tokenizer";

/// Tensors are filled as those of Qwen3.
const FAMILY: Family = Family::Qwen3;

/// The weights of a text-to-speech model, before they are on a device.
#[derive(Debug)]
pub struct TtsWeights {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Synthetic {
        seed: u64,
    },
    Folder {
        /// Talker and code predictor.
        talker: Folder,
        codec: Folder,
    },
}

impl TtsWeights {
    /// Weights by formula, from a seed.
    pub fn synthetic(seed: u64) -> Self {
        Self { source: Source::Synthetic { seed } }
    }

    /// The weights of a folder, once they are seen to fit the model: `model.safetensors` (or several, with an index) and
    /// `speech_tokenizer/model.safetensors`. Nothing is read but headers.
    pub fn open(folder: &Path, config: &TtsConfig) -> Result<Self, ModelError> {
        config.check()?;
        let open = |folder: &Path, specs: Vec<TensorSpec>| -> Result<Folder, ModelError> {
            let opened = Folder::open_any(folder)?;
            match Misfit::between(specs, opened.tensors(), is_harmless).reasons() {
                None => Ok(opened),
                Some((reasons, types_alone)) => {
                    let (folder, model) = (folder.to_owned(), config.name.clone());
                    Err(ModelError::Unfit { folder, model, reasons, types_alone })
                }
            }
        };
        let talker = open(folder, config.talker_file_tensors())?;
        let codec = open(&folder.join(CODEC_FOLDER), config.codec_file_tensors())?;
        Ok(Self { source: Source::Folder { talker, codec } })
    }

    /// Whether they are made by formula.
    pub fn is_synthetic(&self) -> bool {
        matches!(self.source, Source::Synthetic { .. })
    }

    /// The numbers of a tensor, by its published name.
    pub fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        match &self.source {
            Source::Synthetic { seed } => {
                Ok(TensorData::Filled { fill: fill(FAMILY, spec, *seed), count: spec.count() })
            }
            Source::Folder { talker, codec } => {
                let folder = if spec.name.starts_with("decoder.") { codec } else { talker };
                let (dtype, bytes) = folder.tensor(spec)?;
                Ok(TensorData::Stored { dtype, bytes })
            }
        }
    }

    /// Refuses weights that are no finite numbers, and names the first tensor with one. Reads all of them.
    pub fn check_finite(&self, config: &TtsConfig) -> Result<(), ModelError> {
        if self.is_synthetic() {
            return Ok(());
        }
        check_finite(self, &config.talker_file_tensors())?;
        check_finite(self, &config.codec_file_tensors())
    }
}

impl TensorSource for TtsWeights {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        Self::tensor(self, spec)
    }
}

/// What checkpoints carry along: the encoders of speakers and of audio, and what only they need.
fn is_harmless(name: &str) -> bool {
    let is_of_encoder = name.starts_with("encoder.") || name.starts_with("speaker_encoder.");
    let goes_in = name.starts_with("decoder.quantizer.") && name.ends_with(".input_proj.weight");
    is_of_encoder || goes_in || name.ends_with("rotary_emb.inv_freq")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, synthetic::key, tts::Part};

    #[test]
    fn synthetic_numbers_are_those_of_the_published_names() {
        let config = TtsConfig::from_preset("tiny").unwrap();
        let weights = TtsWeights::synthetic(7);
        let spec = TtsConfig::renamed(Part::Talker, &config.talker.layer_tensors(1)[1]);
        let TensorData::Filled { fill: Fill::Random { key: made, .. }, count } = weights.tensor(&spec).unwrap() else {
            panic!("a matrix is random")
        };
        assert_eq!(made, key(7, "talker.model.layers.1.self_attn.q_proj.weight"));
        assert_eq!(count, 64 * 64);
        weights.check_finite(&config).unwrap();
    }

    #[test]
    fn what_only_encoders_need_does_no_harm() {
        for name in ["encoder.x", "speaker_encoder.y", "decoder.quantizer.rvq_rest.input_proj.weight"] {
            assert!(is_harmless(name), "{name}");
        }
        assert!(!is_harmless("decoder.pre_transformer.input_proj.weight"));
    }
}
