//! KV caches on a GPU.

use std::{any::Any, ops::Range};

use laptime_cuda::{Buffer, CudaError, Device, Done, Rows, SliceMut, Stream};

use super::weights::Number;
use crate::decoder::cache::{CacheMemory, HeadRows, KvCache};
use crate::{Config, Decoder, ModelError};

pub type GpuCache<T> = KvCache<Buffer<T>>;

impl From<HeadRows> for Rows {
    fn from(HeadRows { count, length, from_stride, to_stride }: HeadRows) -> Self {
        Self { count, length, from_stride, to_stride }
    }
}

impl<T: Number> CacheMemory<Buffer<T>> for Device {
    fn allocate(&self, numbers: usize) -> Result<Buffer<T>, ModelError> {
        Ok(Device::allocate(self, numbers)?)
    }

    fn copy(&self, from: &Buffer<T>, to: &mut Buffer<T>, rows: HeadRows) -> Result<(), ModelError> {
        Ok(to.all_mut().copy_rows_from(self.stream(), from.all(), rows.into())?)
    }

    fn read(&self, from: &Buffer<T>, first: usize, rows: HeadRows) -> Result<Vec<f32>, ModelError> {
        let mut gathered = Device::allocate::<T>(self, rows.count * rows.to_stride)?;
        gathered.all_mut().copy_rows_from(self.stream(), from.slice(first..from.length())?, rows.into())?;
        Ok(gathered.read()?.into_iter().map(T::widened).collect())
    }

    fn write(&self, to: &mut Buffer<T>, first: usize, rows: HeadRows, numbers: &[f32]) -> Result<(), ModelError> {
        let source = self.upload(&numbers.iter().map(|number| T::narrowed(*number)).collect::<Vec<T>>())?;
        let end = to.length();
        Ok(to.slice_mut(first..end)?.copy_rows_from(self.stream(), source.all(), rows.into())?)
    }
}

impl<T: Number> GpuCache<T> {
    pub fn new(device: &Device, config: &Config, batch: usize, capacity: usize) -> Result<Self, CudaError> {
        Self::with_capacity(config, batch, capacity, |numbers| device.allocate(numbers))
    }

    pub fn copy_section(
        &self,
        stream: &Stream,
        from: &Buffer<T>,
        positions: Range<usize>,
        mut to: SliceMut<'_, T>,
    ) -> Done {
        let (first, rows) = self.section(&positions);
        to.copy_rows_from(stream, from.slice(first..from.length())?, rows.into())
    }
}

/// The cache of a decoder on a GPU.
#[derive(Debug)]
pub struct DeviceCache<'a> {
    pub(super) device: &'a Device,
    /// A [`GpuCache`] of the decoder's dtype.
    pub(super) cache: &'a mut dyn Any,
}

pub struct KnownCache<'a, T> {
    pub device: &'a Device,
    pub cache: &'a mut GpuCache<T>,
}

impl<'a, T: Number> KnownCache<'a, T> {
    /// The cache of a decoder, which must be on the same GPU and have this dtype.
    pub fn of(decoder: &'a mut dyn Decoder, same_as: &Device) -> Result<Self, ModelError> {
        let (name, dtype) = (decoder.config().name.clone(), decoder.options().dtype);
        let refuse = |reason: &str| ModelError::Refused(format!("`{name}` cannot be fused on the GPU: {reason}"));
        let DeviceCache { device, cache } =
            decoder.device_cache().ok_or_else(|| refuse("its cache is in the memory of the host"))?;
        if device.facts().bus != same_as.facts().bus {
            return Err(refuse("it is on another GPU"));
        }
        let other_type = || refuse(&format!("its numbers are {dtype}, and those of the fuser {}", T::DTYPE));
        Ok(Self { device, cache: cache.downcast_mut().ok_or_else(other_type)? })
    }
}
