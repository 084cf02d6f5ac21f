//! Weights in a folder, as safetensors: one file, or several with an index.

use std::cmp::Ordering;
use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::path::{Path, PathBuf};

use laptime_trace::small_file;
use safetensors::tensor::{Dtype as StoredType, Metadata};
use safetensors::{SafeTensorError, SafeTensors};
use serde::de::DeserializeOwned;

use crate::fp8::Quantised;
use crate::{Config, Done, Dtype, Family, ModelError, TensorData, map::Map, misfit, tensors::TensorSpec, torch};

const INDEX: &str = "model.safetensors.index.json";

const SINGLE: &str = "model.safetensors";

#[derive(Debug, Default)]
pub struct Folder {
    files: Vec<Map>,
    pub tensors: HashMap<String, Stored>,
}

#[derive(Debug)]
pub struct Stored {
    file: usize,
    bytes: Range<usize>,
    pub shape: Vec<usize>,
    /// The dtype that the file states.
    pub stored_as: StoredType,
}

impl Stored {
    /// The dtype, if it is supported.
    pub fn dtype(&self) -> Option<Dtype> {
        match self.stored_as {
            StoredType::F32 => Some(Dtype::F32),
            StoredType::BF16 => Some(Dtype::Bf16),
            StoredType::F16 => Some(Dtype::F16),
            _ => None,
        }
    }
}

impl Folder {
    /// Maps the files of a folder and checks that they have the tensors of a model.
    pub fn open(folder: &Path, config: &Config) -> Result<Self, ModelError> {
        let mut opened = Self::open_any(folder)?;
        if config.family == Family::Nano {
            let tensors = opened.tensors.into_iter();
            opened.tensors = tensors.filter_map(|(name, stored)| Some((nano_renamed(&name)?, stored))).collect();
        }
        // Older checkpoints include RoPE frequencies, and a head that is tied to the embedding.
        let is_harmless =
            |name: &str| name.ends_with("rotary_emb.inv_freq") || (config.tied && name == "lm_head.weight");
        opened.checked(folder, &config.name, config.stored_tensors(), is_harmless)
    }

    /// Refuses missing, misshapen and unknown tensors, but for harmless unknown ones.
    pub fn checked(
        self,
        folder: &Path,
        model: &str,
        specs: Vec<TensorSpec>,
        is_harmless: impl Fn(&str) -> bool,
    ) -> Result<Self, ModelError> {
        let what = format!("the weights in `{}` do not fit `{model}`", folder.display());
        let hint = "`config.json` and the weights must belong to the same model";
        misfit::check(specs, &self.tensors, is_harmless, (&what, hint))?;
        Ok(self)
    }

    pub fn rename(&mut self, from: &str, to: String) {
        if let Some(stored) = self.tensors.remove(from) {
            self.tensors.insert(to, stored);
        }
    }

    /// The tensors of both folders.
    pub fn with(mut self, other: Self) -> Self {
        let first = self.files.len();
        let moved = |(name, stored): (String, Stored)| (name, Stored { file: first + stored.file, ..stored });
        self.tensors.extend(other.tensors.into_iter().map(moved));
        self.files.extend(other.files);
        self
    }

    pub fn open_any(folder: &Path) -> Result<Self, ModelError> {
        let mut opened = Self::default();
        for path in weight_files(folder)? {
            opened.add_safetensors(&path, "")?;
        }
        Ok(opened)
    }

    pub fn add_torch(&mut self, path: &Path, prefix: &str) -> Done {
        let map = open_file(path, Map::open)?;
        let file = self.files.len();
        for found in torch::tensors(map.bytes()).map_err(|fault| fault.of(path))? {
            let torch::Tensor { name, bytes, shape, stored_as } = found;
            self.tensors.insert(format!("{prefix}{name}"), Stored { file, bytes, shape, stored_as });
        }
        self.files.push(map);
        Ok(())
    }

    pub fn add_safetensors(&mut self, path: &Path, prefix: &str) -> Done {
        let map = open_file(path, Map::open)?;
        let (header, metadata) = read_header(map.bytes()).map_err(|reason| ModelError::damaged(path, reason))?;
        let file = self.files.len();
        for (name, info) in metadata.tensors() {
            let place = |offset: usize| offset.saturating_add(header).saturating_add(LENGTH_BYTES);
            let bytes = place(info.data_offsets.0)..place(info.data_offsets.1);
            self.tensors.insert(
                format!("{prefix}{name}"),
                Stored { file, bytes, shape: info.shape.clone(), stored_as: info.dtype },
            );
        }
        self.files.push(map);
        Ok(())
    }

