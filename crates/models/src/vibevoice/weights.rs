//! The weights of VibeVoice: synthetic, or from a folder.

use std::path::Path;

use super::VibeVoiceConfig;
use crate::{
    Dtype, Family, HasTensors, ModelError, TensorData, TensorSpec, WeightsOf, folder::Folder, numbers::to_f32,
    weights::TensorSource,
};

/// The weights of VibeVoice, not yet on a device.
pub type VibeVoiceWeights = WeightsOf<VibeVoiceConfig>;

impl VibeVoiceWeights {
    /// Synthetic weights, filled as those of Qwen2.
    pub fn synthetic(seed: u64) -> Self {
        Self::filled(Family::Qwen2, seed)
    }

    /// The weights of a folder: `model.safetensors`, or several with an index, with the names of `transformers` or those of
    /// the first checkpoints. Checks names and shapes, and reads only headers.
    pub fn open(folder: &Path, config: &VibeVoiceConfig) -> Result<Self, ModelError> {
        config.check()?;
        let files = Folder::open_any(folder)?;
        let is_older = files.tensors.contains_key(OLDER_ONLY);
        let as_stored = |name: &str| if is_older { older(name) } else { name.to_owned() };
        let specs = config.all_tensors().into_iter();
        let stored = specs.map(|spec| TensorSpec { name: as_stored(&spec.name), ..spec }).collect();
        let mut files = files.checked(folder, &config.name, stored, |name| is_harmless(config, name))?;
        for TensorSpec { name, .. } in config.all_tensors() {
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

/// Tensors that checkpoints have and the model does not need: a tied head, and constants.
fn is_harmless(config: &VibeVoiceConfig, name: &str) -> bool {
    let is_tied_head = config.decoder.tied && name == "lm_head.weight";
    is_tied_head || name.ends_with("rotary_emb.inv_freq") || name.ends_with(".fix_std")
}

/// Prefixes and what they were in the first checkpoints, longer ones first.
const OLDER: [(&str, &str); 14] = [
    ("model.diffusion_head.timestep_proj.fc1.", "model.prediction_head.t_embedder.mlp.0."),
    ("model.diffusion_head.timestep_proj.fc2.", "model.prediction_head.t_embedder.mlp.2."),
    ("model.diffusion_head.final_layer.linear_1.", "model.prediction_head.final_layer.adaLN_modulation.1."),
    ("model.diffusion_head.final_layer.linear_2.", "model.prediction_head.final_layer.linear."),
    ("model.diffusion_head.", "model.prediction_head."),
    ("model.multi_modal_projector.linear_1.", "model.acoustic_connector.fc1."),
    ("model.multi_modal_projector.linear_2.", "model.acoustic_connector.fc2."),
    ("model.multi_modal_projector.act.", "model.acoustic_connector.norm."),
    ("model.semantic_connector.linear_1.", "model.semantic_connector.fc1."),
    ("model.semantic_connector.linear_2.", "model.semantic_connector.fc2."),
    ("model.semantic_connector.act.", "model.semantic_connector.norm."),
    ("model.latent_scaling_factor", "model.speech_scaling_factor"),
    ("model.latent_bias_factor", "model.speech_bias_factor"),
    ("model.semantic_tokenizer_encoder.", "model.semantic_tokenizer.encoder."),
];

/// A tensor that only checkpoints with the older names have.
const OLDER_ONLY: &str = "model.prediction_head.cond_proj.weight";

fn older(name: &str) -> String {
    let found = OLDER.iter().find_map(|(new, old)| Some(format!("{old}{}", name.strip_prefix(new)?)));
    let renamed = found.unwrap_or_else(|| name.replacen("model.audio_tower.", "model.acoustic_tokenizer.", 1));
    if renamed.contains("prediction_head.layers.") {
        return renamed.replace(".linear.", ".adaLN_modulation.1.");
    }
    match renamed.contains("_tokenizer.") {
        true => older_tokenizer(&renamed),
        false => renamed,
    }
}

/// Stages were two lists: resampling convolutions and blocks.
fn older_tokenizer(name: &str) -> String {
    let list = if name.contains(".decoder.") { "upsample_layers" } else { "downsample_layers" };
    let name = name.replace(".mixer.conv.", ".mixer.conv.conv.conv.").replace(".head.conv.", ".head.conv.conv.");
    if let Some((before, after)) = name.split_once(".stem.") {
        return match after.strip_prefix("stage.") {
            Some(block) => format!("{before}.stages.0.{block}"),
            None => format!("{before}.{list}.0.0.{after}"),
        };
    }
    let Some((before, after)) = name.split_once(".conv_layers.") else { return name };
    let Some((layer, rest)) = after.split_once('.') else { return name };
    let stage = layer.parse::<usize>().map_or(0, |layer| layer + 1);
    match rest.strip_prefix("stage.") {
        Some(block) => format!("{before}.stages.{stage}.{block}"),
        None => format!("{before}.{list}.{stage}.0.{rest}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::vibevoice::VibeVoiceConfig;
    use crate::{Fill, synthetic::key};
    use std::collections::HashSet;

    #[test]
    fn synthetic_weights_depend_on_the_published_names() {
        let config = VibeVoiceConfig::from_preset("tiny").unwrap();
        let weights = VibeVoiceWeights::synthetic(7);
        let spec = &config.decoder.layer_tensors(1)[1];
        let TensorData::Filled { fill: Fill::Random { key: found, .. }, .. } = weights.decoder().tensor(spec).unwrap()
        else {
            panic!("a matrix is random")
        };
        assert_eq!(found, key(7, "model.language_model.layers.1.self_attn.q_proj.weight"));
        weights.check_finite(&config).unwrap();
    }

    #[test]
    fn a_stored_tied_head_is_ignored() {
        let tied = VibeVoiceConfig::from_preset("1.5b").unwrap();
        assert!(is_harmless(&tied, "lm_head.weight") && is_harmless(&tied, "model.acoustic_tokenizer.fix_std"));
        assert!(!is_harmless(&tied, "model.other"));
    }

    #[test]
    fn older_names_are_those_of_the_first_checkpoints() {
        for (new, old) in [
            ("model.language_model.norm.weight", "model.language_model.norm.weight"),
            ("lm_head.weight", "lm_head.weight"),
            ("model.diffusion_head.cond_proj.weight", OLDER_ONLY),
            ("model.diffusion_head.timestep_proj.fc2.weight", "model.prediction_head.t_embedder.mlp.2.weight"),
            ("model.diffusion_head.layers.3.linear.weight", "model.prediction_head.layers.3.adaLN_modulation.1.weight"),
            ("model.diffusion_head.layers.3.ffn.up_proj.weight", "model.prediction_head.layers.3.ffn.up_proj.weight"),
            ("model.diffusion_head.final_layer.linear_2.weight", "model.prediction_head.final_layer.linear.weight"),
            ("model.multi_modal_projector.act.weight", "model.acoustic_connector.norm.weight"),
            ("model.semantic_connector.linear_2.bias", "model.semantic_connector.fc2.bias"),
            ("model.latent_bias_factor", "model.speech_bias_factor"),
            (
                "model.audio_tower.encoder.stem.conv.conv.weight",
                "model.acoustic_tokenizer.encoder.downsample_layers.0.0.conv.conv.weight",
            ),
            (
                "model.semantic_tokenizer_encoder.conv_layers.2.conv.conv.bias",
                "model.semantic_tokenizer.encoder.downsample_layers.3.0.conv.conv.bias",
            ),
            (
                "model.audio_tower.encoder.conv_layers.0.stage.1.mixer.conv.weight",
                "model.acoustic_tokenizer.encoder.stages.1.1.mixer.conv.conv.conv.weight",
            ),
            ("model.audio_tower.encoder.stem.stage.2.gamma", "model.acoustic_tokenizer.encoder.stages.0.2.gamma"),
            (
                "model.audio_tower.decoder.conv_layers.5.convtr.convtr.weight",
                "model.acoustic_tokenizer.decoder.upsample_layers.6.0.convtr.convtr.weight",
            ),
            ("model.audio_tower.decoder.head.conv.bias", "model.acoustic_tokenizer.decoder.head.conv.conv.bias"),
        ] {
            assert_eq!(older(new), old);
        }
    }

    #[test]
    fn older_names_are_unique() {
        let all = VibeVoiceConfig::from_preset("tiny").unwrap().all_tensors();
        let names: HashSet<String> = all.iter().map(|spec| older(&spec.name)).collect();
        assert_eq!(names.len(), all.len());
    }
}
