//! Weights of folders: what fits is read as it was written, and what does not is named.

use std::{collections::BTreeMap, fs, path::Path};

use crate::common::{FIXTURES, fixture, folder};
use laptime_models::{Config, Dtype, Fill, ModelError, TensorData, TensorSpec, Weights, synthetic};
use safetensors::{
    SafeTensors,
    tensor::{Dtype as StoredType, TensorView},
};

#[test]
fn every_fixture_is_valid_with_finite_weights() {
    for name in FIXTURES {
        let fixture = fixture(name);
        fixture.config.check().unwrap();
        fixture.tokens().check(&fixture.config).unwrap();
        fixture.weights.check_finite(&fixture.config).unwrap();
        assert_eq!(fixture.logits().len(), 2 * 12 * fixture.config.vocab);
        assert_eq!(fixture.last_logits().len(), 2 * fixture.config.vocab);
        assert_eq!(fixture.greedy(23).len(), 2);
    }
}

#[test]
fn synthetic_weights_match_the_python_script() {
    let fixture = fixture("qwen3");
    let spec = &fixture.config.layer_tensors(2)[3];
    let amplitude = (3.0_f64.sqrt() / 8.0) as f32;
    let made = Fill::Random { key: synthetic::key(fixture.expected.seed, &spec.name), amplitude };
    let stored = fixture.weights.tensor(spec).unwrap().to_f32();
    assert_eq!(stored, made.numbers(spec.count()));
}

#[test]
fn weights_of_several_files_are_all_found() {
    let fixture = fixture("llama");
    for spec in fixture.config.tensors() {
        let data = fixture.weights.tensor(&spec).unwrap();
        assert_eq!(data.count(), spec.count(), "{}", spec.name);
        assert!(matches!(data, TensorData::Stored { dtype: Dtype::F32, .. }));
    }
}

/// A tensor as bytes.
#[derive(Clone)]
struct Tensor {
    dtype: StoredType,
    shape: Vec<usize>,
    bytes: Vec<u8>,
}

type Tensors = BTreeMap<String, Tensor>;

/// A copy of the folder `qwen3` with its tensors changed.
fn changed(change: impl Fn(&mut Tensors)) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    let from = folder("qwen3");
    fs::copy(from.join("config.json"), copy.path().join("config.json")).unwrap();
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let mut tensors: Tensors = SafeTensors::deserialize(&bytes).unwrap().iter().map(owned).collect();
    change(&mut tensors);
    write(&copy, &tensors);
    copy
}

/// Writes the weights of a folder.
fn write(folder: &tempfile::TempDir, tensors: &Tensors) {
    let views = tensors
        .iter()
        .map(|(name, tensor)| (name, TensorView::new(tensor.dtype, tensor.shape.clone(), &tensor.bytes).unwrap()));
    let written = safetensors::serialize(views, None).unwrap();
    fs::write(folder.path().join("model.safetensors"), written).unwrap();
}

