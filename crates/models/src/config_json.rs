//! Reads the `config.json` of a checkpoint, as `transformers` writes it.

use std::path::Path;

use serde_json::{Map, Value};

use crate::folder::{folder_name, read_config};
use crate::fp8::{BLOCK, WeightScales};
use crate::presets::base;
use crate::{Activation, Config, Dtype, Family, ModelError, Pattern, Rope, RopeLayout, RopeScaling, SlidingWindow};

const KNOWN: [(&str, Family); 5] = [
    ("qwen3", Family::Qwen3),
    ("qwen2", Family::Qwen2),
    ("llama", Family::Llama),
    ("gemma3_text", Family::Gemma3),
    ("nano", Family::Nano),
];

/// The default `rope_theta` of `transformers`.
const DEFAULT_THETA: f64 = 10_000.0;

/// The default `rms_norm_eps` of `transformers`.
const DEFAULT_EPS: f64 = 1e-6;

impl Config {
    /// The model in a folder with a `config.json`, named after the folder.
    pub fn from_folder(folder: &Path) -> Result<Self, ModelError> {
        Self::from_json(&read_config(folder)?, &folder_name(folder))
    }

    /// The model that a `config.json` describes.
    pub fn from_json(text: &str, name: &str) -> Result<Self, ModelError> {
        let config = read_fields(text, ("config.json", name), |fields| fields.config(name))?;
        config.check()?;
        Ok(config)
    }
}

/// Reads the text of a JSON file of a model. Errors name both.
pub(crate) fn read_fields<T>(
    text: &str,
    (file, model): (&str, &str),
    read: impl FnOnce(&Fields<'_>) -> Result<T, String>,
) -> Result<T, ModelError> {
    let found = match serde_json::from_str(text) {
        Ok(Value::Object(fields)) => read(&Fields(&fields)),
        Ok(_) => Err("expected a JSON object".to_owned()),
        Err(error) => Err(format!("invalid JSON: {error}")),
    };
    found.map_err(|reason| ModelError::Refused(format!("{file} of `{model}`: {reason}")))
}

/// The fields of a JSON object, read by name so that errors can name them. A null field counts as absent.
pub(crate) struct Fields<'a>(pub &'a Map<String, Value>);

