//! Where the weights of a speech model come from: a seed, or a folder.

use std::path::Path;

use super::{
    VibeVoiceConfig,
    names::{OLDER_ONLY, older},
};
use crate::{
    Dtype, Family, ModelError, TensorData, TensorSpec,
    folder::Folder,
    misfit::Misfit,
    numbers::to_f32,
    synthetic::fill,
    weights::{TensorSource, check_finite},
};

/// Tensors are filled as those of Qwen2.
const FAMILY: Family = Family::Qwen2;

/// The weights of a speech model, before they are on a device.
#[derive(Debug)]
pub struct VibeVoiceWeights {
    source: Source,
}

#[derive(Debug)]
enum Source {
    Synthetic {
        seed: u64,
    },
    Folder {
        files: Folder,
        /// Whether its tensors have the older names.
        is_older: bool,
    },
}

impl VibeVoiceWeights {
    /// Weights by formula, from a seed.
    pub fn synthetic(seed: u64) -> Self {
        Self { source: Source::Synthetic { seed } }
    }

    /// The weights of a folder, once they are seen to fit the model: `model.safetensors`, or several with an index, under
    /// the names of `transformers` or the older ones. Nothing is read but headers.
    pub fn open(folder: &Path, config: &VibeVoiceConfig) -> Result<Self, ModelError> {
        config.check()?;
        let files = Folder::open_any(folder)?;
        let is_older = files.tensors().contains_key(OLDER_ONLY);
        let specs = config.tensors().into_iter().map(|spec| if is_older { as_older(&spec) } else { spec }).collect();
        let harmless = |name: &str| is_harmless(config, name);
        match Misfit::between(specs, files.tensors(), harmless).reasons() {
            None => Ok(Self { source: Source::Folder { files, is_older } }),
            Some((reasons, types_alone)) => {
                let (folder, model) = (folder.to_owned(), config.name.clone());
                Err(ModelError::Unfit { folder, model, reasons, types_alone })
            }
        }
    }

    /// Whether they are made by formula.
    pub fn is_synthetic(&self) -> bool {
        matches!(self.source, Source::Synthetic { .. })
    }

    /// The numbers of a tensor, by its name in `transformers`.
    pub fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        match &self.source {
            Source::Synthetic { seed } => {
                Ok(TensorData::Filled { fill: fill(FAMILY, spec, *seed), count: spec.count() })
            }
            Source::Folder { files, is_older } => {
                let (dtype, bytes) = if *is_older { files.tensor(&as_older(spec))? } else { files.tensor(spec)? };
                Ok(TensorData::Stored { dtype, bytes })
            }
        }
    }

    /// The weights of the language model, under the names of a decoder alone.
    pub(crate) fn decoder(&self) -> DecoderWeights<'_> {
        DecoderWeights(self)
    }

    /// The factors of latents, as a dtype rounds them.
    pub(crate) fn factors(&self, config: &VibeVoiceConfig, dtype: Dtype) -> Result<[f32; 2], ModelError> {
        let [scale, bias] = &config.factors();
        let factor = |spec| {
            let numbers = to_f32(dtype, &self.tensor(spec)?.to_bytes(dtype));
            Ok::<_, ModelError>(numbers.first().copied().unwrap_or_default())
        };
        Ok([factor(scale)?, factor(bias)?])
    }

    /// Refuses weights that are no finite numbers, and names the first tensor with one. Reads all of them.
    pub fn check_finite(&self, config: &VibeVoiceConfig) -> Result<(), ModelError> {
        match self.is_synthetic() {
            true => Ok(()),
            false => check_finite(self, &config.tensors()),
        }
    }
}

impl TensorSource for VibeVoiceWeights {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        Self::tensor(self, spec)
    }
}

/// The weights of the language model, under the names of a decoder alone.
#[derive(Debug, Clone, Copy)]
pub(crate) struct DecoderWeights<'a>(&'a VibeVoiceWeights);

impl TensorSource for DecoderWeights<'_> {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        self.0.tensor(&VibeVoiceConfig::renamed(spec))
    }
}

fn as_older(spec: &TensorSpec) -> TensorSpec {
    TensorSpec { name: older(&spec.name), ..spec.clone() }
}

/// What checkpoints carry along: a head that is the embedding, and what is computed anew.
fn is_harmless(config: &VibeVoiceConfig, name: &str) -> bool {
    let is_tied_head = config.decoder.tied && name == "lm_head.weight";
    is_tied_head || name.ends_with("rotary_emb.inv_freq") || name.ends_with(".fix_std")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Fill, synthetic::key};

    #[test]
    fn synthetic_numbers_are_those_of_the_published_names() {
        let config = VibeVoiceConfig::from_preset("tiny").unwrap();
        let weights = VibeVoiceWeights::synthetic(7);
        let spec = &config.decoder.layer_tensors(1)[1];
        let TensorData::Filled { fill: Fill::Random { key: made, .. }, .. } = weights.decoder().tensor(spec).unwrap()
        else {
            panic!("a matrix is random")
        };
        assert_eq!(made, key(7, "model.language_model.layers.1.self_attn.q_proj.weight"));
        weights.check_finite(&config).unwrap();
    }

    #[test]
    fn a_tied_head_that_is_stored_does_no_harm() {
        let tied = VibeVoiceConfig::from_preset("1.5b").unwrap();
        assert!(is_harmless(&tied, "lm_head.weight") && is_harmless(&tied, "model.acoustic_tokenizer.fix_std"));
        assert!(!is_harmless(&tied, "model.other"));
    }
}
