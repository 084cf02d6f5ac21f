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
