//! Decoders with e4m3 weights: made at load, and read from checkpoints.

use std::{collections::BTreeMap, fs, path::Path};

use half::bf16;
use laptime_models::fp8::{BLOCK, WeightScales, decode, quantise};
use laptime_models::{
    CacheCapacity, Config, Dtype, ModelError, Offload, Options, Role, StreamMode, TensorSpec, Tokens, Weights, cpu,
    from_f32,
};
use safetensors::tensor::{Dtype as StoredType, TensorView};
use tempfile::{TempDir, tempdir};

use crate::common::e4m3;

const PRESETS: [&str; 4] = ["tiny", "tiny-qwen2", "tiny-llama", "tiny-gemma3"];

/// Logits of every position, of a prompt, and of steps.
fn logits(config: &Config, weights: &Weights, dtype: Dtype, offload: Option<Offload>) -> Vec<Vec<f32>> {
    let options = Options { batch: 2, offload, ..Options::new(dtype, CacheCapacity::Growing) };
    let mut decoder = cpu::decoder(config.clone(), weights, options, 2).unwrap();
    let tokens = Tokens { ids: (0..18).map(|at| at * 7919 % 500).collect(), batch: 2 };
    decoder.forward(&tokens).unwrap();
    let mut all = vec![decoder.logits().unwrap()];
    decoder.prefill(&tokens).unwrap();
    all.push(decoder.logits().unwrap());
    for _ in 0..4 {
        decoder.step().unwrap();
        all.push(decoder.logits().unwrap());
    }
    all
}

fn cosine(one: &[f32], other: &[f32]) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    dot(one, other) / (dot(one, one) * dot(other, other)).sqrt()
}

/// Sizes of which none is a multiple of a block, and rows of several blocks.
fn uneven() -> Config {
    Config { hidden: 200, ffn: 300, layers: 2, weight_scales: WeightScales::Blocks, ..preset("tiny") }
}

fn preset(name: &str) -> Config {
    Config::from_preset(name).unwrap()
}

#[test]
fn quantised_weights_give_the_logits_of_dequantised_ones() {
    let of_presets = PRESETS.map(preset);
    let in_blocks = of_presets.clone().map(|config| Config { weight_scales: WeightScales::Blocks, ..config });
    let biased = Config { ffn_bias: true, ..preset("tiny-qwen2") };
    for config in of_presets.into_iter().chain(in_blocks).chain([biased, uneven()]) {
        let synthetic = || Weights::synthetic(&config, 3);
        let rounded = e4m3::dequantised(&config, 3).unwrap();
        let made = logits(&config, &synthetic(), Dtype::Fp8, None);
        assert!(made == logits(&config, &rounded, Dtype::Fp8, None), "{}", config.name);
        assert!(made == logits(&config, &rounded, Dtype::Bf16, None), "{}", config.name);
        let apart = cosine(&made[0], &logits(&config, &synthetic(), Dtype::Bf16, None)[0]);
        assert!((0.99..0.999_99).contains(&apart), "{}: {apart}", config.name);
    }
}

#[test]
fn offloaded_fp8_layers_match_resident_ones_and_are_half_as_large() {
    let home = tempdir().unwrap();
    let config = Config { layers: 4, hidden: 256, ..preset("tiny-qwen2") };
    let weights = Weights::synthetic(&config, 3);
    let resident = logits(&config, &weights, Dtype::Fp8, None);
    for mode in StreamMode::ALL {
        let offload = Offload::new(mode, 1, home.path());
        assert!(logits(&config, &weights, Dtype::Fp8, Some(offload)) == resident, "{mode}");
    }
    let bytes = |dtype| {
        let offload = Some(Offload::new(StreamMode::Wrap, 1, home.path()));
        let options = Options { offload, ..Options::new(dtype, CacheCapacity::Growing) };
        cpu::decoder(config.clone(), &weights, options, 1).unwrap().offloading().unwrap().layer_bytes
    };
    assert!(bytes(Dtype::Fp8) * 100 < bytes(Dtype::Bf16) * 54, "{} of {}", bytes(Dtype::Fp8), bytes(Dtype::Bf16));
}

