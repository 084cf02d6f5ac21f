//! Where the weights of streamed layers stay: a region of the host's memory for each.

// Regions are copied to and from; they are held until the streams have done it.
#![allow(unsafe_code)]

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use laptime_cuda::{Buffer, CudaError, Device, Done, Region, Stream};

use super::super::weights::{Loader, Number, layer_bytes, layer_within};
use crate::{Config, Home, ModelError, Offload, StreamMode, TensorSpec, fp8::WeightScales};

/// What gives pinned memory: [`Region::pinned`], or a test that refuses it.
pub type Pin<'a> = &'a dyn Fn(&Device, usize) -> Result<Region, CudaError>;

#[derive(Debug)]
pub struct HostLayers {
    regions: Mutex<Vec<Region>>,
    pub layers: usize,
    pub layer_bytes: usize,
    /// Those of the first layer: all are alike.
    pub tensors: Vec<TensorSpec>,
    /// The scales of their matrices if these are in e4m3.
    pub fp8: Option<WeightScales>,
    pub home: Home,
}

impl HostLayers {
    /// Fills the homes of the first layers of a model, as many as `offload` has streamed; none if all layers stay.
    ///
    /// One buffer of the device makes one layer after the other. Memory is pinned but in mode `sync`; where it is
    /// refused, all of it is pageable.
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
            // SAFETY: both live until the stream was waited for.
            unsafe { whole.begin_read(region.bytes_mut(), loader.device.stream())? };
            loader.device.stream().synchronise()?;
        }
        Ok(())
    }

    /// Mode `sync` is that of pageable memory, and the others are not.
    pub(super) fn check(&self, mode: StreamMode) -> Result<(), ModelError> {
        let is_pageable = self.home == Home::Pageable;
        if (mode == StreamMode::Sync) == is_pageable {
            return Ok(());
        }
        let has = if is_pageable { "pageable" } else { "pinned" };
        Err(ModelError::Refused(format!("the layers are at home in {has} memory, which mode `{mode}` does not use")))
    }

    /// Puts a copy of a layer to a buffer on a stream.
    ///
    /// # Safety
    ///
    /// As for [`Buffer::begin_write`].
    pub(super) unsafe fn begin_write<T: Number>(&self, layer: usize, buffer: &Buffer<T>, stream: &Stream) -> Done {
        let regions = self.regions();
        // SAFETY: as the caller says.
        unsafe { buffer.begin_write(regions.get(layer).ok_or_else(|| no_layer(layer))?.bytes(), stream) }
    }

    /// Puts a copy of a buffer to a layer's home on a stream.
    ///
    /// # Safety
    ///
    /// As for [`Buffer::begin_read`].
    pub(super) unsafe fn begin_read<T: Number>(&self, layer: usize, buffer: &Buffer<T>, stream: &Stream) -> Done {
        let mut regions = self.regions();
        // SAFETY: as the caller says.
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
