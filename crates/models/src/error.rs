//! Errors.

use std::path::{Path, PathBuf};
use std::{fmt::Display, io};

/// An error of a model, its weights or a request.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ModelError {
    /// A refused request, with a hint.
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
    /// Less memory than a model needs with every layer offloaded.
    #[error("{} MiB are not enough: the model needs at least {} MiB with all layers offloaded", budget >> 20, least.div_ceil(1 << 20))]
    SmallBudget {
        budget: u64,
        /// The smallest budget that works.
        least: u64,
    },
    /// A folder without supported weights.
    #[error("`{}` has no weights: neither `model.safetensors` nor `model.safetensors.index.json`", folder.display())]
    NoWeights {
        folder: PathBuf,
        /// Weights in another format.
        other: Option<String>,
    },
    /// More tokens than the context or the cache has positions.
    #[error("{tokens} tokens do not fit: `{what}` has {capacity}")]
    TooLong {
        /// Including those in the cache.
        tokens: usize,
        what: String,
        capacity: usize,
    },
    /// The host is out of memory.
    #[error("cannot allocate {} MiB", bytes >> 20)]
    OutOfMemory { bytes: u64 },
    /// An invalid request.
    #[error("{0}")]
    Refused(String),
    /// An error of a GPU.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] laptime_cuda::CudaError),
}

/// The outcome of a call that returns nothing.
pub(crate) type Done = Result<(), ModelError>;

/// Returns [`ModelError::Refused`] with this message unless a condition holds.
macro_rules! ensure {
    ($holds:expr, $($words:tt)+) => {
        if !$holds {
            return Err($crate::ModelError::Refused(format!($($words)+)));
        }
    };
}
pub(crate) use ensure;

/// Returns this message as an error unless a condition holds.
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

    /// The error for a damaged file.
    pub(crate) fn damaged(path: &Path, reason: impl Display) -> Self {
        let hint = "download the file again; the transfer may have been interrupted";
        Self::hinted(format!("`{}`: {reason}", path.display()), hint)
    }

    pub(crate) fn no_pass() -> Self {
        Self::Refused("no pass has run yet".to_owned())
    }

    pub(crate) fn sparse_after_cache() -> Self {
        Self::Refused("sparse attention starts at the first token: the cache must be empty".to_owned())
    }

    /// What to do about it, if known.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Hinted { hint, .. } => return Some(hint.clone()),
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                "check the name; a folder must be laid out as on Hugging Face"
            }
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                "the disk is full: free some space, or use a folder on another disk"
            }
            Self::LayerFile { .. } => "run it again; if it fails again, set `TMPDIR` to a folder on another disk",
            Self::SmallBudget { .. } => "allow more memory, or use a smaller model or fewer positions",
            Self::NoWeights { other: None, .. } => "download the weights, or leave the folder out for synthetic ones",
            Self::NoWeights { other: Some(other), .. } => {
                let how = "`save_pretrained` of `transformers` saves a model as safetensors";
                return Some(format!("`{other}` is not supported; {how}"));
            }
            #[cfg(feature = "cuda")]
            Self::Cuda(error) => return error.hint(),
            _ => return None,
        };
        Some(hint.to_owned())
    }
}
