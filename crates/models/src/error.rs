//! What can be wrong with a model, in the words of its users.

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
