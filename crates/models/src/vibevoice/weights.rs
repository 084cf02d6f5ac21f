//! Where the weights of a speech model come from: a seed, or a folder.

use std::path::Path;

use super::VibeVoiceConfig;
use super::names::{OLDER_ONLY, older};
use crate::{
    Dtype, Family, HasTensors, ModelError, TensorData, TensorSpec, WeightsOf, folder::Folder, numbers::to_f32,
    weights::TensorSource,
};

/// The weights of a speech model, before they are on a device.
pub type VibeVoiceWeights = WeightsOf<VibeVoiceConfig>;

impl HasTensors for VibeVoiceConfig {
    fn all_tensors(&self) -> Vec<TensorSpec> {
        self.tensors()
    }
}

impl VibeVoiceWeights {
    /// Weights by formula, from a seed: tensors are filled as those of Qwen2.
    pub fn synthetic(seed: u64) -> Self {
        Self::filled(Family::Qwen2, seed)
    }

    /// The weights of a folder, once they are seen to fit the model: `model.safetensors`, or several with an index, under
    /// the names of `transformers` or the older ones. Nothing is read but headers.
    pub fn open(folder: &Path, config: &VibeVoiceConfig) -> Result<Self, ModelError> {
        config.check()?;
        let files = Folder::open_any(folder)?;
        let is_older = files.tensors().contains_key(OLDER_ONLY);
        let as_stored = |name: &str| if is_older { older(name) } else { name.to_owned() };
        let specs = config.tensors().into_iter();
        let stored = specs.map(|spec| TensorSpec { name: as_stored(&spec.name), ..spec }).collect();
        let mut files = files.checked(folder, &config.name, stored, |name| is_harmless(config, name))?;
        for TensorSpec { name, .. } in config.tensors() {
            files.rename(&as_stored(&name), name);
        }
        Ok(Self::stored(files))
    }

    pub(crate) fn decoder(&self) -> DecoderWeights<'_> {
        DecoderWeights(self)
    }

    pub(crate) fn factors(&self, config: &VibeVoiceConfig, dtype: Dtype) -> Result<[f32; 2], ModelError> {
        let [scale, bias] = &config.factors();
        let factor = |spec| {
            let numbers = to_f32(dtype, &self.tensor(spec)?.to_bytes(dtype));
            Ok::<_, ModelError>(numbers.first().copied().unwrap_or_default())
        };
        Ok([factor(scale)?, factor(bias)?])
    }
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct DecoderWeights<'a>(&'a VibeVoiceWeights);

impl TensorSource for DecoderWeights<'_> {
    fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        self.0.tensor(&VibeVoiceConfig::renamed(spec))
    }
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
