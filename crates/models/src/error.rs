//! What can be wrong with a model, in the words of its users.

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
    /// Something asked in a way that makes no sense.
    #[error("{0}")]
    Refused(String),
    /// candle could not do it.
    #[error("the CPU could not compute it: {0}")]
    Candle(#[from] candle_core::Error),
    /// A GPU could not do it.
    #[cfg(feature = "cuda")]
    #[error(transparent)]
    Cuda(#[from] laptime_cuda::CudaError),
}

impl ModelError {
    /// What can be done about it, where that is known.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::NoModel { near, .. } => {
                let near = near.as_ref().map_or_else(String::new, |near| format!("did you mean `{near}`? "));
                let names: Vec<String> = Config::presets().into_iter().map(|config| config.name).collect();
                Some(format!("{near}`laptime list models` shows them: {}", names.join(", ")))
            }
            Self::NoDtype { .. } => Some("there are `f32`, `bf16` and `f16`".to_owned()),
            #[cfg(feature = "cuda")]
            Self::Cuda(error) => error.hint(),
            _ => None,
        }
    }
}