fn owned((name, view): (&str, TensorView<'_>)) -> (String, Tensor) {
    (name.to_owned(), Tensor { dtype: view.dtype(), shape: view.shape().to_vec(), bytes: view.data().to_vec() })
}

fn open(folder: &Path) -> Result<Weights, ModelError> {
    Weights::open(folder, &Config::from_folder(folder)?)
}

/// The error of a folder, without the folder's own name.
fn told(folder: &Path) -> String {
    let error = open(folder).unwrap_err();
    assert!(error.hint().is_some(), "{error} has no hint");
    let name = folder.file_name().unwrap().to_string_lossy().into_owned();
    error.to_string().replace(&folder.display().to_string(), "FOLDER").replace(&name, "NAME")
}

/// The name that `NanoForCausalLM` saves a tensor under.
fn in_nano_xyz(name: &str) -> String {
    let parts =
        [("mlp.gate_proj", "feedforward.w1"), ("mlp.up_proj", "feedforward.w3"), ("mlp.down_proj", "feedforward.w2")];
    parts.iter().fold(name.to_owned(), |name, (here, there)| name.replace(here, there))
}

#[test]
fn a_nano_xyz_folder_is_read_with_its_names_and_unused_tensors() {
    let fields = r#"{"model_type": "nano", "vocab_size": 99, "n_layer": 2, "n_head": 4, "n_embd": 64,
        "block_size": 512, "n_kv_groups": 2}"#;
    let config = Config::from_json(fields, "nano").unwrap();
    let weights = Weights::synthetic(&config, 6);
    let numbers = |weights: &Weights, spec: &TensorSpec| weights.tensor(spec).unwrap().to_f32();
    let stored = |numbers: &[f32], shape: &[usize]| Tensor {
        dtype: StoredType::F32,
        shape: shape.to_vec(),
        bytes: numbers.iter().flat_map(|number| number.to_le_bytes()).collect(),
    };
    let saved = |spec: &TensorSpec| (in_nano_xyz(&spec.name), stored(&numbers(&weights, spec), &spec.shape));
    let mut tensors: Tensors = config.tensors().iter().map(saved).collect();
    for layer in 0..config.layers {
        for part in ["cross_attn.q_proj.weight", "self_attn.k_proj_cross.weight", "self_attn.rope.inv_freq"] {
            tensors.insert(format!("model.layers.{layer}.{part}"), stored(&[1.0; 4], &[4]));
        }
    }
    let folder = tempfile::tempdir().unwrap();
    write(&folder, &tensors);
    fs::write(folder.path().join("config.json"), fields).unwrap();
    let found = open(folder.path()).unwrap();
    for spec in config.tensors() {
        assert_eq!(numbers(&found, &spec), numbers(&weights, &spec), "{}", spec.name);
    }
}

#[test]
fn missing_extra_and_misshapen_tensors_are_named_in_one_error() {
    let copy = changed(|tensors| {
        tensors.remove("model.norm.weight").unwrap();
        let gate = tensors.get_mut("model.layers.1.mlp.gate_proj.weight").unwrap();
        gate.shape = vec![64, 96];
        let extra = tensors["model.layers.0.self_attn.q_norm.weight"].clone();
        for layer in 3..10 {
            tensors.insert(format!("model.layers.{layer}.self_attn.q_norm.weight"), extra.clone());
        }
    });
    assert_eq!(
        told(copy.path()),
        "the weights in `FOLDER` do not fit `NAME`: 1 tensor is missing (`model.norm.weight`); 7 tensors are unknown \
         (`model.layers.3.self_attn.q_norm.weight`, `model.layers.4.self_attn.q_norm.weight`, \
         `model.layers.5.self_attn.q_norm.weight`, `model.layers.6.self_attn.q_norm.weight`, \
         `model.layers.7.self_attn.q_norm.weight` and 2 more); 1 tensor is misshapen \
         (`model.layers.1.mlp.gate_proj.weight` is [64, 96], expected [96, 64])"
    );
}

#[test]
fn unused_tensors_of_older_checkpoints_are_accepted() {
    let copy = changed(|tensors| {
        let head = tensors["model.embed_tokens.weight"].clone();
        let frequencies = tensors["model.layers.0.self_attn.q_norm.weight"].clone();
        tensors.insert("lm_head.weight".to_owned(), head);
        tensors.insert("model.layers.0.self_attn.rotary_emb.inv_freq".to_owned(), frequencies);
    });
    open(copy.path()).unwrap();
}

#[test]
fn an_unsupported_dtype_is_reported() {
    let copy = changed(|tensors| {
        let norm = tensors.get_mut("model.norm.weight").unwrap();
        *norm = Tensor { dtype: StoredType::F8_E4M3, shape: vec![64], bytes: vec![0; 64] };
    });
    let error = told(copy.path());
    assert!(error.ends_with("1 tensor is of an unsupported dtype (`model.norm.weight` is F8_E4M3)"), "{error}");
    assert!(open(copy.path()).unwrap_err().hint().unwrap().starts_with("save the model in f32, bf16 or f16"));
}