#[test]
fn fp8_weights_count_in_bytes_and_compute_in_bf16() {
    let config = preset("Qwen3-4B");
    let linear = config.tensors().into_iter().filter(|tensor| tensor.role == Role::Linear);
    let (numbers, rows) = linear.fold((0, 0), |(n, r), it| (n + it.count() as u64, r + it.shape[0] as u64));
    let in_bf16 = config.weight_bytes(Dtype::Bf16);
    assert_eq!(config.weight_bytes(Dtype::Fp8), in_bf16 - numbers + 4 * rows);
    assert_eq!(config.kv_bytes_per_token(Dtype::Fp8), config.kv_bytes_per_token(Dtype::Bf16));
    let step = config.step_work(1, 512, Dtype::Fp8);
    let saved = config.step_work(1, 512, Dtype::Bf16).total().weight_bytes - step.total().weight_bytes;
    assert_eq!((saved, step.work().dtype.as_str()), (numbers - 4 * rows, "bf16"));
}

struct Tensor(StoredType, Vec<usize>, Vec<u8>);

type Tensors = BTreeMap<String, Tensor>;

/// The tensors of a checkpoint as Qwen publishes it in FP8: a scale for each block of 128 x 128.
fn published(config: &Config, weights: &Weights, scale_dtype: Dtype) -> Tensors {
    let mut tensors = Tensors::new();
    for spec in config.tensors() {
        let numbers = weights.tensor(&spec).unwrap().to_f32();
        if spec.role != Role::Linear {
            let stored = Tensor(StoredType::BF16, spec.shape.clone(), from_f32(Dtype::Bf16, &numbers));
            tensors.insert(spec.name, stored);
            continue;
        }
        let (codes, scales) = in_blocks(&spec, &numbers);
        let scale_type = if scale_dtype == Dtype::F32 { StoredType::F32 } else { StoredType::BF16 };
        let scales = Tensor(scale_type, blocks(&spec).to_vec(), from_f32(scale_dtype, &scales));
        tensors.insert(format!("{}_scale_inv", spec.name), scales);
        tensors.insert(spec.name, Tensor(StoredType::F8_E4M3, spec.shape, codes));
    }
    tensors
}

fn blocks(spec: &TensorSpec) -> [usize; 2] {
    [spec.shape[0].div_ceil(BLOCK), spec.shape[1].div_ceil(BLOCK)]
}

fn in_blocks(spec: &TensorSpec, numbers: &[f32]) -> (Vec<u8>, Vec<f32>) {
    let (width, [down, across]) = (spec.shape[1], blocks(spec));
    let (mut codes, mut scales) = (vec![0; numbers.len()], Vec::new());
    for (top, left) in (0..down).flat_map(|row| (0..across).map(move |column| (row * BLOCK, column * BLOCK))) {
        let rows = top..(top + BLOCK).min(spec.shape[0]);
        let places: Vec<usize> =
            rows.flat_map(|row| (left..(left + BLOCK).min(width)).map(move |column| row * width + column)).collect();
        let block: Vec<f32> = places.iter().map(|at| numbers[*at]).collect();
        let mut of_block = vec![0; block.len()];
        // Published scales are no powers of two. These are whole in bf16, whichever type they are stored in.
        scales.push(bf16::from_f32(1.37 * quantise(&block, &mut of_block)).to_f32());
        places.iter().zip(of_block).for_each(|(at, code)| codes[*at] = code);
    }
    (codes, scales)
}

const FIELDS: &str = r#"{"model_type": "qwen3", "vocab_size": 512, "hidden_size": 200, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 300,
    "max_position_embeddings": 512, "rope_theta": 1000000, "tie_word_embeddings": true, "torch_dtype": "bfloat16",
    "quantization_config": {"activation_scheme": "dynamic", "fmt": "e4m3", "quant_method": "fp8",
    "weight_block_size": [128, 128]}}"#;

fn write(tensors: &Tensors) -> TempDir {
    let folder = tempdir().unwrap();
    let views = tensors
        .iter()
        .map(|(name, Tensor(dtype, shape, bytes))| (name, TensorView::new(*dtype, shape.clone(), bytes).unwrap()));
    fs::write(folder.path().join("model.safetensors"), safetensors::serialize(views, None).unwrap()).unwrap();
    fs::write(folder.path().join("config.json"), FIELDS).unwrap();
    folder
}

