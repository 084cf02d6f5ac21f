//! Speech models by the `config.json` of a published folder: as `transformers` writes it, or as the first checkpoints have it.

use std::path::Path;

use super::{HeadConfig, SpecialIds, TokenizerConfig, VibeVoiceConfig};
use crate::config_json::{Fields, read_fields};
use crate::folder::{folder_name, read_config};
use crate::{Config, Family, ModelError};

const MODEL_TYPE: &str = "vibevoice";

/// Samples a second: no file tells it.
const SAMPLE_RATE: u32 = 24_000;

/// Older files have the deviation before it is spread further.
const OLDER_SPREAD: f64 = 0.8;

impl VibeVoiceConfig {
    /// The model of a folder with a `config.json`, by the name of the folder.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        Self::from_json(&read_config(folder)?, &folder_name(folder))
    }

    /// The model that the text of a file describes.
    pub fn from_json(text: &str, name: &str) -> Result<Self, ModelError> {
        let config = read_fields(text, ("config.json", name), |fields| speech_config(fields, name))?;
        config.check()?;
        Ok(config)
    }
}

fn speech_config(fields: &Fields<'_>, name: &str) -> Result<VibeVoiceConfig, String> {
    fields.is_of_type(MODEL_TYPE)?;
    let is_older = fields.value("decoder_config").is_some();
    let part = |new: &str, old: &str| fields.inner(if is_older { old } else { new });
    let text = part("text_config", "decoder_config")?;
    let decoder = text.decoder("language_model", Family::Qwen2, text.needed("vocab_size")?)?;
    let dtype = if fields.value("dtype").is_some() || fields.value("torch_dtype").is_some() {
        fields.dtype()?
    } else {
        decoder.dtype
    };
    let decoder = Config { dtype, ..decoder };
    let acoustic = part("audio_config", "acoustic_tokenizer_config")?;
    let semantic = part("semantic_model_config", "semantic_tokenizer_config")?;
    let of_head = part("diffusion_head_config", "diffusion_head_config")?;
    let config = VibeVoiceConfig {
        name: name.to_owned(),
        head: head(&of_head, decoder.hidden, is_older)?,
        acoustic: tokenizer(&acoustic, is_older)?,
        semantic: tokenizer(&semantic, is_older)?,
        voice_deviation: deviation(&acoustic, is_older)?,
        sample_rate: SAMPLE_RATE,
        ids: ids(fields)?,
        decoder,
    };
    as_wide(&of_head, "hidden_size", config.decoder.hidden)?;
    as_wide(&of_head, "latent_size", config.acoustic.latent)?;
    Ok(config)
}

/// Refuses a head that does not fit what it stands between.
fn as_wide(head: &Fields<'_>, field: &str, wanted: usize) -> Result<(), String> {
    match head.count(field)? {
        Some(found) if found != wanted => Err(format!("`{field}` of the diffusion head is {found}, and not {wanted}")),
        _ => Ok(()),
    }
}

fn ids(fields: &Fields<'_>) -> Result<SpecialIds, String> {
    Ok(SpecialIds {
        bos: fields.id("audio_bos_token_id")?.unwrap_or(151_652),
        eos: fields.id("audio_eos_token_id")?.unwrap_or(151_653),
        audio: fields.id("audio_token_id")?.unwrap_or(151_654),
        end: fields.id("eos_token_id")?.unwrap_or(151_643),
    })
}

fn head(fields: &Fields<'_>, hidden: usize, is_older: bool) -> Result<HeadConfig, String> {
    fields.only("hidden_act", "silu")?;
    fields.refuse_true("mlp_bias", "the diffusion head has no biases here")?;
    let widening = fields.number("head_ffn_ratio")?.unwrap_or(3.0);
    Ok(HeadConfig {
        layers: fields.needed(if is_older { "head_layers" } else { "num_hidden_layers" })?,
        ffn: if is_older { (widening * hidden as f64) as usize } else { fields.needed("intermediate_size")? },
        frequencies: fields.count("frequency_embedding_size")?.unwrap_or(256),
        period: fields.number("diffusion_max_period")?.unwrap_or(10_000.0),
        norm_eps: fields.number("rms_norm_eps")?.unwrap_or(1e-5),
    })
}

fn tokenizer(fields: &Fields<'_>, is_older: bool) -> Result<TokenizerConfig, String> {
    fields.only("hidden_act", "gelu")?;
    fields.only("mixer_layer", "depthwise_conv")?;
    if let Some(other @ (0 | 2..)) = fields.count("channels")? {
        return Err(format!("`channels` is {other}, and not 1"));
    }
    let [latent, filters, ratios, depths, norm_eps] = match is_older {
        true => ["vae_dim", "encoder_n_filters", "encoder_ratios", "encoder_depths", "layernorm_eps"],
        false => ["hidden_size", "num_filters", "downsampling_ratios", "depths", "rms_norm_eps"],
    };
    let mut ratios = fields.counts(ratios)?;
    if is_older {
        ratios.reverse();
    }
    Ok(TokenizerConfig {
        latent: fields.needed(latent)?,
        filters: fields.needed(filters)?,
        ratios,
        depths: fields.counts(depths)?,
        kernel: fields.count("kernel_size")?.unwrap_or(7),
        widening: fields.count("ffn_expansion")?.unwrap_or(4),
        norm_eps: fields.number(norm_eps)?.unwrap_or(1e-5),
    })
}

