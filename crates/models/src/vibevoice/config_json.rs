//! VibeVoice configurations from the `config.json` of a published folder, as in `transformers` or in the first checkpoints.

use std::path::Path;

use super::{HeadConfig, SpecialIds, TokenizerConfig, VibeVoiceConfig};
use crate::config_json::{Fields, read_fields};
use crate::folder::{folder_name, read_config};
use crate::{Config, Family, ModelError, error::require};

const MODEL_TYPE: &str = "vibevoice";

/// Samples per second; it is in no file.
const SAMPLE_RATE: u32 = 24_000;

/// Older files have the deviation times this factor.
const OLDER_SPREAD: f64 = 0.8;

impl VibeVoiceConfig {
    /// The model of a folder with a `config.json`, named after the folder.
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
    check_width(&of_head, "hidden_size", config.decoder.hidden)?;
    check_width(&of_head, "latent_size", config.acoustic.latent)?;
    Ok(config)
}

/// Refuses a width of the diffusion head that differs from its neighbour's.
fn check_width(head: &Fields<'_>, field: &str, expected: usize) -> Result<(), String> {
    let found = head.count(field)?.unwrap_or(expected);
    require!(found == expected, "`{field}` of the diffusion head is {found}, expected {expected}");
    Ok(())
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
    fields.refuse_true("mlp_bias", "biases of the diffusion head are not supported")?;
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
    let channels = fields.count("channels")?.unwrap_or(1);
    require!(channels == 1, "`channels` is {channels}, expected 1");
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
    use super::super::presets::{LARGE as OLD, SMALL as NEW};
    use super::*;

    fn refused(text: &str, change: &str, to: &str) -> String {
        assert!(text.contains(change), "{change}");
        VibeVoiceConfig::from_json(&text.replacen(change, to, 1), "it").unwrap_err().to_string()
    }

    #[test]
    fn published_files_in_both_layouts_are_read() {
        for (text, hidden) in [(NEW, 1536), (OLD, 3584)] {
            let config = VibeVoiceConfig::from_json(text, "it").unwrap();
            let acoustic = TokenizerConfig {
                latent: 64,
                filters: 32,
                ratios: vec![2, 2, 4, 5, 5, 8],
                depths: vec![3, 3, 3, 3, 3, 3, 8],
                kernel: 7,
                widening: 4,
                norm_eps: 1e-5,
            };
            assert_eq!(config.semantic, TokenizerConfig { latent: 128, ..acoustic.clone() });
            assert_eq!(config.acoustic, acoustic);
            let head = HeadConfig { layers: 4, ffn: 3 * hidden, frequencies: 256, period: 10_000.0, norm_eps: 1e-5 };
            assert_eq!(config.head, head);
            assert_eq!((config.voice_deviation, config.sample_rate), (0.625, 24_000));
            assert_eq!(config.ids, SpecialIds { bos: 151_652, eos: 151_653, audio: 151_654, end: 151_643 });
        }
    }

    #[test]
    fn errors_name_the_field() {
        assert_eq!(
            refused(NEW, r#""model_type": "vibevoice""#, r#""model_type": "qwen2""#),
            "config.json of `it`: `model_type` is `qwen2`, expected `vibevoice`"
        );
        let missing = refused(NEW, r#""audio_config""#, r#""audio""#);
        assert!(missing.ends_with("`audio_config` is missing"), "{missing}");
        let wide = refused(NEW, r#""latent_size": 64"#, r#""latent_size": 65"#);
        assert!(wide.ends_with("`latent_size` of the diffusion head is 65, expected 64"), "{wide}");
        assert!(
            refused(OLD, "3-3-3-3-3-3-8", "3-x").contains("`encoder_depths` is \"3-x\", expected a list of integers")
        );
        assert!(refused(OLD, "depthwise_conv", "conv").contains("`mixer_layer` is `conv`"));
        assert!(refused(NEW, r#""hidden_act": "gelu""#, r#""hidden_act": "relu""#).contains("`hidden_act` is `relu`"));
        assert!(VibeVoiceConfig::from_json("[]", "it").unwrap_err().to_string().ends_with("expected a JSON object"));
    }
}
