//! What can be wrong with a model, in the words of its users.

use std::path::{Path, PathBuf};
use std::{fmt::Display, io};

/// What is wrong with a model, its weights or what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the words of a variant say what its fields are")]
pub enum ModelError {
    /// Something that is refused, with what can be done about it.
    #[error("{reason}")]
    Hinted { reason: String, hint: String },
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
    /// A folder without weights that are read.
    #[error("`{}` has no weights: neither `model.safetensors` nor `model.safetensors.index.json`", folder.display())]
    NoWeights {
        folder: PathBuf,
        /// Weights in another format that it has.
        other: Option<String>,
    },
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
    pub(crate) fn hinted(reason: impl Into<String>, hint: impl Into<String>) -> Self {
        Self::Hinted { reason: reason.into(), hint: hint.into() }
    }

    /// A file that is not what its name says.
    pub(crate) fn damaged(path: &Path, reason: impl Display) -> Self {
        let hint = "fetch the file again; its copying may have been stopped";
        Self::hinted(format!("`{}`: {reason}", path.display()), hint)
    }

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
            Self::Hinted { hint, .. } => return Some(hint.clone()),
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the name; a folder is as Hugging Face lays it out"
            }
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full: make room on it, or name a folder on another"
            }
            Self::LayerFile { .. } => "run it again; if it fails again, use another disk: `TMPDIR` names the folder",
            Self::SmallBudget { .. } => "give it more memory, a smaller model, or fewer positions",
            Self::NoWeights { other: None, .. } => "fetch the weights too, or leave the folder out for synthetic ones",
            Self::NoWeights { other: Some(other), .. } => {
                let how = "`save_pretrained` of `transformers` writes the model as safetensors";
                return Some(format!("`{other}` is not read; {how}"));
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