fn open(folder: &Path) -> Result<(Config, Weights), ModelError> {
    let config = Config::from_folder(folder)?;
    Ok((config.clone(), Weights::open(folder, &config)?))
}

fn checkpoint(scale_dtype: Dtype, change: impl Fn(&mut Tensors)) -> TempDir {
    let config = Config::from_json(FIELDS, "it").unwrap();
    let mut tensors = published(&config, &Weights::synthetic(&config, 4), scale_dtype);
    change(&mut tensors);
    write(&tensors)
}

#[test]
fn a_published_fp8_checkpoint_keeps_its_codes_and_scales() {
    let folders = [Dtype::Bf16, Dtype::F32].map(|dtype| checkpoint(dtype, |_| {}));
    let mut found = Vec::new();
    for folder in &folders {
        let (config, weights) = open(folder.path()).unwrap();
        assert_eq!((config.dtype, config.weight_scales), (Dtype::Fp8, WeightScales::Blocks));
        weights.check_finite(&config).unwrap();
        let in_fp8 = logits(&config, &weights, Dtype::Fp8, None);
        assert!(in_fp8 == logits(&config, &weights, Dtype::Bf16, None));
        found.push(in_fp8);
    }
    assert!(found[0] == found[1]);
    let (config, weights) = open(folders[0].path()).unwrap();
    let spec = &config.layer_tensors(1)[1];
    let numbers = Weights::synthetic(&config, 4).tensor(spec).unwrap().to_f32();
    let (codes, scales) = in_blocks(spec, &numbers);
    let expected = |at: usize| {
        let (row, column) = (at / 200, at % 200);
        decode(codes[at]) * scales[row / BLOCK * 2 + column / BLOCK]
    };
    assert_eq!(weights.tensor(spec).unwrap().to_f32(), (0..codes.len()).map(expected).collect::<Vec<_>>());
}

#[test]
fn missing_or_misshapen_scales_are_named() {
    let name = "model.layers.1.mlp.down_proj.weight_scale_inv";
    let missing = checkpoint(Dtype::Bf16, |tensors| drop(tensors.remove(name)));
    let error = open(missing.path()).unwrap_err().to_string();
    assert!(error.ends_with(&format!("1 tensor is missing (`{name}`)")), "{error}");
    let misshapen = checkpoint(Dtype::Bf16, |tensors| {
        let scales = tensors.get_mut(name).unwrap();
        scales.1 = vec![3, 2];
    });
    let error = open(misshapen.path()).unwrap_err().to_string();
    assert!(error.ends_with(&format!("1 tensor is misshapen (`{name}` is [3, 2], expected [2, 3])")), "{error}");
}

#[test]
fn other_8_bit_dtypes_and_quantised_norms_are_named() {
    let other = checkpoint(Dtype::Bf16, |tensors| {
        tensors.get_mut("model.layers.0.mlp.up_proj.weight").unwrap().0 = StoredType::F8_E5M2;
        *tensors.get_mut("model.norm.weight").unwrap() = Tensor(StoredType::F8_E4M3, vec![200], vec![0; 200]);
    });
    let error = open(other.path()).unwrap_err().to_string();
    let named = "2 tensors are of an unsupported dtype (`model.layers.0.mlp.up_proj.weight` is F8_E5M2, \
                 `model.norm.weight` is F8_E4M3)";
    assert!(error.ends_with(named), "{error}");
}

#[test]
fn a_nan_code_is_named() {
    let broken = checkpoint(Dtype::Bf16, |tensors| {
        tensors.get_mut("model.layers.0.self_attn.v_proj.weight").unwrap().2[1234] = 0xff;
    });
    let (config, weights) = open(broken.path()).unwrap();
    let error = weights.check_finite(&config).unwrap_err().to_string();
    let expected = "`model.layers.0.self_attn.v_proj.weight` has NaN at 1234: the weights are not finite";
    assert_eq!(error, expected);
}

#[test]
fn fp8_is_refused_where_it_is_not_supported() {
    let config = preset("tiny");
    let options = laptime_models::TrainOptions::new(Dtype::Fp8, 1, 8);
    let error = options.check(&config).unwrap_err().to_string();
    assert_eq!(error, "training with fp8 weights is not supported: use bf16");
}
