//! The home of offloaded layers: a region of host memory for each.

// Regions are copied to and from; they are kept until the streams have finished.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laptime_cuda::{Buffer, CudaError, Device, Done, Region, Stream};

use super::super::weights::{Loader, Number, layer_bytes, layer_within};
use crate::{Config, Home, ModelError, Offload, StreamMode, TensorSpec, error::ensure, fp8::WeightScales};

/// Allocates pinned memory: [`Region::pinned`], or a test that fails.
pub type Pin<'a> = &'a dyn Fn(&Device, usize) -> Result<Region, CudaError>;

#[derive(Debug)]
pub struct HostLayers {
    regions: Mutex<Vec<Region>>,
    pub layers: usize,
    pub layer_bytes: usize,
    /// The tensors of the first layer; all layers are alike.
    pub tensors: Vec<TensorSpec>,
    /// The scales of their matrices if they are e4m3.
    pub fp8: Option<WeightScales>,
    pub home: Home,
}

impl HostLayers {
    /// Loads the offloaded layers of a model, if there are any.
    ///
    /// They are generated one by one in a buffer on the device. The home is pageable in mode `sync` or if pinning fails, else
    /// pinned.
    pub fn of<T: Number>(
        loader: &Loader<'_, T>,
        config: &Config,
        offload: &Offload,
        pin: Pin<'_>,
    ) -> Result<Option<Self>, ModelError> {
        let layers = offload.streamed_layers(config)?;
        if layers == 0 {
            return Ok(None);
        }
        let tensors = config.layer_tensors(0);
        let fp8 = loader.fp8.map(|_| config.weight_scales);
        let layer_bytes = layer_bytes(&tensors, T::DTYPE.bytes(), fp8);
        let all = |allocate: Pin<'_>| -> Result<Vec<Region>, CudaError> {
            (0..layers).map(|_| allocate(loader.device, layer_bytes)).collect()
        };
        let (regions, home) = match offload.mode {
            StreamMode::Sync => (all(&pageable)?, Home::Pageable),
            _ => match all(pin) {
                Ok(regions) => (regions, Home::Pinned),
                Err(refused) => (all(&pageable)?, Home::Refused(refused.to_string())),
            },
        };
        let mut host_layers = Self { regions: Mutex::new(regions), layers, layer_bytes, tensors, fp8, home };
        host_layers.fill(loader, config)?;
        Ok(Some(host_layers))
    }

    fn fill<T: Number>(&mut self, loader: &Loader<'_, T>, config: &Config) -> Result<(), ModelError> {
        let whole = Arc::new(loader.device.allocate::<T>(self.layer_bytes / size_of::<T>())?);
        let mut made = layer_within(&whole, &self.tensors, self.fp8)?;
        let regions = self.regions.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (layer, region) in regions.iter_mut().enumerate() {
            loader.fill_layer(&config.layer_tensors(layer), &mut made)?;
            // SAFETY: both live until the stream is synchronised.
            unsafe { whole.begin_read(region.bytes_mut(), loader.device.stream())? };
            loader.device.stream().synchronise()?;
        }
        Ok(())
    }

    /// Refuses mode `sync` with pinned memory, and other modes with pageable memory.
    pub(super) fn check(&self, mode: StreamMode) -> Result<(), ModelError> {
        let is_pageable = self.home == Home::Pageable;
        let has = if is_pageable { "pageable" } else { "pinned" };
        ensure!((mode == StreamMode::Sync) == is_pageable, "mode `{mode}` cannot use offloaded layers in {has} memory");
        Ok(())
    }

    /// Enqueues a copy of a layer to a buffer.
    ///
    /// # Safety
    ///
    /// As for [`Buffer::begin_write`].
    pub(super) unsafe fn begin_write<T: Number>(&self, layer: usize, buffer: &Buffer<T>, stream: &Stream) -> Done {
        let regions = self.regions();
        // SAFETY: as the caller ensures.
        unsafe { buffer.begin_write(regions.get(layer).ok_or_else(|| no_layer(layer))?.bytes(), stream) }
    }

    /// Enqueues a copy of a buffer to the home of a layer.
    ///
    /// # Safety
    ///
    /// As for [`Buffer::begin_read`].
    pub(super) unsafe fn begin_read<T: Number>(&self, layer: usize, buffer: &Buffer<T>, stream: &Stream) -> Done {
        let mut regions = self.regions();
        // SAFETY: as the caller ensures.
        unsafe { buffer.begin_read(regions.get_mut(layer).ok_or_else(|| no_layer(layer))?.bytes_mut(), stream) }
    }

    fn regions(&self) -> MutexGuard<'_, Vec<Region>> {
        self.regions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn no_layer(layer: usize) -> CudaError {
    CudaError::refused("streaming layers", 0, format!("layer {layer} has no home"))
}

fn pageable(_: &Device, bytes: usize) -> Result<Region, CudaError> {
    Region::pageable(bytes)
}
