//! Regions of host memory, pinned or pageable.

use crate::{device::Device, error::CudaError, memory::Pinned};

/// A region of host memory.
#[derive(Debug)]
pub enum Region {
    /// Pinned: the device copies it concurrently with computation and the host.
    Pinned(Pinned<u8>),
    /// Pageable: the driver copies it through a staging buffer, while the host waits.
    Pageable(Vec<u8>),
}

impl Region {
    /// Allocates this number of pinned bytes.
    pub fn pinned(device: &Device, bytes: usize) -> Result<Self, CudaError> {
        device.allocate_pinned(bytes).map(Self::Pinned)
    }

    /// Allocates this number of pageable bytes, all resident.
    pub fn pageable(bytes: usize) -> Result<Self, CudaError> {
        let mut values = Vec::new();
        let refused = |_| CudaError::refused("allocating pageable memory", 2, "out of host memory");
        values.try_reserve_exact(bytes).map_err(refused)?;
        values.resize(bytes, 0);
        Ok(Self::Pageable(values))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Pinned(bytes) => bytes,
            Self::Pageable(bytes) => bytes,
        }
    }

    /// The bytes, to be written.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(bytes) => bytes,
            Self::Pageable(bytes) => bytes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pageable_memory_that_the_machine_has_not_is_refused() {
        let error = Region::pageable(isize::MAX as usize).unwrap_err().to_string();
        assert!(error.contains("out of host memory"), "{error}");
        assert_eq!(Region::pageable(3).unwrap().bytes(), [0; 3]);
    }
}
