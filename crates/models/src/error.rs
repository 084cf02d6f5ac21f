//! What can be wrong with a model, in the words of its users.

use std::{io, path::PathBuf};

use crate::Config;

/// What is wrong with a model, its weights or what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the words of a variant say what its fields are")]
pub enum ModelError {
    /// There is no such number type.
    #[error("there is no number type `{name}`")]
    NoDtype { name: String },
    /// A configuration that makes no model.
    #[error("{config}: {reason}")]
    BadConfig { config: String, reason: String },
    /// There is no model of this name.
    #[error("there is no model `{name}`")]
    NoModel {
        name: String,
        /// The name that may have been meant.
        near: Option<String>,
    },
    /// A model that is no decoder alone.
    #[error("`{name}` is an encoder-decoder; laptime has decoders: {}", decoders.join(", "))]
    EncoderDecoder {
        name: String,
        /// What there is of its kit.
        decoders: Vec<String>,
    },
    /// A file cannot be opened.
    #[error("cannot open `{}`", path.display())]
    Open { path: PathBuf, source: io::Error },
    /// A file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write { path: PathBuf, source: io::Error },
    /// The file of offloaded layers was changed.
    #[error("layer {layer} cannot be read back from `{}`: {reason}", path.display())]
    LayerFile { path: PathBuf, layer: usize, reason: String },
    /// Fewer bytes than a model needs with every layer streamed.
    #[error("{} MiB are not enough: at least {} MiB are needed, with layers streamed", budget >> 20, least.div_ceil(1 << 20))]
    SmallBudget {
        budget: u64,
        /// The smallest budget that works.
        least: u64,
    },
    /// A folder without `config.json`.
    #[error("`{}` has no `config.json`", folder.display())]
    NoConfig { folder: PathBuf },
    /// A folder without weights that are read.
    #[error("`{}` has no weights: neither `model.safetensors` nor `model.safetensors.index.json`", folder.display())]
    NoWeights {
        folder: PathBuf,
        /// Weights in another format that it has.
        other: Option<String>,
    },
    /// A file that is not what its name says.
    #[error("`{}`: {reason}", path.display())]
    Damaged { path: PathBuf, reason: String },
    /// Weights that are not those of the model.
    #[error("the weights in `{}` do not fit `{model}`: {reasons}", folder.display())]
    Unfit {
        folder: PathBuf,
        model: String,
        reasons: String,
        /// Whether only types are wrong.
        types_alone: bool,
    },
    /// A weight that is no finite number.
    #[error("`{tensor}` has {value} at {index}: the weights are not finite")]
    NotFinite {
        tensor: String,
        /// The first such number of it.
        index: usize,
        value: String,
    },
    /// A file in a format, or with contents, that is not read.
    #[error("`{}`: {reason}", path.display())]
    NotRead { path: PathBuf, reason: String },
    /// A folder without a fuser.
    #[error("`{}` has no fuser: no `projector_config.json`", folder.display())]
    NoFuser { folder: PathBuf },
    /// A fuser for other models.
    #[error("the fuser in `{}` does not join `{sharer}` to `{receiver}`: {reason}", folder.display())]
    OtherFuser { folder: PathBuf, sharer: String, receiver: String, reason: String },
    /// A fuser whose tensors are not those that its own files describe.
    #[error("the fuser in `{}` is not whole: {reasons}", folder.display())]
    FuserNotWhole {
        folder: PathBuf,
        reasons: String,
        /// Whether only types are wrong.
        types_alone: bool,
    },
    /// Tokenizers between which no tokens can be found for each other.
    #[error("the tokens of two models cannot be aligned: {reason}")]
    NotAligned { reason: String },
    /// More tokens than the model or the cache has positions for.
    #[error("{tokens} tokens do not fit: `{what}` has {capacity}")]
    TooLong {
        /// How many were asked for, those in the cache included.
        tokens: usize,
        what: String,
        capacity: usize,
    },
    /// The host has no memory for something.
    #[error("there is no memory for {} MiB", bytes >> 20)]
    OutOfMemory { bytes: u64 },
    /// Something asked in a way that makes no sense.
    #[error("{0}")]
    Refused(String),
    /// A GPU could not do it.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] laptime_cuda::CudaError),
}

/// The outcome of a call that returns nothing.
pub(crate) type Done = Result<(), ModelError>;

/// Refuses in these words what does not hold.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err($crate::ModelError::Refused(format!($($words)+)));
        }
    };
}
pub(crate) use ensure;

/// Ends a check with these words unless something holds.
macro_rules! require {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err(format!($($words)+));
        }
    };
}
pub(crate) use require;

/// Refuses more tokens than fit.
pub(crate) fn fit(tokens: usize, what: &str, capacity: usize) -> Done {
    if tokens > capacity { Err(ModelError::TooLong { tokens, what: what.to_owned(), capacity }) } else { Ok(()) }
}

impl ModelError {
    pub(crate) fn no_optimizer() -> Self {
        Self::Refused("the trainer was made without an optimizer".to_owned())
    }

    pub(crate) fn no_pass() -> Self {
        Self::Refused("no pass has run yet".to_owned())
    }

    pub(crate) fn sparse_behind_cache() -> Self {
        Self::Refused("sparse attention begins with the first token: the cache must be empty".to_owned())
    }

    /// What can be done about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::NoModel { near, .. } => {
                let near = near.as_ref().map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                let names: Vec<String> = Config::presets().into_iter().map(|config| config.name).collect();
                return Some(format!("{near}`laptime list models` shows them: {}", names.join(", ")));
            }
            Self::NoDtype { .. } => "there are `f32`, `bf16` and `f16`",
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the name; a folder is as Hugging Face lays it out"
            }
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full: make room on it, or name a folder on another"
            }
            Self::LayerFile { .. } => "run it again; if it fails again, use another disk: `TMPDIR` names the folder",
            Self::SmallBudget { .. } => "give it more memory, a smaller model, or fewer positions",
            Self::NoConfig { .. } => "name the folder that has `config.json` and `model.safetensors` in it",
            Self::NoWeights { other: None, .. } => "fetch the weights too, or leave the folder out for synthetic ones",
            Self::NoWeights { other: Some(other), .. } => {
                let how = "`save_pretrained` of `transformers` writes the model as safetensors";
                return Some(format!("`{other}` is not read; {how}"));
            }
            Self::Damaged { .. } => "fetch the file again; its copying may have been stopped",
            Self::NotRead { .. } => {
                "a fuser is read as `torch.save(projector.state_dict(), …)` writes it since torch 1.6, or as safetensors"
            }
            Self::NoFuser { .. } => {
                "name the folder with `projector_config.json`, or the one above it that has `final`"
            }
            Self::OtherFuser { .. } => {
                "name the fuser that was trained for these two models, or the models that it was trained for"
            }
            Self::FuserNotWhole { types_alone: false, .. } => {
                "fetch every `projector_*.json` and `projector_*.pt` of one fuser again"
            }
            Self::NotAligned { .. } => "take two models that share a tokenizer, or a prompt without a chat template",
            Self::Unfit { types_alone: true, .. } | Self::FuserNotWhole { types_alone: true, .. } => {
                "f32, bf16 and f16 are read, and e4m3 matrices with a `weight_scale_inv` per block; save the model in one of them"
            }
            Self::Unfit { .. } => "the folder's `config.json` and its weights must be of one model",
            #[cfg(feature = "cuda")]
            Self::Cuda(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
