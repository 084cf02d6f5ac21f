//! Models known by name.

use crate::{
    Activation, Attention, Config, Dtype, Family, ModelError, Pattern, Rope, RopeLayout, RopeScaling, SlidingWindow,
    fp8::WeightScales,
};

/// The context of the CS336 models. The assignment runs them at 512 and states no limit.
const COURSE_CONTEXT: usize = 16_384;

const ENCODER_DECODERS: [&str; 2] = ["encoder_decoder_tiny", "encoder_decoder_small"];

impl Config {
    /// The model with this name, ignoring case, separators and the publisher.
    pub fn from_preset(name: &str) -> Result<Self, ModelError> {
        let (asked, mut presets) = (plain(name), Self::presets());
        if let Some(found) = presets.iter().position(|config| plain(&config.name) == asked) {
            return Ok(presets.swap_remove(found));
        }
        if let Some(known) = ENCODER_DECODERS.into_iter().find(|known| plain(known) == asked) {
            presets.retain(|config| config.family == Family::Nano);
            let decoders = names(&presets);
            return Err(ModelError::Refused(format!(
                "`{known}` is an encoder-decoder; supported decoders: {decoders}"
            )));
        }
        let near = nearest(&asked, &presets).map_or_else(String::new, |near| format!("did you mean `{near}`? "));
        let hint = format!("{near}`laptime list models` shows them: {}", names(&presets));
        Err(ModelError::hinted(format!("there is no model `{name}`"), hint))
    }

    /// Every model known by name, by family, small ones first.
    pub fn presets() -> Vec<Self> {
        let families = [qwen3(), qwen2(), llama(), gemma3(), course(), nano(), tiny()];
        families.into_iter().flatten().collect()
    }
}

fn names(presets: &[Config]) -> String {
    presets.iter().map(|config| config.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// A name without publisher, case and separators.
fn plain(name: &str) -> String {
    let without_publisher = name.trim().rsplit('/').next().unwrap_or_default();
    without_publisher.chars().filter(|c| !matches!(c, '-' | '_' | ' ')).map(|c| c.to_ascii_lowercase()).collect()
}

/// The preset with a name, compared after `plain`. `what` names the kind of model in errors.
pub(crate) fn by_name<C>(
    (name, what): (&str, &str),
    presets: Vec<C>,
    of: impl Fn(&C) -> &str,
    plain: impl Fn(&str) -> String,
) -> Result<C, ModelError> {
    let known: Vec<String> = presets.iter().map(|config| format!("`{}`", plain(of(config)))).collect();
    let found = presets.into_iter().find(|config| plain(of(config)) == plain(name));
    found.ok_or_else(|| ModelError::Refused(format!("there is no {what} `{name}`: there are {}", known.join(", "))))
}

/// A name without its publisher, in lower case, with `-` for `_`.
pub(crate) fn published_name(name: &str) -> String {
    name.trim().rsplit('/').next().unwrap_or_default().to_ascii_lowercase().replace('_', "-")
}

fn nearest<'c>(asked: &str, presets: &'c [Config]) -> Option<&'c str> {
    let names = presets.iter().map(|config| config.name.as_str());
    let (distance, name) = names.map(|name| (strsim::damerau_levenshtein(asked, &plain(name)), name)).min()?;
    (distance <= (asked.chars().count() / 3).max(1)).then_some(name)
}

/// Qwen3 of these sizes: hidden, layers, heads, KV heads, head width and FFN width. Other families are defined by their
/// differences from it.
pub(crate) fn base(name: &str, [hidden, layers, heads, kv_heads, head_dim, ffn]: [usize; 6]) -> Config {
    Config {
        name: name.to_owned(),
        family: Family::Qwen3,
        vocab: 151_936,
        hidden,
        layers,
        heads,
        kv_heads,
        head_dim,
        ffn,
        context: 40_960,
        rope: Rope { theta: 1e6, layout: RopeLayout::Halves, scaling: None },
        norm_eps: 1e-6,
        tied: true,
        qk_norm: true,
        qkv_bias: false,
        ffn_bias: false,
        attention_type: Attention::Dense,
        pattern: None,
        dtype: Dtype::Bf16,
        weight_scales: WeightScales::Rows,
        activation: Activation::Silu,
        post_norms: false,
        zero_centred_norms: false,
        scaled_embedding: false,
        window: None,
    }
}