#[test]
fn half_precision_weights_are_read_as_stored() {
    let numbers: Vec<f32> = (0..64).map(|i| i as f32 / 8.0).collect();
    let copy = changed(|tensors| {
        let bytes = laptime_models::from_f32(Dtype::Bf16, &numbers);
        tensors.insert("model.norm.weight".to_owned(), Tensor { dtype: StoredType::BF16, shape: vec![64], bytes });
    });
    let config = Config::from_folder(copy.path()).unwrap();
    let weights = Weights::open(copy.path(), &config).unwrap();
    let data = weights.tensor(&config.final_norm_tensor()).unwrap();
    assert_eq!(data.to_f32(), numbers);
    assert_eq!(data.to_bytes(Dtype::Bf16).len(), 128);
    assert_eq!(data.to_bytes(Dtype::F32).len(), 256);
}

#[test]
fn a_weight_that_is_not_finite_is_named() {
    let copy = changed(|tensors| {
        let down = tensors.get_mut("model.layers.2.mlp.down_proj.weight").unwrap();
        down.bytes[40..44].copy_from_slice(&f32::NAN.to_le_bytes());
    });
    let config = Config::from_folder(copy.path()).unwrap();
    let error = Weights::open(copy.path(), &config).unwrap().check_finite(&config).unwrap_err();
    assert_eq!(error.to_string(), "`model.layers.2.mlp.down_proj.weight` has NaN at 10: the weights are not finite");
}

#[test]
fn a_file_truncated_anywhere_is_refused() {
    let copy = changed(|_| {});
    let path = copy.path().join("model.safetensors");
    let whole = fs::read(&path).unwrap();
    for length in [0, 5, 8, 9, 1000, whole.len() / 2, whole.len() - 1] {
        fs::write(&path, &whole[..length]).unwrap();
        let error = told(copy.path());
        assert!(error.starts_with("`FOLDER/model.safetensors`: truncated"), "{length}: {error}");
    }
    fs::write(&path, &whole[..whole.len() - 1]).unwrap();
    let told_lengths = format!("{} of {} bytes", whole.len() - 1, whole.len());
    assert!(told(copy.path()).ends_with(&told_lengths));
    fs::write(&path, [whole.as_slice(), b"more"].concat()).unwrap();
    assert!(told(copy.path()).contains("but the header says"));
    let tensor =
        |from: u64, to: u64| format!(r#"{{"dtype":"U8","shape":[{}],"data_offsets":[{from},{to}]}}"#, to - from);
    let far = format!(r#"{{"a":{},"b":{}}}"#, tensor(0, 1 << 60), tensor(1 << 60, u64::MAX));
    fs::write(&path, [&(far.len() as u64).to_le_bytes(), far.as_bytes()].concat()).unwrap();
    assert!(told(copy.path()).contains(&format!("of {} bytes", u64::MAX)));
    fs::write(&path, b"this is text and not a file of weights").unwrap();
    assert!(told(copy.path()).contains("invalid safetensors file"));
}

#[test]
fn a_folder_with_missing_files_names_them() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(told(empty.path()), "`FOLDER` has no `config.json`");
    fs::copy(folder("qwen3").join("config.json"), empty.path().join("config.json")).unwrap();
    assert_eq!(
        told(empty.path()),
        "`FOLDER` has no weights: neither `model.safetensors` nor `model.safetensors.index.json`"
    );
    fs::write(empty.path().join("pytorch_model.bin"), b"").unwrap();
    assert!(open(empty.path()).unwrap_err().hint().unwrap().starts_with("`pytorch_model.bin` is not supported"));
    let nowhere = empty.path().join("nowhere");
    assert_eq!(told(&nowhere), "cannot open `FOLDER/config.json`");
}

#[test]
fn a_damaged_index_or_one_with_paths_is_refused() {
    let copy = tempfile::tempdir().unwrap();
    fs::copy(folder("qwen3").join("config.json"), copy.path().join("config.json")).unwrap();
    let index = copy.path().join("model.safetensors.index.json");
    for (text, reason) in [
        ("{", "invalid index"),
        (r#"{"weight_map": {}}"#, "the index lists no files"),
        (r#"{"weight_map": {"a": "../b.safetensors"}}"#, "`../b.safetensors` is not a file in the same folder"),
        (r#"{"weight_map": {"a": "gone.safetensors"}}"#, "cannot open `FOLDER/gone.safetensors`"),
    ] {
        fs::write(&index, text).unwrap();
        let error = told(copy.path());
        assert!(error.contains(reason), "{error}");
    }
}
