//! Qwen3-TTS configurations from the two `config.json` files of a published folder.

use std::path::Path;

use super::{CodecConfig, Language, Speaker, TokenIds, TtsConfig, weights::CODEC_FOLDER};
use crate::config_json::{Fields, read_fields};
use crate::folder::{folder_name, read_config};
use crate::{Config, Family, ModelError, error::require};

const MODEL_TYPE: &str = "qwen3_tts";

const CODEC_TYPE: &str = "qwen3_tts_tokenizer_12hz";

/// The default epsilon of the codec's norms.
const CODEC_EPS: f64 = 1e-5;

/// Text ids of Qwen's tokenizer that are in no file.
const ASSISTANT: u32 = 77_091;
const LINE_END: u32 = 198;

impl TtsConfig {
    /// The model of a folder with `config.json` and `speech_tokenizer/config.json`, named after the folder.
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
    require!(groups == own, "the talker has {groups} codes per frame, but the code predictor {own}");
    let languages = named_ids(&talker, "codec_language_id")?;
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
        languages: languages.into_iter().map(|(name, id)| Language { name, id }).collect(),
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

/// The role before a text without a tokenizer: the ids of Qwen's tokenizer, or bytes in a smaller vocabulary.
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
    // It is `false` for a speaker without a dialect.
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
    use super::super::presets::{CODEC, TALKER};
    use super::*;
    use crate::{Rope, presets::base};

    fn refused(change: &str, to: &str) -> String {
        assert!(TALKER.contains(change) || CODEC.contains(change), "{change}");
        let (talker, codec) = (TALKER.replacen(change, to, 1), CODEC.replacen(change, to, 1));
        TtsConfig::from_json(&talker, &codec, "it").unwrap_err().to_string()
    }

    #[test]
    fn the_published_files_are_read() {
        let read = TtsConfig::from_json(TALKER, CODEC, "it").unwrap();
        let decoder = |name, sizes, vocab, context| Config { vocab, context, tied: false, ..base(name, sizes) };
        assert_eq!(read.talker, decoder("talker", [1024, 28, 16, 8, 128, 3072], 3072, 32_768));
        assert_eq!(read.predictor, decoder("code_predictor", [1024, 5, 16, 8, 128, 3072], 2048, 65_536));
        let transformer = decoder("codec", [512, 8, 16, 16, 64, 1024], 2048, 8000);
        let rope = Rope { theta: 1e4, ..transformer.rope };
        let codec = CodecConfig {
            groups: 16,
            codebook: 2048,
            code_width: 512,
            latent: 1024,
            transformer: Config { rope, norm_eps: 1e-5, qk_norm: false, ..transformer },
            window: 72,
            ratios: vec![2, 2],
            rates: vec![8, 5, 4, 3],
            channels: 1536,
            sample_rate: 24_000,
        };
        assert_eq!(read.codec, codec);
        assert_eq!((read.text_vocab, read.text_width, read.groups), (151_936, 2048, 16));
        let TokenIds { text_pad, text_bos, text_eos, role, .. } = read.ids;
        assert_eq!(([text_pad, text_bos, text_eos], role), ([151_671, 151_672, 151_673], [151_644, 77_091, 198]));
        assert_eq!((read.speakers.len(), read.languages.len()), (9, 12));
        let eric = Speaker { name: "eric".to_owned(), id: 2875, dialect: Some("sichuan_dialect".to_owned()) };
        assert_eq!(read.speaker("Eric").unwrap(), &eric);
    }

    #[test]
    fn errors_name_the_file_and_the_field() {
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
        assert!(refused(r#""num_quantizers": 16"#, r#""num_quantizers": 8"#).contains("the codec expects 8"));
        assert!(
            refused(r#""attention_bias": false"#, r#""attention_bias": true"#).contains("`attention_bias` is true")
        );
        assert!(TtsConfig::from_json("[]", CODEC, "it").unwrap_err().to_string().ends_with("expected a JSON object"));
    }
}