    pub fn tensor(&self, spec: &TensorSpec) -> Result<TensorData<'_>, ModelError> {
        let found = self.tensors.get(&spec.name).filter(|stored| stored.shape == spec.shape);
        let missing = || ModelError::Refused(format!("the weights have no tensor `{}` of this shape", spec.name));
        found.and_then(|stored| self.data(spec, stored)).ok_or_else(missing)
    }

    fn data(&self, spec: &TensorSpec, stored: &Stored) -> Option<TensorData<'_>> {
        let bytes = self.bytes(stored)?;
        if stored.stored_as != StoredType::F8_E4M3 {
            return Some(TensorData::Stored { dtype: stored.dtype()?, bytes });
        }
        let (scale, width) = (spec.scale()?, *spec.shape.get(1)?);
        let scales = self.tensors.get(&scale.name).filter(|scales| scales.shape == scale.shape)?;
        let (dtype, scales) = (scales.dtype()?, self.bytes(scales)?);
        Some(TensorData::Quantised(Quantised { codes: bytes, width, dtype, scales }))
    }

    fn bytes(&self, stored: &Stored) -> Option<&[u8]> {
        self.files.get(stored.file)?.bytes().get(stored.bytes.clone())
    }
}

/// The size of the length of the header, at the beginning of a file.
const LENGTH_BYTES: usize = 8;

pub(crate) fn open_file<T>(path: &Path, open: impl Fn(&Path) -> std::io::Result<T>) -> Result<T, ModelError> {
    open(path).map_err(|source| ModelError::Open { path: path.to_owned(), source })
}

pub(crate) fn read_text(path: &Path) -> Result<String, ModelError> {
    open_file(path, |path| small_file::read_text(path, small_file::LARGEST_SMALL_FILE))
}

/// Parses a small JSON file; `what` names it in errors.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path, what: &str) -> Result<T, ModelError> {
    let text = open_file(path, |path| small_file::read_bytes(path, small_file::LARGEST_SMALL_FILE))?;
    serde_json::from_slice(&text).map_err(|error| ModelError::damaged(path, format!("invalid {what}: {error}")))
}

pub(crate) fn read_config(folder: &Path) -> Result<String, ModelError> {
    let path = folder.join("config.json");
    if folder.is_dir() && !path.exists() {
        let reason = format!("`{}` has no `config.json`", folder.display());
        let hint = "name a folder with `config.json` and `model.safetensors`";
        return Err(ModelError::hinted(reason, hint));
    }
    read_text(&path)
}

/// The name of a folder, for a model without another name.
pub(crate) fn folder_name(folder: &Path) -> String {
    let whole = folder.canonicalize().unwrap_or_else(|_| folder.to_owned());
    whole.file_name().map_or_else(|| "model".to_owned(), |name| name.to_string_lossy().into_owned())
}

fn weight_files(folder: &Path) -> Result<Vec<PathBuf>, ModelError> {
    let (index, single) = (folder.join(INDEX), folder.join(SINGLE));
    if single.exists() {
        return Ok(vec![single]);
    }
    if !index.exists() {
        let others = ["pytorch_model.bin", "pytorch_model.bin.index.json", "consolidated.00.pth", "model.gguf"];
        let other = others.into_iter().find(|name| folder.join(name).exists()).map(str::to_owned);
        return Err(ModelError::NoWeights { folder: folder.to_owned(), other });
    }
    let files: BTreeSet<String> = read_json::<Index>(&index, "index")?.weight_map.into_values().collect();
    let damaged = |reason: String| Err(ModelError::damaged(&index, reason));
    match files.iter().find(|file| Path::new(file).file_name().is_none_or(|name| name != file.as_str())) {
        Some(outside) => damaged(format!("`{outside}` is not a file in the same folder")),
        None if files.is_empty() => damaged("the index lists no files".to_owned()),
        None => Ok(files.into_iter().map(|file| folder.join(file)).collect()),
    }
}

#[derive(serde::Deserialize)]
struct Index {
    weight_map: HashMap<String, String>,
}