fn qwen3() -> Vec<Config> {
    vec![
        base("Qwen3-0.6B", [1024, 28, 16, 8, 128, 3072]),
        base("Qwen3-1.7B", [2048, 28, 16, 8, 128, 6144]),
        base("Qwen3-4B", [2560, 36, 32, 8, 128, 9728]),
        Config { context: 32_768, ..base("Qwen3-4B-Base", [2560, 36, 32, 8, 128, 9728]) },
        Config { tied: false, ..base("Qwen3-8B", [4096, 36, 32, 8, 128, 12_288]) },
    ]
}

fn one_qwen2(name: &str, sizes: [usize; 6]) -> Config {
    Config { family: Family::Qwen2, context: 32_768, qk_norm: false, qkv_bias: true, ..base(name, sizes) }
}

fn qwen2() -> Vec<Config> {
    let largest = one_qwen2("Qwen2.5-7B", [3584, 28, 28, 4, 128, 18_944]);
    vec![
        one_qwen2("Qwen2.5-0.5B", [896, 24, 14, 2, 64, 4864]),
        one_qwen2("Qwen2.5-1.5B", [1536, 28, 12, 2, 128, 8960]),
        Config { vocab: 152_064, tied: false, ..largest },
    ]
}

fn one_llama(name: &str, sizes: [usize; 6]) -> Config {
    let scaling = RopeScaling { factor: 32.0, low: 1.0, high: 4.0, trained: 8192 };
    let rope = Rope { theta: 5e5, layout: RopeLayout::Halves, scaling: Some(scaling) };
    let base = base(name, sizes);
    Config { family: Family::Llama, vocab: 128_256, context: 131_072, rope, norm_eps: 1e-5, qk_norm: false, ..base }
}

fn llama() -> Vec<Config> {
    vec![one_llama("Llama-3.2-1B", [2048, 16, 32, 8, 64, 8192])]
}

fn one_gemma3(name: &str, sizes: [usize; 6]) -> Config {
    Config {
        family: Family::Gemma3,
        vocab: 262_144,
        context: 32_768,
        activation: Activation::GeluTanh,
        post_norms: true,
        zero_centred_norms: true,
        scaled_embedding: true,
        window: Some(SlidingWindow { size: 512, full_every: 6, theta: 1e4 }),
        ..base(name, sizes)
    }
}

fn gemma3() -> Vec<Config> {
    vec![one_gemma3("gemma-3-270m", [640, 18, 4, 1, 256, 2048]), one_gemma3("gemma-3-1b", [1152, 26, 4, 1, 256, 6912])]
}

fn one_course(name: &str, [hidden, ffn, layers, heads]: [usize; 4]) -> Config {
    Config {
        family: Family::Course,
        vocab: 10_000,
        context: COURSE_CONTEXT,
        rope: Rope { theta: 1e4, layout: RopeLayout::Pairs, scaling: None },
        norm_eps: 1e-5,
        tied: false,
        qk_norm: false,
        attention_type: Attention::Naive,
        dtype: Dtype::F32,
        ..base(name, [hidden, layers, heads, heads, hidden / heads, ffn])
    }
}

fn course() -> Vec<Config> {
    vec![
        one_course("small", [768, 3072, 12, 12]),
        one_course("medium", [1024, 4096, 24, 16]),
        one_course("large", [1280, 5120, 36, 20]),
        one_course("xl", [1600, 6400, 48, 25]),
        one_course("2.7B", [2560, 10_240, 32, 32]),
    ]
}

/// Nano XYZ leaves the epsilon of norms to PyTorch, which uses the machine epsilon of the dtype.
fn one_nano(name: &str, [layers, heads, hidden, context]: [usize; 4], pattern: Pattern) -> Config {
    Config {
        family: Family::Nano,
        vocab: 50_257,
        context,
        rope: Rope { theta: 1e4, layout: RopeLayout::Halves, scaling: None },
        norm_eps: f64::from(f32::EPSILON),
        qk_norm: false,
        ffn_bias: true,
        pattern: Some(pattern),
        dtype: Dtype::F32,
        ..base(name, [hidden, layers, heads, heads, hidden / heads, 4 * hidden])
    }
}

fn nano() -> Vec<Config> {
    let pattern = |window, global, random| Pattern { window, global, random };
    vec![
        one_nano("decoder_tiny", [6, 8, 512, 1024], pattern(256, 32, 16)),
        one_nano("decoder_small", [12, 12, 768, 2048], pattern(512, 64, 32)),
        one_nano("decoder_medium", [24, 16, 1024, 4096], pattern(1024, 128, 64)),
    ]
}

