//! Reads a fuser from a folder in the published layout.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path as FilePath, PathBuf};

use serde::Deserialize;
use serde_json::Value;

use super::{Alignment, CacheShape, FuserConfig, Pair};
use crate::folder::{Folder, read_json};
use crate::{Config, Done, HasTensors, ModelError, misfit, torch::not_read};

/// The file with the pairs of layers and their projectors.
const PAIRS: &str = "projector_config.json";

/// The folder of the final checkpoint.
const FINAL: &str = "final";

/// The supported class of projectors.
const CLASS: &str = "C2CProjector";

pub struct Checkpoint {
    pub config: FuserConfig,
    pub tensors: Folder,
}

/// Target model, source model, target layer, `[source layer, projector]`.
type PairsFile = BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<(usize, usize)>>>>;

#[derive(Deserialize)]
struct ProjectorFile {
    class: String,
    init_args: Sizes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
struct Sizes {
    source_dim: usize,
    target_dim: usize,
    #[serde(default = "one")]
    source_num_heads: usize,
    #[serde(default = "one")]
    target_num_heads: usize,
    #[serde(default = "usual_width")]
    intermediate_dim: usize,
    #[serde(default = "usual_width")]
    hidden_dim: usize,
    #[serde(default = "usual_layers")]
    num_layers: usize,
}

fn one() -> usize {
    1
}

fn usual_width() -> usize {
    1024
}

fn usual_layers() -> usize {
    3
}

impl Checkpoint {
    pub fn open(folder: &FilePath, receiver: &Config, sharer: &Config) -> Result<Self, ModelError> {
        let folder = find(folder)?;
        let joins = Joins { folder: &folder, receiver: CacheShape::of(receiver), sharer: CacheShape::of(sharer) };
        joins.check_names()?;
        let pairs = joins.pairs()?;
        let sizes = joins.sizes(&pairs)?;
        let config = FuserConfig {
            receiver: joins.receiver.clone(),
            sharer: joins.sharer.clone(),
            hidden: sizes.hidden_dim,
            intermediate: sizes.intermediate_dim,
            blocks: sizes.num_layers,
            pairs,
        };
        config.check()?;
        let tensors = read_tensors(&folder, &config)?;
        Ok(Self { config, tensors })
    }
}

/// The folder with the pairs: this one, or `final` in it.
fn find(folder: &FilePath) -> Result<PathBuf, ModelError> {
    let places = [folder.to_owned(), folder.join(FINAL)];
    let found = places.into_iter().find(|place| place.join(PAIRS).exists());
    found.ok_or_else(|| {
        let reason = format!("`{}` has no fuser: no `projector_config.json`", folder.display());
        ModelError::hinted(reason, "name the folder with `projector_config.json`, or the one above it that has `final`")
    })
}

/// The tensors of all projectors in use. Checks names and shapes.
fn read_tensors(folder: &FilePath, config: &FuserConfig) -> Result<Folder, ModelError> {
    let mut tensors = Folder::default();
    for projector in config.projectors() {
        let (name, prefix) = (format!("projector_{projector}"), format!("projector_{projector}."));
        let safe = folder.join(format!("{name}.safetensors"));
        match safe.exists() {
            true => tensors.add_safetensors(&safe, &prefix)?,
            false => tensors.add_torch(&folder.join(format!("{name}.pt")), &prefix)?,
        }
    }
    let what = format!("the fuser in `{}` is incomplete", folder.display());
    let hint = "download every `projector_*.json` and `projector_*.pt` of one fuser again";
    let is_harmless = |name: &str| name.ends_with(".gate_temperature");
    misfit::check(config.all_tensors(), &tensors.tensors, is_harmless, (&what, hint))?;
    Ok(tensors)
}

struct Joins<'a> {
    folder: &'a FilePath,
    receiver: CacheShape,
    sharer: CacheShape,
}