/// The length of the header of a file, and its contents.
fn read_header(bytes: &[u8]) -> Result<(usize, Metadata), String> {
    let has = bytes.len();
    // Checked first, so that offsets in the file cannot overflow.
    match expected_length(bytes).map(|expected| (expected, expected.cmp(&(has as u64)))) {
        Some((expected, Ordering::Greater)) => return Err(format!("truncated: {has} of {expected} bytes")),
        Some((expected, Ordering::Less)) => return Err(format!("{has} bytes, but the header says {expected}")),
        _ => {}
    }
    SafeTensors::read_metadata(bytes).map_err(|error| match error {
        SafeTensorError::HeaderTooSmall => format!("truncated after {has} bytes"),
        error => format!("invalid safetensors file: {error}"),
    })
}

/// The length of a file by its header, or at least that of the header if the header itself is truncated.
fn expected_length(bytes: &[u8]) -> Option<u64> {
    const LARGEST_HEADER: u64 = 100_000_000;
    let header = u64::from_le_bytes(*bytes.first_chunk()?);
    if header > LARGEST_HEADER {
        return None;
    }
    let data_begins = header.saturating_add(LENGTH_BYTES as u64);
    let Some(text) = bytes.get(LENGTH_BYTES..data_begins as usize) else { return Some(data_begins) };
    let header: HashMap<String, serde_json::Value> = serde_json::from_slice(text).ok()?;
    let ends = header.values().filter_map(|tensor| tensor.get("data_offsets")?.get(1)?.as_u64());
    Some(data_begins.saturating_add(ends.max()?))
}

/// Tensors of Nano XYZ that its decoders never use: cross-attention, RoPE frequencies and the importance of tokens.
const UNUSED: [&str; 5] =
    [".cross_attn.", "_proj_cross.", ".post_cross_attention_layernorm.", ".rope.inv_freq", ".dca_allocator."];

/// The FFN weights of Nano XYZ, and their names in `transformers`.
const FEEDFORWARD: [(&str, &str); 3] = [
    (".feedforward.w1.", ".mlp.gate_proj."),
    (".feedforward.w3.", ".mlp.up_proj."),
    (".feedforward.w2.", ".mlp.down_proj."),
];

/// The name of a tensor in `transformers`, or none if decoders do not use it.
fn nano_renamed(name: &str) -> Option<String> {
    if UNUSED.iter().any(|part| name.contains(part)) {
        return None;
    }
    // `NanoModel` saves no prefix; with `is_decoder` its layers are one level deeper.
    let inner = name.strip_prefix("model.").unwrap_or(name);
    let inner = inner.strip_prefix("decoder.").unwrap_or(inner);
    if inner == "lm_head.weight" {
        return Some(inner.to_owned());
    }
    let renamed = |name: String, (there, here): (&str, &str)| name.replace(there, here);
    Some(FEEDFORWARD.into_iter().fold(format!("model.{inner}"), renamed))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nano_xyz_names_become_transformers_names() {
        let same =
            ["model.embed_tokens.weight", "model.layers.0.self_attn.q_proj.weight", "model.layers.1.mlp.up_proj.bias"];
        for name in same {
            assert_eq!(nano_renamed(name).as_deref(), Some(name));
        }
        let changed = [
            ("model.layers.0.feedforward.w1.weight", "model.layers.0.mlp.gate_proj.weight"),
            ("model.layers.0.feedforward.w2.bias", "model.layers.0.mlp.down_proj.bias"),
            ("layers.3.feedforward.w3.weight", "model.layers.3.mlp.up_proj.weight"),
            ("model.decoder.norm.weight", "model.norm.weight"),
            ("model.lm_head.weight", "lm_head.weight"),
        ];
        for (there, here) in changed {
            assert_eq!(nano_renamed(there).as_deref(), Some(here), "{there}");
        }
        let unused = [
            "model.layers.0.self_attn.q_proj_cross.weight",
            "model.layers.0.cross_attn.o_proj.weight",
            "model.layers.0.post_cross_attention_layernorm.weight",
            "model.layers.0.self_attn.rope.inv_freq",
            "model.layers.0.self_attn.dca_allocator.importance_proj.weight",
        ];
        for name in unused {
            assert_eq!(nano_renamed(name), None, "{name}");
        }
    }
}
