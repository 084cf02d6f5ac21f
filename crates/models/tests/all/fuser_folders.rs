//! Fusers from folders: published layouts are read, and faults are named.

use std::{
    fs,
    path::{Path, PathBuf},
};

use crate::common::c2c::{fuser, fuser_folder, receiver, sharer};
use laptime_models::{
    Config, Dtype, Fill, HasTensors, ModelError, TensorData,
    fuser::{Alignment, FuserConfig, FuserWeights},
    synthetic,
};
use safetensors::tensor::{Dtype as StoredType, TensorView};

#[test]
fn a_published_layout_is_read() {
    let (config, weights) = fuser("long");
    assert_eq!((config.hidden, config.intermediate, config.blocks), (20, 28, 3));
    let layers: Vec<usize> = config.pairs.iter().map(|pair| pair.sharer_layer).collect();
    assert_eq!(layers, Alignment::LastAligned.layers(3, 5));
    weights.check_finite(&config).unwrap();
    let (config, weights) = fuser("short");
    assert_eq!(config.blocks, 4);
    let layers: Vec<usize> = config.pairs.iter().map(|pair| pair.sharer_layer).collect();
    assert_eq!(layers, Alignment::KNearest.layers(3, 2));
    let types = [0, 1, 2].map(|projector| {
        let TensorData::Stored { dtype, .. } = weights.tensor(&config.projector_tensors(projector)[0]).unwrap() else {
            panic!("it is stored");
        };
        dtype
    });
    assert_eq!(types, [Dtype::Bf16, Dtype::F16, Dtype::F32]);
}

#[test]
fn values_equal_those_that_torch_wrote() {
    let (config, weights) = fuser("long");
    let seed = serde_json::from_str::<serde_json::Value>(
        &fs::read_to_string(crate::common::folder("c2c/expected.json")).unwrap(),
    )
    .unwrap()["seed"]
        .as_u64()
        .unwrap();
    let tensors = config.projector_tensors(1);
    let spec = tensors.iter().find(|spec| spec.name.ends_with("value_proj_out.weight")).unwrap();
    let amplitude = (3.0_f64.sqrt() / 20.0_f64.sqrt()) as f32;
    let key = synthetic::key(seed, &format!("long.{}", spec.name));
    let made = Fill::Random { key, amplitude }.numbers(spec.count());
    assert_eq!(weights.tensor(spec).unwrap().to_f32(), made);
}

/// A copy of the folder of a fuser, changed.
struct Copy {
    _folder: tempfile::TempDir,
    path: PathBuf,
}

impl Copy {
    fn new(name: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pair_Fuser");
        fs::create_dir_all(path.join("final")).unwrap();
        let from = fuser_folder(name);
        fs::copy(from.join("config.json"), path.join("config.json")).unwrap();
        for file in fs::read_dir(from.join("final")).unwrap() {
            let file = file.unwrap();
            fs::copy(file.path(), path.join("final").join(file.file_name())).unwrap();
        }
        Self { _folder: folder, path }
    }

    fn file(&self, name: &str) -> PathBuf {
        self.path.join("final").join(name)
    }

    /// Replaces a part of a text file.
    fn replace(&self, name: &str, part: &str, with: &str) {
        let text = fs::read_to_string(self.file(name)).unwrap();
        assert!(text.contains(part), "{text}");
        fs::write(self.file(name), text.replacen(part, with, 1)).unwrap();
    }

    fn open(&self) -> Result<(FuserConfig, FuserWeights), ModelError> {
        FuserWeights::open(&self.path, &receiver(), &sharer("long"))
    }

    /// Why it is refused, without the name of its folder.
    fn refused(&self) -> String {
        message(self.open().unwrap_err(), &self.path)
    }
}

fn message(error: ModelError, folder: &Path) -> String {
    assert!(error.hint().is_some(), "{error} has no hint");
    error.to_string().replace(&folder.display().to_string(), "FOLDER")
}

fn named(reason: &str) -> String {
    format!("the fuser in `FOLDER/final` does not fit `long` and `qwen3`: {reason}")
}

#[test]
fn either_folder_may_be_named_and_one_without_a_fuser_is_refused() {
    let copy = Copy::new("long");
    copy.open().unwrap();
    FuserWeights::open(&copy.path.join("final"), &receiver(), &sharer("long")).unwrap();
    fs::remove_file(copy.file("projector_config.json")).unwrap();
    assert_eq!(copy.refused(), "`FOLDER` has no fuser: no `projector_config.json`");
}