fn deviation(acoustic: &Fields<'_>, is_older: bool) -> Result<f32, String> {
    let stored = match is_older {
        true => acoustic.number("fix_std")?.map(|stored| stored / OLDER_SPREAD),
        false => acoustic.number("vae_std")?,
    };
    Ok(stored.unwrap_or(0.625) as f32)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEW: &str = r#"{"model_type": "vibevoice", "dtype": "bfloat16", "audio_bos_token_id": 151652,
        "audio_eos_token_id": 151653, "audio_token_id": 151654, "eos_token_id": 151643, "text_config": {
        "model_type": "qwen2", "vocab_size": 151936, "hidden_size": 1536, "intermediate_size": 8960,
        "num_hidden_layers": 28, "num_attention_heads": 12, "num_key_value_heads": 2, "hidden_act": "silu",
        "max_position_embeddings": 65536, "rms_norm_eps": 1e-06, "rope_theta": 1000000.0, "tie_word_embeddings": true},
        "audio_config": {"channels": 1, "hidden_size": 64, "kernel_size": 7, "rms_norm_eps": 1e-05, "num_filters": 32,
        "downsampling_ratios": [2, 2, 4, 5, 5, 8], "depths": [3, 3, 3, 3, 3, 3, 8], "hidden_act": "gelu",
        "ffn_expansion": 4, "vae_std": 0.625}, "semantic_model_config": {"hidden_size": 128, "num_filters": 32,
        "downsampling_ratios": [2, 2, 4, 5, 5, 8], "depths": [3, 3, 3, 3, 3, 3, 8]}, "diffusion_head_config": {
        "hidden_size": 1536, "latent_size": 64, "num_hidden_layers": 4, "intermediate_size": 4608,
        "rms_norm_eps": 1e-05, "hidden_act": "silu", "frequency_embedding_size": 256}}"#;

    const OLD: &str = r#"{"model_type": "vibevoice", "torch_dtype": "bfloat16", "acoustic_vae_dim": 64,
        "acoustic_tokenizer_config": {"causal": true, "channels": 1, "encoder_depths": "3-3-3-3-3-3-8",
        "encoder_n_filters": 32, "encoder_ratios": [8, 5, 5, 4, 2, 2], "fix_std": 0.5, "layernorm_eps": 1e-05,
        "mixer_layer": "depthwise_conv", "vae_dim": 64}, "semantic_tokenizer_config": {"channels": 1,
        "encoder_depths": "3-3-3-3-3-3-8", "encoder_n_filters": 32, "encoder_ratios": [8, 5, 5, 4, 2, 2],
        "fix_std": 0, "vae_dim": 128}, "decoder_config": {"model_type": "qwen2", "vocab_size": 152064,
        "hidden_size": 3584, "intermediate_size": 18944, "num_hidden_layers": 28, "num_attention_heads": 28,
        "num_key_value_heads": 4, "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-06,
        "rope_theta": 1000000.0, "rope_scaling": null, "tie_word_embeddings": false, "torch_dtype": "bfloat16",
        "use_sliding_window": false}, "diffusion_head_config": {"head_ffn_ratio": 3.0, "head_layers": 4,
        "hidden_size": 3584, "latent_size": 64, "rms_norm_eps": 1e-05, "speech_vae_dim": 64}}"#;

    fn refused(text: &str, change: &str, to: &str) -> String {
        assert!(text.contains(change), "{change}");
        VibeVoiceConfig::from_json(&text.replacen(change, to, 1), "it").unwrap_err().to_string()
    }

    #[test]
    fn published_configurations_give_the_presets() {
        for (text, preset) in [(NEW, "1.5b"), (OLD, "7b")] {
            let preset = VibeVoiceConfig::from_preset(preset).unwrap();
            assert_eq!(VibeVoiceConfig::from_json(text, &preset.name).unwrap(), preset);
        }
    }

    #[test]
    fn what_is_wrong_is_named_by_its_field() {
        assert_eq!(
            refused(NEW, r#""model_type": "vibevoice""#, r#""model_type": "qwen2""#),
            "config.json of `it`: `model_type` is `qwen2`, expected `vibevoice`"
        );
        let missing = refused(NEW, r#""audio_config""#, r#""audio""#);
        assert!(missing.ends_with("`audio_config` is missing"), "{missing}");
        let wide = refused(NEW, r#""latent_size": 64"#, r#""latent_size": 65"#);
        assert!(wide.ends_with("`latent_size` of the diffusion head is 65, and not 64"), "{wide}");
        assert!(
            refused(OLD, "3-3-3-3-3-3-8", "3-x").contains("`encoder_depths` is \"3-x\", expected a list of integers")
        );
        assert!(refused(OLD, "depthwise_conv", "conv").contains("`mixer_layer` is `conv`"));
        assert!(refused(NEW, r#""hidden_act": "gelu""#, r#""hidden_act": "relu""#).contains("`hidden_act` is `relu`"));
        assert!(VibeVoiceConfig::from_json("[]", "it").unwrap_err().to_string().ends_with("expected a JSON object"));
    }
}
