//! The size of a built pattern.

use laptime_models::attention::Kept;

/// The size of a built pattern.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Built {
    /// Pairs of a head that are kept.
    pub connections: u64,
    /// Pairs of a head that are computed.
    pub executed: u64,
    /// Bytes of its lists.
    pub bytes: u64,
}

impl Built {
    /// For stored scores there is nothing to build.
    pub fn naive(kept: &Kept, length: usize) -> Self {
        let executed = (length as u64).saturating_mul(length as u64);
        Self { connections: kept.allowed(length), executed, bytes: 0 }
    }
}
