//! Finds and loads presets, folders and models of the program.

use std::path::Path;

use laptime_bench::{Case, Device, PlanError};
use laptime_models::{Config, Decoder, ModelError, Options, TrainOptions, Trainer, Weights, cpu};
use laptime_probe::stage;

use super::plan::{Found, Named};
use super::spec::Spec;
use crate::backend::{self, Loaded, Target, hinted, if_gpu};
use crate::request::{self, refused, with_causes};

pub type Load<T> = anyhow::Result<Loaded<T>>;

/// Finds and loads models; tests have a scripted implementation.
pub trait Maker: Send + Sync {
    fn find(&self, named: Named<'_>) -> Result<Found, PlanError>;

    fn needed_bytes(&self, config: &Config, spec: &Spec, options: &Options, device: &dyn Device) -> u64;

    fn needed_train_bytes(&self, config: &Config, spec: &Spec, options: &TrainOptions, device: &dyn Device) -> u64;

    fn decoder<'a>(&self, found: &Found, spec: &Spec, options: Options, on: Target<'a>) -> Load<dyn Decoder + 'a>;

    fn trainer<'a>(&self, found: &Found, spec: &Spec, options: TrainOptions, on: Target<'a>) -> Load<dyn Trainer + 'a>;
}

/// Presets, folders with a `config.json`, and models of the program.
#[derive(Debug, Default)]
pub struct BuiltIn {
    /// The models of the program; their names are looked up first.
    pub own: Vec<Config>,
}

impl Maker for BuiltIn {
    fn find(&self, named: Named<'_>) -> Result<Found, PlanError> {
        if let Named::Any(name) = named
            && let Some(config) = self.own.iter().find(|config| config.name.eq_ignore_ascii_case(name))
        {
            return Ok(Found { name: config.name.clone(), config: config.clone() });
        }
        find(named).map_err(|error| {
            let usual = || "`laptime list models` shows the built-in models".to_owned();
            refused(with_causes(&error), &error.hint().unwrap_or_else(usual))
        })
    }

    fn needed_bytes(&self, config: &Config, spec: &Spec, options: &Options, device: &dyn Device) -> u64 {
        let (tokens, has_cache) = (spec.most_at_once(), spec.test.pass.has_cache());
        if_gpu!(device, _gpu => laptime_models::gpu::needed_bytes(config, options, tokens, !has_cache));
        let (pass, rows) =
            if has_cache { (cpu::Pass::Cached, spec.batch.saturating_mul(2)) } else { (cpu::Pass::Forward, 1) };
        // The check reads logits as f32: one row, or one of a decode step and one of a prefill to compare.
        let logits = [rows, config.vocab, 4].into_iter().fold(1, |all: u64, of| all.saturating_mul(of as u64));
        let start = spec.positions().saturating_sub(tokens);
        cpu::needed_bytes(config, options, pass, [start, tokens], spec.threads).saturating_add(logits)
    }

    fn needed_train_bytes(&self, config: &Config, spec: &Spec, options: &TrainOptions, device: &dyn Device) -> u64 {
        if_gpu!(device, _gpu => laptime_models::gpu::train_needed_bytes(config, options));
        // The check reads gradients as f32, one tensor at a time.
        let largest = config.tensors().iter().map(|tensor| tensor.count() as u64).max().unwrap_or(0);
        cpu::needed_train_bytes(config, options, spec.threads).saturating_add(largest.saturating_mul(4))
    }

    fn decoder<'a>(&self, found: &Found, spec: &Spec, options: Options, on: Target<'a>) -> Load<dyn Decoder + 'a> {
        let _stage = stage!("load_weights", model = found.name);
        let (weights, from) = checked_weights(found, spec.seed)?;
        Ok(Loaded { model: backend::decoder(&found.config, &weights, options, on)?, weights: from })
    }

    fn trainer<'a>(&self, found: &Found, spec: &Spec, options: TrainOptions, on: Target<'a>) -> Load<dyn Trainer + 'a> {
        let _stage = stage!("load_weights", model = found.name);
        let (weights, from) = checked_weights(found, spec.seed)?;
        Ok(Loaded { model: backend::trainer(&found.config, &weights, options, on)?, weights: from })
    }
}

/// The source of weights of a folder that has none.
pub const SYNTHETIC_FOR_FOLDER: &str = "synthetic, the folder has none";

/// The folders of a case's models that have a `config.json` and no weights, so that synthetic ones are used.
pub fn folders_without_weights(case: &Case) -> Vec<String> {
    let names = ["model", "base_model", "teacher_model"].into_iter().filter_map(|axis| case.text(axis).ok());
    let has_none = |name: &&str| {
        let folder = Path::new(name);
        let opened = Config::from_folder(folder).and_then(|config| Weights::open(folder, &config));
        looks_like_a_folder(name) && matches!(opened, Err(ModelError::NoWeights { other: None, .. }))
    };
    names.filter(has_none).map(str::to_owned).collect()
}