impl Fields<'_> {
    fn config(&self, name: &str) -> Result<Config, String> {
        match self.family()? {
            Family::Nano => self.nano(name),
            Family::Gemma3 => self.gemma3(name),
            family => self.decoder(name, family, self.needed("vocab_size")?),
        }
    }

    /// A decoder of Nano XYZ, with the fields and defaults of its `NanoConfig`.
    fn nano(&self, name: &str) -> Result<Config, String> {
        self.refuse_nano_variants()?;
        let count = |field: &str, default: usize| Ok::<_, String>(self.count(field)?.unwrap_or(default));
        let (hidden, heads, groups) = (count("n_embd", 768)?, count("n_head", 12)?, count("n_kv_groups", 1)?);
        if groups == 0 || !heads.is_multiple_of(groups) {
            return Err(format!("`n_head` is {heads}, expected a multiple of `n_kv_groups` {groups}"));
        }
        let head_dim = hidden.checked_div(heads).unwrap_or_default();
        let sizes = [hidden, count("n_layer", 12)?, heads, heads / groups, head_dim, hidden.saturating_mul(4)];
        let theta = self.number("rope_base")?.unwrap_or(DEFAULT_THETA);
        Ok(Config {
            family: Family::Nano,
            vocab: count("vocab_size", 50_257)?,
            context: count("block_size", 1024)?,
            rope: Rope { theta, layout: RopeLayout::Halves, scaling: None },
            // PyTorch's default for an f32 norm.
            norm_eps: f64::from(f32::EPSILON),
            // `NanoModel` ties them whatever `tie_word_embeddings` is.
            tied: true,
            qk_norm: false,
            ffn_bias: self.truth("bias")?.unwrap_or(true),
            pattern: Some(Pattern {
                window: count("dca_window_size", 256)?,
                global: count("dca_global_tokens", 32)?,
                random: count("dca_random_blocks", 16)?,
            }),
            dtype: self.dtype()?,
            ..base(name, sizes)
        })
    }

    fn refuse_nano_variants(&self) -> Result<(), String> {
        self.only("architecture", "decoder_only")?;
        if self.is_true("add_cross_attention")? || self.is_true("is_encoder_decoder")? {
            return Err("encoder-decoder models are not supported".to_owned());
        }
        self.only("rope_type", "default")?;
        self.refuse_true("use_xpos", "it is not supported")?;
        if let Some(factor) = self.number("yarn_scale_factor")?.filter(|factor| *factor > 1.0) {
            return Err(format!("`yarn_scale_factor` is {factor}; only 1 is supported"));
        }
        match self.value("quantization_config") {
            Some(_) => Err("quantised weights are not supported".to_owned()),
            None => Ok(()),
        }
    }

    /// Gemma 3, with the fields and defaults of its `Gemma3TextConfig`.
    fn gemma3(&self, name: &str) -> Result<Config, String> {
        let head_dim = self.count("head_dim")?.unwrap_or(256);
        self.refuse_gemma3_variants(head_dim)?;
        let decoder = self.decoder(name, Family::Gemma3, self.needed("vocab_size")?)?;
        Ok(Config {
            head_dim,
            rope: Rope { theta: self.gemma3_theta("full_attention", "rope_theta", 1e6)?, ..decoder.rope },
            tied: self.truth("tie_word_embeddings")?.unwrap_or(true),
            qk_norm: true,
            activation: Activation::GeluTanh,
            post_norms: true,
            zero_centred_norms: true,
            scaled_embedding: true,
            window: Some(SlidingWindow {
                size: self.count("sliding_window")?.unwrap_or(4096),
                full_every: self.full_every()?,
                theta: self.gemma3_theta("sliding_attention", "rope_local_base_freq", 1e4)?,
            }),
            ..decoder
        })
    }

    fn refuse_gemma3_variants(&self, head_dim: usize) -> Result<(), String> {
        self.only("hidden_activation", "gelu_pytorch_tanh")?;
        for field in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if self.value(field).is_some() {
                return Err(format!("`{field}` is set, which is not supported"));
            }
        }
        self.refuse_true("use_bidirectional_attention", "only causal attention is supported")?;
        match self.number("query_pre_attn_scalar")?.unwrap_or(256.0) {
            scalar if scalar == head_dim as f64 => Ok(()),
            scalar => Err(format!("`query_pre_attn_scalar` is {scalar}; only `head_dim` ({head_dim}) is supported")),
        }
    }

    /// The RoPE base of one kind of layer. Newer files have it by kind, older ones in a separate field.
    fn gemma3_theta(&self, kind: &str, older: &str, default: f64) -> Result<f64, String> {
        let by_kind = self.object("rope_parameters")?.and_then(|kinds| kinds.get(kind)).and_then(Value::as_object);
        let Some(inner) = by_kind.map(Fields) else { return Ok(self.number(older)?.unwrap_or(default)) };
        inner.only("rope_type", "default")?;
        Ok(inner.number("rope_theta")?.unwrap_or(default))
    }

    /// The interval of layers with full attention.
    fn full_every(&self) -> Result<usize, String> {
        let Some(types) = self.value("layer_types").and_then(Value::as_array) else {
            let older = self.count("sliding_window_pattern")?.or(self.count("_sliding_window_pattern")?);
            return Ok(older.unwrap_or(6));
        };
        let is_full = |kind: &Value| kind.as_str() == Some("full_attention");
        let every = types.iter().position(is_full).unwrap_or(types.len()) + 1;
        match types.iter().enumerate().all(|(at, kind)| is_full(kind) == (at + 1).is_multiple_of(every)) {
            true => Ok(every),
            false => Err("`layer_types` has `full_attention` at uneven distances, which is not supported".to_owned()),
        }
    }

    /// A decoder in the fields that most families share.
    pub fn decoder(&self, name: &str, family: Family, vocab: usize) -> Result<Config, String> {
        self.refuse_variants(family)?;
        let weight_scales = self.weight_scales()?;
        let (hidden, heads) = (self.needed("hidden_size")?, self.needed("num_attention_heads")?);
        let kv_heads = self.count("num_key_value_heads")?.unwrap_or(heads);
        let head_dim = self.count("head_dim")?.unwrap_or_else(|| hidden.checked_div(heads).unwrap_or_default());
        let (layers, ffn) = (self.needed("num_hidden_layers")?, self.needed("intermediate_size")?);
        Ok(Config {
            family,
            vocab,
            context: self.needed("max_position_embeddings")?,
            rope: self.rope()?,
            norm_eps: self.number("rms_norm_eps")?.unwrap_or(DEFAULT_EPS),
            tied: self.is_true("tie_word_embeddings")?,
            qk_norm: family == Family::Qwen3,
            qkv_bias: family == Family::Qwen2,
            ffn_bias: self.is_true("mlp_bias")?,
            dtype: if weight_scales.is_some() { Dtype::Fp8 } else { self.dtype()? },
            weight_scales: weight_scales.unwrap_or_default(),
            ..base(name, [hidden, layers, heads, kv_heads, head_dim, ffn])
        })
    }

    fn refuse_variants(&self, family: Family) -> Result<(), String> {
        if family != Family::Qwen2 {
            self.refuse_true("attention_bias", "a bias after attention is not supported")?;
        }
        if family == Family::Gemma3 {
            return Ok(());
        }
        let slides = |value: &Value| value.as_str() == Some("sliding_attention");
        let types = self.value("layer_types").and_then(Value::as_array);
        if self.is_true("use_sliding_window")? || types.is_some_and(|types| types.iter().any(slides)) {
            return Err("sliding window attention is not supported in this family".to_owned());
        }
        match self.text("hidden_act")? {
            None | Some("silu" | "swish") => Ok(()),
            Some(other) => Err(format!("`hidden_act` is `{other}`; only `silu` is supported")),
        }
    }

    /// How the weights of the checkpoint are quantised, if they are. Only the scheme of DeepSeek-V3 and Qwen3 is supported:
    /// e4m3 with a scale for each block of 128 x 128.
    fn weight_scales(&self) -> Result<Option<WeightScales>, String> {
        let Some(fields) = self.object("quantization_config")?.map(Fields) else { return Ok(None) };
        let method = fields.text("quant_method")?.unwrap_or("an unnamed method");
        let block = fields.value("weight_block_size").and_then(Value::as_array);
        let is_square = block.is_some_and(|block| block.iter().map(Value::as_u64).eq([Some(BLOCK as u64); 2]));
        let is_e4m3 = fields.text("fmt")?.is_none_or(|format| format == "e4m3");
        if method == "fp8" && is_square && is_e4m3 {
            return Ok(Some(WeightScales::Blocks));
        }
        let supported = "only fp8 (e4m3) with `weight_block_size` [128, 128] is supported";
        Err(format!("the weights are quantised with `{method}`; {supported}"))
    }

    fn family(&self) -> Result<Family, String> {
        let known = KNOWN.map(|(name, _)| name).join(", ");
        let asked = self.text("model_type")?;
        let asked = asked.ok_or_else(|| format!("`model_type` is missing, expected one of {known}"))?;
        let found = KNOWN.into_iter().find(|(name, _)| *name == asked).map(|(_, family)| family);
        found.ok_or_else(|| format!("`model_type` is `{asked}`, expected one of {known}"))
    }

    fn rope(&self) -> Result<Rope, String> {
        let outer = self.number("rope_theta")?;
        let (mut theta, mut scaling) = (outer, None);
        if let Some(inner) = self.object("rope_parameters")?.or(self.object("rope_scaling")?).map(Fields) {
            theta = inner.number("rope_theta")?.or(outer);
            if inner.number("partial_rotary_factor")?.is_some_and(|part| part != 1.0) {
                return Err("`partial_rotary_factor` is not 1; partial rotary embeddings are not supported".to_owned());
            }
            scaling = match inner.text("rope_type")?.or(inner.text("type")?) {
                None | Some("default") => None,
                Some("llama3") => Some(self.llama3(&inner)?),
                Some(other) => return Err(format!("RoPE scaling `{other}` is not supported, only `llama3`")),
            };
        }
        Ok(Rope { theta: theta.unwrap_or(DEFAULT_THETA), layout: RopeLayout::Halves, scaling })
    }

    fn llama3(&self, inner: &Fields<'_>) -> Result<RopeScaling, String> {
        let number = |field: &str| inner.number(field)?.ok_or_else(|| missing(field));
        let trained = "original_max_position_embeddings";
        Ok(RopeScaling {
            factor: number("factor")?,
            low: number("low_freq_factor")?,
            high: number("high_freq_factor")?,
            trained: inner.count(trained)?.map_or_else(|| self.needed(trained), Ok)?,
        })
    }

    pub fn dtype(&self) -> Result<Dtype, String> {
        let Some(name) = self.text("dtype")?.or(self.text("torch_dtype")?) else { return Ok(Dtype::F32) };
        name.parse().map_err(|error: ModelError| error.to_string())
    }

    pub fn value(&self, field: &str) -> Option<&Value> {
        self.0.get(field).filter(|value| !value.is_null())
    }

    pub fn count(&self, field: &str) -> Result<Option<usize>, String> {
        self.read(field, "a non-negative integer", as_count)
    }

    pub fn needed(&self, field: &str) -> Result<usize, String> {
        self.count(field)?.ok_or_else(|| missing(field))
    }

    pub fn id(&self, field: &str) -> Result<Option<u32>, String> {
        self.read(field, "a token ID", |value| value.as_u64().and_then(|id| u32::try_from(id).ok()))
    }

    pub fn needed_id(&self, field: &str) -> Result<u32, String> {
        self.id(field)?.ok_or_else(|| missing(field))
    }

    pub fn number(&self, field: &str) -> Result<Option<f64>, String> {
        self.read(field, "a number", Value::as_f64)
    }

    pub fn truth(&self, field: &str) -> Result<Option<bool>, String> {
        self.read(field, "true or false", Value::as_bool)
    }

    fn is_true(&self, field: &str) -> Result<bool, String> {
        Ok(self.truth(field)?.unwrap_or_default())
    }

    pub fn text(&self, field: &str) -> Result<Option<&str>, String> {
        self.read(field, "a string", Value::as_str)
    }

    pub fn object(&self, field: &str) -> Result<Option<&Map<String, Value>>, String> {
        self.read(field, "an object", Value::as_object)
    }

    pub fn inner(&self, field: &str) -> Result<Fields<'_>, String> {
        self.object(field)?.map(Fields).ok_or_else(|| missing(field))
    }

    /// A list of integers, also as `3-3-8`.
    pub fn counts(&self, field: &str) -> Result<Vec<usize>, String> {
        let counts = self.read(field, "a list of integers", |value| match value {
            Value::String(text) => text.split('-').map(|count| count.trim().parse().ok()).collect(),
            _ => value.as_array()?.iter().map(as_count).collect(),
        });
        counts?.ok_or_else(|| missing(field))
    }

    /// Refuses any other value than this one, which is the default.
    pub fn only(&self, field: &str, supported: &str) -> Result<(), String> {
        match self.text(field)? {
            Some(other) if other != supported => {
                Err(format!("`{field}` is `{other}`; only `{supported}` is supported"))
            }
            _ => Ok(()),
        }
    }

    pub fn refuse_true(&self, field: &str, reason: &str) -> Result<(), String> {
        if self.is_true(field)? { Err(format!("`{field}` is true; {reason}")) } else { Ok(()) }
    }

    pub fn is_of_type(&self, wanted: &str) -> Result<(), String> {
        match self.text("model_type")? {
            Some(found) if found == wanted => Ok(()),
            Some(other) => Err(format!("`model_type` is `{other}`, expected `{wanted}`")),
            None => Err(format!("`model_type` is missing, expected `{wanted}`")),
        }
    }

    fn read<'v, T>(
        &'v self,
        field: &str,
        expected: &str,
        read: impl Fn(&'v Value) -> Option<T>,
    ) -> Result<Option<T>, String> {
        let Some(value) = self.value(field) else { return Ok(None) };
        read(value).map(Some).ok_or_else(|| format!("`{field}` is {value}, expected {expected}"))
    }
}

