//! What can be wrong with a model, in the words of its users.

use std::{io, path::PathBuf};

use crate::Config;

/// What is wrong with a model, its weights or what is asked of it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// There is no such number type.
    #[error("there is no number type `{name}`")]
    NoDtype {
        /// What was asked for.
        name: String,
    },
    /// A configuration that makes no model.
    #[error("{config}: {reason}")]
    BadConfig {
        /// The model's name or file.
        config: String,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no model of this name.
    #[error("there is no model `{name}`")]
    NoModel {
        /// What was asked for.
        name: String,
        /// The name that may have been meant.
        near: Option<String>,
    },
    /// A model that is no decoder alone.
    #[error("`{name}` is an encoder-decoder; laptime has decoders: {}", decoders.join(", "))]
    EncoderDecoder {
        /// Its name.
        name: String,
        /// What there is of its kit.
        decoders: Vec<String>,
    },
    /// A file cannot be opened.
    #[error("cannot open `{}`", path.display())]
    Open {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write `{}`", path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The file of offloaded layers was changed.
    #[error("layer {layer} cannot be read back from `{}`: {reason}", path.display())]
    LayerFile {
        /// The file.
        path: PathBuf,
        /// The layer.
        layer: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Fewer bytes than a model needs with every layer streamed.
    #[error("{} MiB are not enough: at least {} MiB are needed, with layers streamed", budget >> 20, least.div_ceil(1 << 20))]
    SmallBudget {
        /// What there is.
        budget: u64,
        /// The smallest budget that works.
        least: u64,
    },
    /// A folder without `config.json`.
    #[error("`{}` has no `config.json`", folder.display())]
    NoConfig {
        /// The folder.
        folder: PathBuf,
    },
    /// A folder without weights that are read.
    #[error("`{}` has no weights: neither `model.safetensors` nor `model.safetensors.index.json`", folder.display())]
    NoWeights {
        /// The folder.
        folder: PathBuf,
        /// Weights in another format that it has.
        other: Option<String>,
    },
    /// A file that is not what its name says.
    #[error("`{}`: {reason}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// Weights that are not those of the model.
    #[error("the weights in `{}` do not fit `{model}`: {reasons}", folder.display())]
    Unfit {
        /// The folder.
        folder: PathBuf,
        /// The model's name.
        model: String,
        /// The tensors that are missing, too many, misshapen or of an unknown type.
        reasons: String,
        /// Whether only types are wrong.
        types_alone: bool,
    },
    /// A weight that is no finite number.
    #[error("`{tensor}` has {value} at {index}: the weights are not finite")]
    NotFinite {
        /// The tensor.
        tensor: String,
        /// The first such number of it.
        index: usize,
        /// What stands there.
        value: String,
    },
    /// A file in a format, or with contents, that is not read.
    #[error("`{}`: {reason}", path.display())]
    NotRead {
        /// The file.
        path: PathBuf,
        /// What was found.
        reason: String,
    },
    /// A folder without a fuser.
    #[error("`{}` has no fuser: no `projector_config.json`", folder.display())]
    NoFuser {
        /// The folder.
        folder: PathBuf,
    },
    /// A fuser for other models.
    #[error("the fuser in `{}` does not join `{sharer}` to `{receiver}`: {reason}", folder.display())]
    OtherFuser {
        /// The folder.
        folder: PathBuf,
        /// The model whose cache is heard.
        sharer: String,
        /// The model that answers.
        receiver: String,
        /// What differs, and on which side.
        reason: String,
    },
    /// A fuser whose tensors are not those that its own files describe.
    #[error("the fuser in `{}` is not whole: {reasons}", folder.display())]
    FuserNotWhole {
        /// The folder.
        folder: PathBuf,
        /// The tensors that are missing, too many, misshapen or of an unknown type.
        reasons: String,
        /// Whether only types are wrong.
        types_alone: bool,
    },
    /// Tokenizers between which no tokens can be found for each other.
    #[error("the tokens of two models cannot be aligned: {reason}")]
    NotAligned {
        /// What is missing, and on which side.
        reason: String,
    },
    /// More tokens than the model or the cache has positions for.
    #[error("{tokens} tokens do not fit: `{what}` has {room}")]
    TooLong {
        /// How many were asked for, those in the cache included.
        tokens: usize,
        /// What is too short.
        what: String,
        /// How many fit.
        room: usize,
    },
    /// The host has no memory for something.
    #[error("there is no memory for {} MiB", bytes >> 20)]
    OutOfMemory {
        /// What was asked for at once.
        bytes: u64,
    },
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

impl ModelError {
    pub(crate) fn no_optimizer() -> Self {
        Self::Refused("the trainer was made without an optimizer".to_owned())
    }

    pub(crate) fn no_pass() -> Self {
        Self::Refused("no pass has run yet".to_owned())
    }

    pub(crate) fn no_token() -> Self {
        Self::Refused("no token was chosen yet: run a prompt first".to_owned())
    }

    pub(crate) fn sparse_behind_cache() -> Self {
        Self::Refused("sparse attention begins with the first token: the cache must be empty".to_owned())
    }

    /// What can be done about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoModel { near, .. } => {
                let near = near.as_ref().map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                let names: Vec<String> = Config::presets().into_iter().map(|config| config.name).collect();
                Some(format!("{near}`laptime list models` shows them: {}", names.join(", ")))
            }
            Self::NoDtype { .. } => Some("there are `f32`, `bf16` and `f16`".to_owned()),
            Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound => {
                Some("check the name; a folder is as Hugging Face lays it out".to_owned())
            }
            Self::Write { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("the disk is full: make room on it, or name a folder on another".to_owned())
            }
            Self::LayerFile { .. } => {
                Some("run it again; if it fails again, use another disk: `TMPDIR` names the folder".to_owned())
            }
            Self::SmallBudget { .. } => Some("give it more memory, a smaller model, or fewer positions".to_owned()),
            Self::NoConfig { .. } => {
                Some("name the folder that has `config.json` and `model.safetensors` in it".to_owned())
            }
            Self::NoWeights { other, .. } => Some(weights_hint(other.as_deref())),
            Self::Damaged { .. } => Some("fetch the file again; its copying may have been stopped".to_owned()),
            Self::NotRead { .. } => Some(
                "a fuser is read as `torch.save(projector.state_dict(), …)` writes it since torch 1.6, or as safetensors"
                    .to_owned(),
            ),
            Self::NoFuser { .. } => {
                Some("name the folder with `projector_config.json`, or the one above it that has `final`".to_owned())
            }
            Self::OtherFuser { .. } => {
                Some("name the fuser that was trained for these two models, or the models that it was trained for".to_owned())
            }
            Self::FuserNotWhole { types_alone: false, .. } => {
                Some("fetch every `projector_*.json` and `projector_*.pt` of one fuser again".to_owned())
            }
            Self::NotAligned { .. } => {
                Some("take two models that share a tokenizer, or a prompt without a chat template".to_owned())
            }
            Self::Unfit { types_alone: true, .. } | Self::FuserNotWhole { types_alone: true, .. } => {
                Some("f32, bf16 and f16 are read; save the model in one of them".to_owned())
            }
            Self::Unfit { .. } => Some("the folder's `config.json` and its weights must be of one model".to_owned()),
            #[cfg(feature = "cuda")]
            Self::Cuda(error) => error.hint(),
            _ => None,
        }
    }
}

fn weights_hint(other: Option<&str>) -> String {
    match other {
        None => "fetch the weights too, or leave the folder out for synthetic ones".to_owned(),
        Some(other) => {
            format!("`{other}` is not read; `save_pretrained` of `transformers` writes the model as safetensors")
        }
    }
}
