//! Text-to-speech models by the two `config.json` of a published folder.

use std::path::Path;

use super::{CodecConfig, Language, Speaker, TokenIds, TtsConfig, weights::CODEC_FOLDER};
use crate::config_json::{Fields, read_fields};
use crate::folder::{folder_name, read_config};
use crate::{Config, Family, ModelError};

const MODEL_TYPE: &str = "qwen3_tts";

const CODEC_TYPE: &str = "qwen3_tts_tokenizer_12hz";

/// What the official class adds under the root of the codec's norms where a file says nothing.
const CODEC_EPS: f64 = 1e-5;

/// Ids of text that no file tells: those of Qwen's tokenizer.
const ASSISTANT: u32 = 77_091;
const LINE_END: u32 = 198;

impl TtsConfig {
    /// The model of a folder with a `config.json` and a `speech_tokenizer/config.json`, by the name of the folder.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        let (talker, codec) = (read_config(folder)?, read_config(&folder.join(CODEC_FOLDER))?);
        Self::from_json(&talker, &codec, &folder_name(folder))
    }

    /// The model that both files describe.
    pub fn from_json(talker: &str, codec: &str, name: &str) -> Result<Self, ModelError> {
        let codec = read_fields(codec, ("speech_tokenizer/config.json", name), codec_config)?;
        let config = read_fields(talker, ("config.json", name), |fields| tts_config(fields, codec, name))?;
        config.check()?;
        Ok(config)
    }
}

fn tts_config(fields: &Fields<'_>, codec: CodecConfig, name: &str) -> Result<TtsConfig, String> {
    fields.is_of_type(MODEL_TYPE)?;
    let talker = fields.inner("talker_config")?;
    let predictor = talker.inner("code_predictor_config")?;
    let dtype = fields.dtype()?;
    let decoder = |fields: &Fields<'_>, name: &str| -> Result<Config, String> {
        let config = fields.decoder(name, Family::Qwen3, fields.needed("vocab_size")?)?;
        Ok(Config { tied: false, dtype, ..config })
    };
    let (groups, own) = (talker.needed("num_code_groups")?, predictor.needed("num_code_groups")?);
    if groups != own {
        return Err(format!("the talker makes {groups} codes a frame, and its predictor {own}"));
    }
    Ok(TtsConfig {
        name: name.to_owned(),
        talker: decoder(&talker, "talker")?,
        predictor: decoder(&predictor, "code_predictor")?,
        text_vocab: talker.needed("text_vocab_size")?,
        text_width: talker.needed("text_hidden_size")?,
        groups,
        codec: CodecConfig { transformer: Config { dtype, ..codec.transformer }, ..codec },
        ids: ids(fields, &talker)?,
        speakers: speakers(&talker)?,
        languages: named_ids(&talker, "codec_language_id")?
            .into_iter()
            .map(|(name, id)| Language { name, id })
            .collect(),
    })
}

fn ids(fields: &Fields<'_>, talker: &Fields<'_>) -> Result<TokenIds, String> {
    Ok(TokenIds {
        text_pad: fields.needed_id("tts_pad_token_id")?,
        text_bos: fields.needed_id("tts_bos_token_id")?,
        text_eos: fields.needed_id("tts_eos_token_id")?,
        role: role(fields.needed_id("im_start_token_id")?, talker.needed("text_vocab_size")?),
        pad: talker.needed_id("codec_pad_id")?,
        bos: talker.needed_id("codec_bos_id")?,
        eos: talker.needed_id("codec_eos_token_id")?,
        think: talker.needed_id("codec_think_id")?,
        nothink: talker.needed_id("codec_nothink_id")?,
        think_bos: talker.needed_id("codec_think_bos_id")?,
        think_eos: talker.needed_id("codec_think_eos_id")?,
    })
}

/// What stands before a text where there is no tokenizer: the ids of Qwen's, or bytes in a vocabulary that has not got them.
fn role(start: u32, text_vocab: usize) -> [u32; 3] {
    match (ASSISTANT as usize) < text_vocab {
        true => [start, ASSISTANT, LINE_END],
        false => [start, start, u32::from(b'\n')],
    }
}

fn named_ids(fields: &Fields<'_>, field: &str) -> Result<Vec<(String, u32)>, String> {
    let Some(object) = fields.object(field)? else { return Ok(Vec::new()) };
    object.keys().map(|name| Ok((name.to_lowercase(), Fields(object).needed_id(name)?))).collect()
}

fn speakers(talker: &Fields<'_>) -> Result<Vec<Speaker>, String> {
    let dialects = talker.object("spk_is_dialect")?;
    // What is no text is `false`: the speaker has none.
    let dialect = |name: &str| {
        let (_, dialect) = dialects?.iter().find(|(known, _)| known.to_lowercase() == name)?;
        dialect.as_str().map(str::to_lowercase)
    };
    let named = named_ids(talker, "spk_id")?.into_iter();
    Ok(named.map(|(name, id)| Speaker { dialect: dialect(&name), name, id }).collect())
}