/// Models for quick trials: milliseconds on two cores.
fn tiny() -> Vec<Config> {
    let sizes = [64, 2, 4, 2, 16, 192];
    let small = |config: Config| Config { vocab: 512, context: 512, dtype: Dtype::F32, ..config };
    // A trained length shorter than a short context.
    let scaling = RopeScaling { factor: 8.0, low: 1.0, high: 4.0, trained: 64 };
    let rope = Rope { theta: 1e4, layout: RopeLayout::Halves, scaling: Some(scaling) };
    vec![
        small(base("tiny", sizes)),
        small(one_qwen2("tiny-qwen2", sizes)),
        Config { rope, ..small(one_llama("tiny-llama", sizes)) },
        Config {
            // The first of two layers has a window shorter than a short context.
            window: Some(SlidingWindow { size: 32, full_every: 2, theta: 1e4 }),
            ..small(one_gemma3("tiny-gemma3", sizes))
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every row of the tables that the presets are made from: parameters, and bytes of keys and values a token in the
    /// published number type.
    const TABLES: [(&str, u64, u64); 19] = [
        ("Qwen3-0.6B", 596_049_920, 114_688),
        ("Qwen3-1.7B", 1_720_574_976, 114_688),
        ("Qwen3-4B", 4_022_468_096, 147_456),
        ("Qwen3-4B-Base", 4_022_468_096, 147_456),
        ("Qwen3-8B", 8_190_735_360, 147_456),
        ("Qwen2.5-0.5B", 494_032_768, 12_288),
        ("Qwen2.5-1.5B", 1_543_714_304, 28_672),
        ("Qwen2.5-7B", 7_615_616_512, 57_344),
        ("Llama-3.2-1B", 1_235_814_400, 32_768),
        ("gemma-3-270m", 268_098_176, 18_432),
        ("gemma-3-1b", 999_885_952, 26_624),
        ("small", 128_625_408, 73_728),
        ("medium", 423_183_360, 196_608),
        ("large", 969_411_840, 368_640),
        ("xl", 1_998_235_200, 614_400),
        ("2.7B", 3_406_809_600, 655_360),
        ("decoder_tiny", 50_931_712, 24_576),
        ("decoder_small", 151_945_728, 73_728),
        ("decoder_medium", 454_387_712, 196_608),
    ];

    #[test]
    fn parameters_and_cache_bytes_match_the_model_cards() {
        for (name, parameters, kv_bytes) in TABLES {
            let config = Config::from_preset(name).unwrap();
            assert_eq!(config.parameters(), parameters, "parameters of {name}");
            assert_eq!(config.kv_bytes_per_token(config.dtype), kv_bytes, "cache bytes of {name}");
            assert_eq!(config.weight_bytes(config.dtype), parameters * config.dtype.bytes(), "weights of {name}");
        }
    }

    #[test]
    fn every_preset_is_valid() {
        let presets = Config::presets();
        assert_eq!(presets.len(), TABLES.len() + 4);
        for config in presets {
            config.check().unwrap();
        }
    }

    #[test]
    fn names_are_found_in_any_case_and_spelling() {
        for name in ["Qwen/Qwen3-0.6B", "qwen3_0.6b", "QWEN3-0.6B", " Qwen3-0.6B"] {
            assert_eq!(Config::from_preset(name).unwrap().name, "Qwen3-0.6B");
        }
        assert_eq!(Config::from_preset("Decoder-Small").unwrap().name, "decoder_small");
        assert_eq!(Config::from_preset("2.7b").unwrap().hidden, 2560);
        assert_eq!(Config::from_preset("meta-llama/Llama-3.2-1B").unwrap().family, Family::Llama);
    }

    #[test]
    fn an_unknown_name_suggests_the_nearest_and_lists_all() {
        let error = Config::from_preset("qwen3-0.6").unwrap_err();
        assert_eq!(error.to_string(), "there is no model `qwen3-0.6`");
        let hint = error.hint().unwrap();
        assert!(
            hint.starts_with("did you mean `Qwen3-0.6B`? `laptime list models` shows them: Qwen3-0.6B, "),
            "{hint}"
        );
        let far = Config::from_preset("gigantic-transformer").unwrap_err().hint().unwrap();
        assert!(far.starts_with("`laptime list models`"), "{far}");
    }

    #[test]
    fn encoder_decoders_are_refused_by_name() {
        let error = Config::from_preset("Encoder_Decoder_Tiny").unwrap_err();
        assert_eq!(
            error.to_string(),
            "`encoder_decoder_tiny` is an encoder-decoder; supported decoders: decoder_tiny, decoder_small, \
             decoder_medium"
        );
    }
}
