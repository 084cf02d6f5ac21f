//! What a device may run into that is more than a failure of one case.

/// A case needs more memory than the device has: returned as an error, it is the outcome of the case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the device is out of memory")]
pub struct OutOfMemory {
    /// Bytes that were asked for, if that is known.
    pub needed_bytes: Option<u64>,
    /// Bytes that there were, if that is known.
    pub available_bytes: Option<u64>,
}

/// A device cannot be opened, with something to do about it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("device `{device}` is not there: {reason}")]
pub struct NoDevice {
    /// The device, by the name that was given.
    pub device: String,
    /// Why not.
    pub reason: String,
    /// What to do.
    pub hint: String,
}
