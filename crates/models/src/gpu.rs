//! The decoder on a GPU: cuBLAS and our own kernels for passes over many tokens, a few fused kernels for one token.

mod audio;
mod cache;
mod captured;
mod decoder;
mod fuser;
mod memory;
mod pass;
mod prompt;
mod separate_tests;
mod sparse;
mod step;
mod stepping;
mod streamed;
mod train;
mod tts;
mod vibevoice;
mod weights;

use std::{fmt::Debug, sync::Arc};

use laptime_cuda::{CudaError, Device};

use crate::{Config, Decoder, Dtype, ModelError, Offload, Options, Weights, dtype::typed, error::ensure};

#[doc(hidden)]
pub use self::separate_tests::logits_alone_and_apart;
use self::weights::{GpuWeights, Number};
pub use self::{
    cache::DeviceCache,
    fuser::{fuser, needed_fuser_bytes},
    memory::{needed_bytes, train_needed_bytes},
    streamed::Pin,
    train::trainer,
    tts::{needed_tts_bytes, qwen_tts},
    vibevoice::{needed_vibevoice_bytes, vibevoice},
};
use self::{decoder::GpuPasses, streamed::HostLayers};

/// A model with its weights on a GPU. Decoders may share it, one after another.
#[derive(Debug, Clone)]
pub struct GpuModel {
    config: Arc<Config>,
    dtype: Dtype,
    weights: Arc<dyn LoadedWeights>,
}

trait LoadedWeights: Debug + Send + Sync {
    /// Makes a decoder on the first device. Offloaded layers are copied on the stream of the second.
    fn decoder<'a>(
        self: Arc<Self>,
        config: &Arc<Config>,
        devices: (&'a Device, Option<&'a Device>),
        options: Options,
    ) -> Result<Box<dyn Decoder + 'a>, ModelError>;
}

impl<T: Number> LoadedWeights for GpuWeights<T> {
    fn decoder<'a>(
        self: Arc<Self>,
        config: &Arc<Config>,
        (device, copies): (&'a Device, Option<&'a Device>),
        options: Options,
    ) -> Result<Box<dyn Decoder + 'a>, ModelError> {
        Ok(Box::new(GpuPasses::new(device, copies, Arc::clone(config), self, options)?))
    }
}

impl GpuModel {
    /// Loads the weights on a device in this dtype. Synthetic weights are generated there.
    ///
    /// Offloaded layers go to host memory: pinned (by [`laptime_cuda::Region::pinned`] or another allocator), or pageable
    /// in mode `sync` or if pinning fails.
    pub fn load(
        device: &Device,
        config: &Config,
        weights: &Weights,
        dtype: Dtype,
        offload: Option<(&Offload, Pin<'_>)>,
    ) -> Result<Self, ModelError> {
        config.check()?;
        let from = (device, config, weights);
        let weights: Arc<dyn LoadedWeights> = typed!(dtype, |T| {
            Arc::new(GpuWeights::<T>::load_with(from, dtype, |loader| match offload {
                Some((offload, pin)) => HostLayers::of(loader, config, offload, pin),
                None => Ok(None),
            })?)
        });
        Ok(Self { config: Arc::new(config.clone()), dtype, weights })
    }

    /// Starts compiling the kernels of a decoder with these options in the background, while its weights load.
    pub fn compile_ahead(device: &Device, config: &Config, options: &Options) -> Result<(), ModelError> {
        config.check()?;
        options.check(config)?;
        typed!(options.dtype, |T| decoder::compile_ahead::<T>(device, config, options))
    }

    /// A decoder over these weights, with its own cache and buffers. Offloaded layers are copied on the stream of `copies`:
    /// the same device with another stream ([`Device::with_new_stream`]).
    pub fn decoder<'a>(
        &self,
        device: &'a Device,
        copies: Option<&'a Device>,
        options: Options,
    ) -> Result<Box<dyn Decoder + 'a>, ModelError> {
        let (wanted, has) = (options.dtype, self.dtype);
        ensure!(wanted == has, "the weights were loaded in {has}, not in {wanted}");
        Arc::clone(&self.weights).decoder(&self.config, (device, copies), options)
    }

    /// The dtype of the weights.
    pub fn dtype(&self) -> Dtype {
        self.dtype
    }
}

fn size(value: usize) -> Result<u32, CudaError> {
    u32::try_from(value).map_err(|_| CudaError::refused("sizing", 0, format!("{value} is more than kernels can count")))
}