fn codec_config(fields: &Fields<'_>) -> Result<CodecConfig, String> {
    fields.is_of_type(CODEC_TYPE)?;
    let decoder = fields.inner("decoder_config")?;
    let codebook = decoder.needed("codebook_size")?;
    let transformer = decoder.decoder("codec", Family::Qwen3, codebook)?;
    let norm_eps = decoder.number("rms_norm_eps")?.unwrap_or(CODEC_EPS);
    let rate = fields.needed("output_sample_rate")?;
    Ok(CodecConfig {
        groups: decoder.needed("num_quantizers")?,
        codebook,
        code_width: decoder.needed("codebook_dim")?,
        latent: decoder.needed("latent_dim")?,
        transformer: Config { norm_eps, qk_norm: false, tied: false, ..transformer },
        window: decoder.needed("sliding_window")?,
        ratios: decoder.counts("upsampling_ratios")?,
        rates: decoder.counts("upsample_rates")?,
        channels: decoder.needed("decoder_dim")?,
        sample_rate: u32::try_from(rate).map_err(|_| format!("`output_sample_rate` is {rate}"))?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TALKER: &str = r#"{"model_type": "qwen3_tts", "torch_dtype": "bfloat16", "im_start_token_id": 151644,
        "tts_pad_token_id": 151671, "tts_bos_token_id": 151672, "tts_eos_token_id": 151673, "talker_config": {
        "model_type": "qwen3_tts_talker", "vocab_size": 3072, "hidden_size": 1024, "intermediate_size": 3072,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 128,
        "hidden_act": "silu", "max_position_embeddings": 32768, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
        "rope_scaling": {"interleaved": true, "mrope_section": [24, 20, 20], "rope_type": "default"},
        "text_vocab_size": 151936, "text_hidden_size": 2048, "num_code_groups": 16, "codec_pad_id": 2148,
        "codec_bos_id": 2149, "codec_eos_token_id": 2150, "codec_think_id": 2154, "codec_nothink_id": 2155,
        "codec_think_bos_id": 2156, "codec_think_eos_id": 2157, "spk_id": {"serena": 3066, "vivian": 3065,
        "uncle_fu": 3010, "ryan": 3061, "aiden": 2861, "ono_anna": 2873, "sohee": 2864, "Eric": 2875, "dylan": 2878},
        "spk_is_dialect": {"ryan": false, "eric": "sichuan_dialect", "dylan": "beijing_dialect"},
        "codec_language_id": {"chinese": 2055, "english": 2050, "german": 2053, "italian": 2070, "portuguese": 2071,
        "spanish": 2054, "japanese": 2058, "korean": 2064, "french": 2061, "russian": 2069, "beijing_dialect": 2074,
        "sichuan_dialect": 2062}, "code_predictor_config": {"vocab_size": 2048, "hidden_size": 1024,
        "intermediate_size": 3072, "num_hidden_layers": 5, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "max_position_embeddings": 65536, "rms_norm_eps": 1e-06, "rope_theta": 1000000,
        "use_sliding_window": false, "num_code_groups": 16}}}"#;

    const CODEC: &str = r#"{"model_type": "qwen3_tts_tokenizer_12hz", "output_sample_rate": 24000, "decoder_config": {
        "codebook_size": 2048, "codebook_dim": 512, "hidden_size": 512, "latent_dim": 1024, "head_dim": 64,
        "max_position_embeddings": 8000, "rope_theta": 10000, "num_attention_heads": 16, "num_key_value_heads": 16,
        "attention_bias": false, "sliding_window": 72, "intermediate_size": 1024, "hidden_act": "silu",
        "rms_norm_eps": 1e-05, "num_hidden_layers": 8, "num_quantizers": 16, "upsample_rates": [8, 5, 4, 3],
        "upsampling_ratios": [2, 2], "decoder_dim": 1536}}"#;

    fn refused(change: &str, to: &str) -> String {
        assert!(TALKER.contains(change) || CODEC.contains(change), "{change}");
        let (talker, codec) = (TALKER.replacen(change, to, 1), CODEC.replacen(change, to, 1));
        TtsConfig::from_json(&talker, &codec, "it").unwrap_err().to_string()
    }

    #[test]
    fn the_published_files_give_the_preset() {
        let mut preset = TtsConfig::from_preset("0.6b").unwrap();
        let read = TtsConfig::from_json(TALKER, CODEC, &preset.name).unwrap();
        preset.codec.transformer.dtype = crate::Dtype::Bf16;
        assert_eq!(read, preset);
    }

    #[test]
    fn what_is_wrong_is_named_by_its_file_and_field() {
        assert_eq!(
            refused(r#""model_type": "qwen3_tts","#, r#""model_type": "qwen3","#),
            "config.json of `it`: `model_type` is `qwen3`, expected `qwen3_tts`"
        );
        assert_eq!(
            refused(r#""decoder_dim": 1536"#, r#""decoder_dim": "x""#),
            "speech_tokenizer/config.json of `it`: `decoder_dim` is \"x\", expected a non-negative integer"
        );
        assert!(
            refused(r#"[8, 5, 4, 3]"#, "[8, -5]").contains("`upsample_rates` is [8,-5], expected a list of integers")
        );
        assert!(refused(r#""codec_bos_id": 2149,"#, "").ends_with("`codec_bos_id` is missing"));
        assert!(refused(r#""talker_config""#, r#""talker""#).ends_with("`talker_config` is missing"));
        assert!(refused(r#""num_quantizers": 16"#, r#""num_quantizers": 8"#).contains("its codec takes 8"));
        assert!(
            refused(r#""attention_bias": false"#, r#""attention_bias": true"#).contains("`attention_bias` is true")
        );
        assert!(TtsConfig::from_json("[]", CODEC, "it").unwrap_err().to_string().ends_with("expected a JSON object"));
    }
}
