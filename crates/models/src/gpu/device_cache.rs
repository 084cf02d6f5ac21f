//! The cache of a decoder as others on the same GPU see it.

use std::any::Any;

use laptime_cuda::Device;

use super::{cache::GpuCache, weights::Number};
use crate::{Decoder, ModelError};

/// The cache of a decoder on a GPU, to be read and written there.
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
    /// That of a decoder, which must be on the same GPU and of this number type.
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