#[test]
fn a_fuser_for_other_heads_names_both_sides() {
    let error = FuserWeights::open(&fuser_folder("long"), &receiver(), &sharer("short")).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("does not fit `short` and `qwen3`: it is for a sharer with 5 layers, but `short` has 2"),
        "{error}"
    );
    let narrow = Config { layers: 5, ..sharer("short") };
    let error = FuserWeights::open(&fuser_folder("long"), &receiver(), &narrow).unwrap_err().to_string();
    assert!(error.ends_with("it is for a sharer with 2 heads of 8, but `short` has 1 of 16"), "{error}");
    let wide = Config { head_dim: 64, ..receiver() };
    let error = FuserWeights::open(&fuser_folder("long"), &wide, &sharer("long")).unwrap_err().to_string();
    assert!(error.ends_with("it is for a receiver with 2 heads of 32, but `qwen3` has 2 of 64"), "{error}");
}

#[test]
fn a_fuser_for_other_layers_names_both_sides() {
    let open = |receiver: Config, sharer: Config| {
        message(FuserWeights::open(&fuser_folder("long"), &receiver, &sharer).unwrap_err(), &fuser_folder("long"))
    };
    let more = Config { layers: 4, ..receiver() };
    assert_eq!(open(more, sharer("long")), named("it is for a receiver with 3 layers, but `qwen3` has 4"));
    let deeper = Config { layers: 9, ..sharer("long") };
    assert_eq!(open(receiver(), deeper), named("it is for a sharer with 5 layers, but `long` has 9"));
    let copy = Copy::new("long");
    copy.replace("projector_config.json", "[[4, 2]]", "[[7, 2]]");
    assert_eq!(copy.refused(), named("it is for a sharer with 8 layers, but `long` has 5"));
}

#[test]
fn other_pairs_of_layers_are_read() {
    let copy = Copy::new("long");
    copy.replace("projector_config.json", "[[4, 2]]", "[[1, 0], [4, 2]]");
    let (config, _) = copy.open().unwrap();
    assert_eq!((config.pairs[2].sharer_layer, config.pairs[2].projector), (1, 0));
    assert_eq!(config.projectors(), [0, 1]);
}

#[test]
fn a_fuser_that_was_trained_for_another_known_model_is_refused() {
    let copy = Copy::new("long");
    let record = copy.path.join("config.json");
    let trained = r#"{"model": {"base_model": "Qwen/Qwen3-0.6B", "teacher_model": "Qwen/Qwen3-1.7B"}}"#;
    fs::write(&record, trained).unwrap();
    // `qwen3` and `long` are not presets, so the names cannot be compared.
    copy.open().unwrap();
    let given = Config { name: "Qwen3-1.7B".to_owned(), ..receiver() };
    let error = message(FuserWeights::open(&copy.path, &given, &sharer("long")).unwrap_err(), &copy.path);
    assert!(error.ends_with("it was trained with `Qwen3-0.6B`, not with `Qwen3-1.7B`"), "{error}");
    fs::write(&record, "{").unwrap();
    let error = copy.refused();
    assert!(error.starts_with("`FOLDER/config.json`: invalid record of training"), "{error}");
}

#[test]
fn invalid_files_are_named() {
    for (file, part, with, reason) in [
        ("projector_config.json", "{\"0\"", "{\"2\": {}, \"0\"", ""),
        ("projector_config.json", "{\"1\"", "{\"2\": {}, \"1\"", "expected exactly one pair of models"),
        ("projector_config.json", "\"0\": [[2, 0]]", "\"x\": [[2, 0]]", "a layer is not a number"),
        ("projector_config.json", "[[2, 0]]", "[]", "a layer has no source layer"),
        ("projector_config.json", "[[2, 0]]", "3", "invalid list of pairs"),
        ("projector_0.json", "C2CProjector", "AllInOneProjector", "it is a `AllInOneProjector`; only `C2CProjector`"),
        (
            "projector_1.json",
            "\"hidden_dim\": 20",
            "\"hidden_dim\": 24",
            "its sizes differ from those of other projectors",
        ),
        ("projector_1.json", "{", "[", "invalid projector"),
        (
            "projector_2.json",
            "\"target_num_heads\": 2",
            "\"target_num_heads\": 1",
            "it is for a receiver with 1 heads of 32",
        ),
    ] {
        let copy = Copy::new("long");
        copy.replace(file, part, with);
        match reason {
            "" => drop(copy.open().unwrap()),
            _ => assert!(copy.refused().contains(reason), "{}", copy.refused()),
        }
    }
    let copy = Copy::new("long");
    (0..3).for_each(|at| copy.replace(&format!("projector_{at}.json"), "\"num_layers\": 3", "\"num_layers\": 2"));
    let error = copy.open().unwrap_err().to_string();
    assert_eq!(error, "fuser of `long` to `qwen3`: `num_layers` is 2, expected 3 to 64");
}