/// The weights of a case, checked to be finite, and where they come from.
pub fn checked_weights(found: &Found, seed: u64) -> anyhow::Result<(Weights, &'static str)> {
    let weights = weights(found, seed).map_err(hinted)?;
    weights.check_finite(&found.config).map_err(hinted)?;
    let kind = match (weights.is_synthetic(), looks_like_a_folder(&found.name)) {
        (true, false) => "synthetic",
        (true, true) => SYNTHETIC_FOR_FOLDER,
        (false, _) => "folder",
    };
    Ok((weights, kind))
}

fn find(named: Named<'_>) -> Result<Found, ModelError> {
    let name = match named {
        Named::Any(name) if !looks_like_a_folder(name) => {
            let config = Config::from_preset(name)?;
            return Ok(Found { name: config.name.clone(), config });
        }
        Named::Any(name) => name.to_owned(),
        // Distinguishes the folder from a preset of the same name when the case is parsed.
        Named::Folder(name) if looks_like_a_folder(name) => name.to_owned(),
        Named::Folder(name) => format!("./{name}"),
    };
    let config = Config::from_folder(Path::new(&name))?;
    Ok(Found { name, config })
}

pub fn looks_like_a_folder(name: &str) -> bool {
    request::looks_like_a_folder(name, |name| Config::from_preset(name).is_ok())
}

/// The weights of a folder; synthetic ones for a preset, and for a folder that has a `config.json` and no weights.
fn weights(found: &Found, seed: u64) -> Result<Weights, ModelError> {
    let synthetic = || Ok(Weights::synthetic(&found.config, seed));
    if !looks_like_a_folder(&found.name) {
        return synthetic();
    }
    match Weights::open(Path::new(&found.name), &found.config) {
        // Weights that exist and cannot be read are an error.
        Err(ModelError::NoWeights { other: None, .. }) => synthetic(),
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_preset_is_found_in_any_case_and_with_its_publisher() {
        for name in ["qwen3-0.6b", "Qwen/Qwen3-0.6B", "QWEN3_0.6B"] {
            assert_eq!(find(Named::Any(name)).unwrap().name, "Qwen3-0.6B");
        }
    }

    #[test]
    fn a_model_of_the_program_comes_before_a_preset() {
        let preset = Config::from_preset("decoder_small").unwrap();
        let own = Config { name: "mine".to_owned(), attention_type: laptime_models::Attention::Naive, ..preset };
        let model = super::super::Model::with(vec![own]);
        let given = [("preset".to_owned(), vec!["MINE".to_owned()])];
        let plan = laptime_bench::Workload::plan(&model, &given).unwrap();
        let shown: Vec<String> = plan.cases().iter().map(ToString::to_string).collect();
        assert!(shown.iter().all(|case| case.contains("model=mine") && case.contains("attention=naive")), "{shown:?}");
        let preset = [("preset".to_owned(), vec!["decoder_small".to_owned()])];
        let plan = laptime_bench::Workload::plan(&model, &preset).unwrap();
        assert!(plan.cases().iter().all(|case| case.to_string().contains("attention=dense")));
    }

    #[test]
    fn a_folder_without_weights_gets_synthetic_ones_and_an_unsupported_format_is_refused() {
        let folder = tempfile::tempdir().unwrap();
        let config = r#"{"model_type": "nano", "n_layer": 1, "n_head": 2, "n_embd": 64, "block_size": 512,
            "vocab_size": 100}"#;
        std::fs::write(folder.path().join("config.json"), config).unwrap();
        let name = folder.path().display().to_string();
        let found = find(Named::Any(&name)).unwrap();
        let (weights, kind) = checked_weights(&found, 1).unwrap();
        assert!(weights.is_synthetic());
        assert_eq!(kind, SYNTHETIC_FOR_FOLDER);
        let case = Case::new(vec![("model".to_owned(), name.as_str().into())]);
        assert_eq!(folders_without_weights(&case), std::slice::from_ref(&name));
        assert!(folders_without_weights(&Case::new(vec![("model".to_owned(), "tiny".into())])).is_empty());
        std::fs::write(folder.path().join("pytorch_model.bin"), "").unwrap();
        let error = format!("{:#}", checked_weights(&found, 1).unwrap_err());
        assert!(error.contains("`pytorch_model.bin` is not supported"), "{error}");
    }

    #[test]
    fn a_folder_is_found_by_its_path_whatever_its_name() {
        let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/tests/fixtures");
        let folder = fixtures.join("qwen3").display().to_string();
        for named in [Named::Any(&folder), Named::Folder(&folder)] {
            assert_eq!(find(named).unwrap().name, folder);
        }
        let error = find(Named::Folder("tiny")).unwrap_err();
        assert!(error.to_string().contains("./tiny"), "{error}");
    }
}