fn as_count(value: &Value) -> Option<usize> {
    value.as_u64().and_then(|count| usize::try_from(count).ok())
}

fn missing(field: &str) -> String {
    format!("`{field}` is missing")
}

#[cfg(test)]
mod tests {
    use super::*;

    const QWEN3: &str = r#"{"architectures": ["Qwen3ForCausalLM"], "attention_bias": false, "head_dim": 128,
        "hidden_act": "silu", "hidden_size": 1024, "intermediate_size": 3072, "max_position_embeddings": 40960,
        "model_type": "qwen3", "num_attention_heads": 16, "num_hidden_layers": 28, "num_key_value_heads": 8,
        "rms_norm_eps": 1e-06, "rope_scaling": null, "rope_theta": 1000000, "sliding_window": null,
        "tie_word_embeddings": true, "torch_dtype": "bfloat16", "use_sliding_window": false, "vocab_size": 151936}"#;

    const LLAMA: &str = r#"{"model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192, "vocab_size": 128256,
        "max_position_embeddings": 131072, "num_attention_heads": 32, "num_hidden_layers": 16,
        "num_key_value_heads": 8, "rms_norm_eps": 1e-05, "tie_word_embeddings": true, ROPE, "torch_dtype": "bfloat16"}"#;

    const SCALING: &str = r#""factor": 32.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192, "rope_type": "llama3""#;

    fn refused(change: &str, to: &str) -> String {
        assert!(QWEN3.contains(change));
        Config::from_json(&QWEN3.replace(change, to), "it").unwrap_err().to_string()
    }

    #[test]
    fn published_configurations_give_the_presets() {
        let qwen3 = Config::from_preset("Qwen3-0.6B").unwrap();
        assert_eq!(Config::from_json(QWEN3, "Qwen3-0.6B").unwrap(), qwen3);
        let llama = Config::from_preset("Llama-3.2-1B").unwrap();
        let old = format!(r#""rope_theta": 500000.0, "rope_scaling": {{{SCALING}}}"#);
        let new = format!(r#""rope_parameters": {{"rope_theta": 500000.0, {SCALING}}}"#);
        for rope in [old, new] {
            assert_eq!(Config::from_json(&LLAMA.replace("ROPE", &rope), "Llama-3.2-1B").unwrap(), llama);
        }
    }

    const GEMMA3: &str = r#"{"model_type": "gemma3_text", "attn_logit_softcapping": null, "head_dim": 256,
        "hidden_activation": "gelu_pytorch_tanh", "hidden_size": 1152, "intermediate_size": 6912,
        "max_position_embeddings": 32768, "num_attention_heads": 4, "num_hidden_layers": 26, "num_key_value_heads": 1,
        "query_pre_attn_scalar": 256, "rms_norm_eps": 1e-06, "rope_local_base_freq": 10000, "rope_scaling": null,
        "rope_theta": 1000000, "sliding_window": 512, "sliding_window_pattern": 6, "torch_dtype": "bfloat16",
        "vocab_size": 262144}"#;

    #[test]
    fn both_spellings_of_gemma_3_give_its_preset() {
        let preset = Config::from_preset("google/gemma-3-1b").unwrap();
        assert_eq!(Config::from_json(GEMMA3, "gemma-3-1b").unwrap(), preset);
        let types: Vec<_> = (1..=26).map(|layer| if layer % 6 == 0 { "full" } else { "sliding" }).collect();
        let types = types.join("_attention\", \"");
        let newer = GEMMA3
            .replace("\"rope_local_base_freq\": 10000, \"rope_scaling\": null,", "")
            .replace("\"sliding_window_pattern\": 6", &format!("\"layer_types\": [\"{types}_attention\"]"))
            .replace(
                "\"rope_theta\": 1000000",
                r#""rope_parameters": {"full_attention": {"rope_type": "default", "rope_theta": 1000000},
                    "sliding_attention": {"rope_type": "default", "rope_theta": 10000}}"#,
            );
        assert_eq!(Config::from_json(&newer, "gemma-3-1b").unwrap(), preset);
    }

    #[test]
    fn unsupported_variants_of_gemma_3_are_refused_by_their_field() {
        let refused = |change: &str, to: &str| {
            assert!(GEMMA3.contains(change));
            Config::from_json(&GEMMA3.replace(change, to), "it").unwrap_err().to_string()
        };
        let scalar = refused("\"query_pre_attn_scalar\": 256", "\"query_pre_attn_scalar\": 168");
        assert!(scalar.ends_with("`query_pre_attn_scalar` is 168; only `head_dim` (256) is supported"), "{scalar}");
        let capped = refused("\"attn_logit_softcapping\": null", "\"attn_logit_softcapping\": 50.0");
        assert!(capped.contains("`attn_logit_softcapping` is set"), "{capped}");
        let gelu = refused("gelu_pytorch_tanh", "gelu");
        assert!(gelu.contains("`hidden_activation` is `gelu`"), "{gelu}");
        let linear = refused("\"rope_scaling\": null", r#""rope_scaling": {"rope_type": "linear", "factor": 8.0}"#);
        assert!(linear.contains("RoPE scaling `linear`"), "{linear}");
        let both = refused("\"head_dim\"", "\"use_bidirectional_attention\": true, \"head_dim\"");
        assert!(both.contains("only causal attention"), "{both}");
        let types = r#""layer_types": ["full_attention", "sliding_attention", "full_attention"], "head_dim""#;
        assert!(refused("\"head_dim\"", types).contains("at uneven distances"));
    }

    #[test]
    fn a_config_of_nano_xyz_gives_its_preset_and_the_same_defaults() {
        let tiny = r#"{"model_type": "nano", "vocab_size": 50257, "n_layer": 6, "n_head": 8, "n_embd": 512,
            "block_size": 1024, "n_kv_groups": null, "rope_type": "default", "rope_base": 10000.0, "bias": true,
            "dca_window_size": 256, "dca_global_tokens": 32, "dca_random_blocks": 16, "architecture": "decoder_only",
            "quantization_config": null, "torch_dtype": null, "tie_word_embeddings": true, "dropout": 0.0}"#;
        assert_eq!(Config::from_json(tiny, "decoder_tiny").unwrap(), Config::from_preset("decoder_tiny").unwrap());
        let usual = Config::from_json(r#"{"model_type": "nano"}"#, "it").unwrap();
        assert_eq!((usual.layers, usual.heads, usual.hidden, usual.context), (12, 12, 768, 1024));
        let grouped = Config::from_json(r#"{"model_type": "nano", "n_kv_groups": 4}"#, "it").unwrap();
        assert_eq!((grouped.kv_heads, grouped.head_dim), (3, 64));
        let plain = r#"{"model_type": "nano", "bias": false, "tie_word_embeddings": false}"#;
        let plain = Config::from_json(plain, "it").unwrap();
        assert_eq!((plain.ffn_bias, plain.tied, usual.ffn_bias), (false, true, true));
    }

    #[test]
    fn unsupported_variants_of_nano_xyz_are_refused_by_their_field() {
        let refused = |field: &str| {
            Config::from_json(&format!(r#"{{"model_type": "nano", {field}}}"#), "it").unwrap_err().to_string()
        };
        assert!(refused(r#""architecture": "encoder_decoder""#).contains("`architecture` is `encoder_decoder`"));
        assert!(refused(r#""add_cross_attention": true"#).contains("encoder-decoder models"));
        assert!(refused(r#""rope_type": "yarn""#).contains("`rope_type` is `yarn`"));
        assert!(refused(r#""yarn_scale_factor": 2.5"#).contains("`yarn_scale_factor` is 2.5"));
        assert!(refused(r#""use_xpos": true"#).contains("`use_xpos` is true"));
        assert!(refused(r#""quantization_config": {"bits": 8}"#).contains("quantised"));
        assert!(refused(r#""n_kv_groups": 5"#).contains("a multiple of `n_kv_groups` 5"));
        assert!(refused(r#""n_kv_groups": 0"#).contains("`n_kv_groups` 0"));
    }

    #[test]
    fn the_new_spelling_of_rope_and_dtype_is_read() {
        let new = QWEN3
            .replace(
                r#""rope_theta": 1000000"#,
                r#""rope_parameters": {"rope_theta": 1000000, "rope_type": "default"}"#,
            )
            .replace("torch_dtype", "dtype");
        assert_eq!(Config::from_json(&new, "Qwen3-0.6B").unwrap(), Config::from_preset("Qwen3-0.6B").unwrap());
    }

    #[test]
    fn a_checkpoint_with_scales_per_block_runs_in_fp8() {
        let quantised = r#""quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
            "weight_block_size": [128, 128]}, "rope_scaling": null"#;
        let config = Config::from_json(&QWEN3.replace(r#""rope_scaling": null"#, quantised), "it").unwrap();
        assert_eq!((config.dtype, config.weight_scales), (Dtype::Fp8, WeightScales::Blocks));
    }

    #[test]
    fn a_missing_head_dim_is_hidden_over_heads() {
        let config = Config::from_json(&QWEN3.replace(r#""head_dim": 128,"#, ""), "it").unwrap();
        assert_eq!(config.head_dim, 64);
    }

    #[test]
    fn errors_name_the_field() {
        assert_eq!(
            refused(r#""vocab_size": 151936"#, r#""vocab_size": -3"#),
            "config.json of `it`: `vocab_size` is -3, expected a non-negative integer"
        );
        assert_eq!(refused(r#""hidden_size": 1024, "#, ""), "config.json of `it`: `hidden_size` is missing");
        assert_eq!(
            refused(r#""qwen3""#, r#""mamba""#),
            "config.json of `it`: `model_type` is `mamba`, expected one of qwen3, qwen2, llama, gemma3_text, nano"
        );
        assert!(refused(r#""use_sliding_window": false"#, r#""use_sliding_window": true"#).contains("sliding window"));
        assert!(
            refused(r#""attention_bias": false"#, r#""attention_bias": true"#).contains("`attention_bias` is true")
        );
        assert!(refused("silu", "gelu").contains("`hidden_act` is `gelu`"));
        assert!(
            refused(r#""rope_scaling": null"#, r#""rope_scaling": {"type": "yarn"}"#).contains("RoPE scaling `yarn`")
        );
        assert!(refused("bfloat16", "float8").contains("there is no dtype `float8`"));
        for other in [
            r#"{"quant_method": "gptq", "bits": 4}"#,
            r#"{"quant_method": "fp8", "fmt": "e4m3"}"#,
            r#"{"quant_method": "fp8", "fmt": "e5m2", "weight_block_size": [128, 128]}"#,
            r#"{"quant_method": "fp8", "weight_block_size": [64, 128]}"#,
        ] {
            let with = format!(r#""quantization_config": {other}, "rope_scaling": null"#);
            let error = refused(r#""rope_scaling": null"#, &with);
            assert!(error.contains("only fp8 (e4m3) with `weight_block_size` [128, 128] is supported"), "{error}");
        }
        assert_eq!(refused(r#""num_attention_heads": 16"#, r#""num_attention_heads": 0"#), "`it`: `heads` is 0");
        assert!(Config::from_json("[]", "it").unwrap_err().to_string().ends_with("expected a JSON object"));
        assert!(Config::from_json("{", "it").unwrap_err().to_string().contains("invalid JSON"));
    }
}
