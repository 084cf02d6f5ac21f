//! Device failures that affect more than one case.

/// A case needs more memory than the device has. Returned as an error, it becomes the outcome of the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("out of device memory")]
pub struct OutOfMemory {
    /// The requested bytes, if known.
    pub needed_bytes: Option<u64>,
    /// The available bytes, if known.
    pub available_bytes: Option<u64>,
}

/// An error with its causes, outermost first; without any messages this one.
pub fn chained(errors: Vec<String>, otherwise: &str) -> anyhow::Error {
    let mut errors = errors.into_iter().rev();
    let root = anyhow::anyhow!(errors.next().unwrap_or_else(|| otherwise.to_owned()));
    errors.fold(root, anyhow::Error::context)
}

/// A device cannot be opened; includes a hint.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device `{device}` is not available: {reason}")]
pub struct NoDevice {
    /// The device name as given.
    pub device: String,
    /// The cause.
    pub reason: String,
    /// The hint.
    pub hint: String,
}