impl Joins<'_> {
    fn other(&self, reason: String) -> ModelError {
        let (sharer, receiver, folder) = (&self.sharer.model, &self.receiver.model, self.folder.display());
        ModelError::hinted(
            format!("the fuser in `{folder}` does not fit `{sharer}` and `{receiver}`: {reason}"),
            "name the fuser that was trained for these models, or the models that it was trained for",
        )
    }

    /// Refuses a fuser that was trained for other models, if both names are known.
    fn check_names(&self) -> Done {
        let Some(path) = self.folder.parent().map(|above| above.join("config.json")).filter(|path| path.exists())
        else {
            return Ok(());
        };
        let trained: Value = read_json(&path, "record of training")?;
        let sides = [("base_model", &self.receiver), ("teacher_model", &self.sharer)];
        for (field, given) in sides {
            let Some(trained) = trained.get("model").and_then(|model| model.get(field)).and_then(Value::as_str) else {
                continue;
            };
            if let (Ok(trained), Ok(known)) = (Config::from_preset(trained), Config::from_preset(&given.model))
                && trained.name != known.name
            {
                let (trained, given) = (trained.name, &given.model);
                return Err(self.other(format!("it was trained with `{trained}`, not with `{given}`")));
            }
        }
        Ok(())
    }

    fn pairs(&self) -> Result<Vec<Pair>, ModelError> {
        let path = self.folder.join(PAIRS);
        let file: PairsFile = read_json(&path, "list of pairs")?;
        let damaged = |reason: &str| ModelError::damaged(&path, reason);
        let mut sources = file.values().flat_map(BTreeMap::values);
        let (Some(layers), None) = (sources.next(), sources.next()) else {
            return Err(damaged("expected exactly one pair of models"));
        };
        let mut pairs = BTreeMap::new();
        for (layer, sources) in layers {
            let layer: usize = layer.parse().map_err(|_| damaged("a layer is not a number"))?;
            // The original computes all of them and uses the first.
            let (sharer_layer, projector) = *sources.first().ok_or_else(|| damaged("a layer has no source layer"))?;
            pairs.insert(layer, Pair { sharer_layer, projector });
        }
        self.check_layers(&pairs)?;
        Ok(pairs.into_values().collect())
    }

    fn check_layers(&self, pairs: &BTreeMap<usize, Pair>) -> Done {
        let (own, shared) = (self.receiver.layers, self.sharer.layers);
        if !pairs.keys().copied().eq(0..own) {
            let (model, count) = (&self.receiver.model, pairs.len());
            return Err(self.other(format!("it is for a receiver with {count} layers, but `{model}` has {own}")));
        }
        let sharer_layers: Vec<usize> = pairs.values().map(|pair| pair.sharer_layer).collect();
        let reaches = sharer_layers.iter().max().map_or(0, |last| last.saturating_add(1));
        let follows = |layers: usize| {
            let ways = [Alignment::LastAligned, Alignment::KNearest];
            ways.into_iter().any(|way| way.layers(own, layers) == sharer_layers)
        };
        if reaches > shared || (reaches < shared && follows(reaches) && !follows(shared)) {
            let model = &self.sharer.model;
            return Err(self.other(format!("it is for a sharer with {reaches} layers, but `{model}` has {shared}")));
        }
        Ok(())
    }

    /// The sizes of the projectors in use, which must be the same.
    fn sizes(&self, pairs: &[Pair]) -> Result<Sizes, ModelError> {
        let mut common = None;
        for projector in pairs.iter().map(|pair| pair.projector).collect::<BTreeSet<_>>() {
            let path = self.folder.join(format!("projector_{projector}.json"));
            let file: ProjectorFile = read_json(&path, "projector")?;
            if file.class != CLASS {
                let reason = format!("it is a `{}`; only `{CLASS}` is supported", file.class);
                return Err(not_read(&path, &reason));
            }
            self.check_heads(&file.init_args)?;
            if *common.get_or_insert(file.init_args) != file.init_args {
                return Err(not_read(&path, "its sizes differ from those of other projectors"));
            }
        }
        common.ok_or_else(|| self.other("it has no projectors".to_owned()))
    }

    fn check_heads(&self, sizes: &Sizes) -> Done {
        let sides = [
            ("sharer", &self.sharer, sizes.source_num_heads, sizes.source_dim),
            ("receiver", &self.receiver, sizes.target_num_heads, sizes.target_dim),
        ];
        for (side, given, heads, width) in sides {
            let CacheShape { model, kv_heads, head_dim, .. } = given;
            if (*kv_heads, *head_dim) != (heads, width) {
                let found = format!("`{model}` has {kv_heads} of {head_dim}");
                return Err(self.other(format!("it is for a {side} with {heads} heads of {width}, but {found}")));
            }
        }
        Ok(())
    }
}
