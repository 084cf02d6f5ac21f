//! Regions of host memory that whole buffers are copied from and to.
#![allow(unsafe_code)]

use bytemuck::Pod;

use crate::error::{CudaError, Done};
use crate::memory::{Buffer, Pinned};
use crate::{context::driver, device::Device, stream::Stream};

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

    /// Whether they are pinned.
    pub fn is_pinned(&self) -> bool {
        matches!(self, Self::Pinned(_))
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Pinned(bytes) => bytes,
            Self::Pageable(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pinned(bytes) => bytes,
            Self::Pageable(bytes) => bytes,
        }
    }

    /// Puts a copy of the whole region to the beginning of a buffer on a stream. Copies of pinned memory do not wait.
    ///
    /// # Safety
    ///
    /// Both must live, and neither be written by others, until the stream has done it; nobody reads the buffer until
    /// then.
    pub unsafe fn begin_write<T: Pod>(&self, buffer: &Buffer<T>, stream: &Stream) -> Done {
        let bytes = self.bytes();
        fits(bytes, buffer)?;
        stream.context.bind()?;
        let (to, from) = (buffer.pointer(), bytes.as_ptr().cast());
        driver!("copying to the device", cuMemcpyHtoDAsync_v2(to, from, bytes.len(), stream.raw()))
    }

    /// Puts a copy of the beginning of a buffer to the whole region on a stream. Copies to pinned memory do not wait.
    ///
    /// # Safety
    ///
    /// Both must live, and the region not be looked at, until the stream has done it.
    pub unsafe fn begin_read<T: Pod>(&mut self, buffer: &Buffer<T>, stream: &Stream) -> Done {
        let bytes = self.bytes_mut();
        fits(bytes, buffer)?;
        stream.context.bind()?;
        let (to, from) = (bytes.as_mut_ptr().cast(), buffer.pointer());
        driver!("copying from the device", cuMemcpyDtoHAsync_v2(to, from, bytes.len(), stream.raw()))
    }
}

fn fits<T: Pod>(bytes: &[u8], buffer: &Buffer<T>) -> Done {
    if bytes.len() <= buffer.bytes() {
        return Ok(());
    }
    let reason = format!("{} bytes do not fit a buffer of {}", bytes.len(), buffer.bytes());
    Err(CudaError::refused("copying", 0, reason))
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