#[test]
fn missing_extra_and_misshapen_tensors_are_named_in_one_error() {
    let copy = Copy::new("long");
    // The file has no fourth block.
    (0..3).for_each(|at| copy.replace(&format!("projector_{at}.json"), "\"num_layers\": 3", "\"num_layers\": 4"));
    let error = copy.refused();
    assert!(error.starts_with("the fuser in `FOLDER/final` is incomplete: 18 tensors are missing (`projector_0.key_proj_mlp2.blocks.1.norm.weight`, "), "{error}");
    let copy = Copy::new("long");
    fs::copy(fuser_folder("short").join("final/projector_2.pt"), copy.file("projector_2.pt")).unwrap();
    let error = copy.refused();
    assert!(error.contains("6 tensors are unknown (`projector_2.key_proj_mlp2.blocks.1.norm.weight`"), "{error}");
    assert!(!error.contains("misshapen"), "{error}");
    let copy = Copy::new("long");
    let widen =
        |at| copy.replace(&format!("projector_{at}.json"), "\"intermediate_dim\": 28", "\"intermediate_dim\": 30");
    (0..3).for_each(widen);
    let error = copy.refused();
    assert!(
        error.contains(
            "24 tensors are misshapen (`projector_0.key_mlp1.blocks.0.w1.weight` is [28, 20], expected [30, 20]"
        ),
        "{error}"
    );
    let copy = Copy::new("long");
    fs::remove_file(copy.file("projector_1.pt")).unwrap();
    assert_eq!(copy.refused(), "cannot open `FOLDER/final/projector_1.pt`");
}

#[test]
fn safetensors_with_the_same_names_are_read() {
    let (config, weights) = fuser("long");
    let copy = Copy::new("long");
    for projector in config.projectors() {
        let prefix = format!("projector_{projector}.");
        let specs = config.projector_tensors(projector);
        let views = specs.iter().map(|spec| {
            let TensorData::Stored { bytes, .. } = weights.tensor(spec).unwrap() else { panic!("it is stored") };
            let view = TensorView::new(StoredType::F32, spec.shape.clone(), bytes).unwrap();
            (spec.name.strip_prefix(&prefix).unwrap(), view)
        });
        let written = safetensors::serialize(views, None).unwrap();
        fs::write(copy.file(&format!("projector_{projector}.safetensors")), written).unwrap();
        fs::remove_file(copy.file(&format!("projector_{projector}.pt"))).unwrap();
    }
    let (again, same) = copy.open().unwrap();
    assert_eq!(again, config);
    for spec in config.all_tensors() {
        assert_eq!(same.tensor(&spec).unwrap().to_f32(), weights.tensor(&spec).unwrap().to_f32(), "{}", spec.name);
    }
}

#[test]
fn truncated_files_are_refused() {
    let copy = Copy::new("long");
    let path = copy.file("projector_0.pt");
    let whole = fs::read(&path).unwrap();
    for length in (0..whole.len()).step_by(1499).chain([1, 3, 4, 30, whole.len() - 1]) {
        fs::write(&path, &whole[..length]).unwrap();
        let error = copy.refused();
        assert!(error.starts_with("`FOLDER/final/projector_0.pt`: truncated"), "{length}: {error}");
    }
    fs::write(&path, b"this is text and no archive").unwrap();
    assert!(copy.refused().contains("not a zip archive"));
    fs::write(&path, [0x80, 2, b'.', 0, 0]).unwrap();
    assert!(copy.refused().contains("the format of torch before 1.6"));
}

#[test]
fn non_finite_values_are_named() {
    let copy = Copy::new("long");
    let path = copy.file("projector_2.pt");
    let mut bytes = fs::read(&path).unwrap();
    let (config, weights) = fuser("long");
    let spec = &config.projector_tensors(2)[1];
    let TensorData::Stored { bytes: bias, .. } = weights.tensor(spec).unwrap() else { panic!("it is stored") };
    let at = bytes.windows(bias.len()).position(|part| part == bias).unwrap();
    bytes[at + 8..at + 12].copy_from_slice(&f32::INFINITY.to_le_bytes());
    fs::write(&path, bytes).unwrap();
    let (config, weights) = copy.open().unwrap();
    let error = weights.check_finite(&config).unwrap_err().to_string();
    assert_eq!(error, "`projector_2.key_in.bias` has inf at 2: the weights are not finite");
}
