//! The decoder on a GPU: cuBLAS and kernels of our own for passes over many tokens, a few fused kernels for one token.

mod apart_tests;
mod cache;
mod captured;
mod decoder;
mod device_cache;
mod fuser;
mod pass;
mod passing;
mod prompt;
mod room;
mod sparse;
mod step;
mod stepping;
mod streamed;
mod train;
mod tts;
mod vibevoice;
mod weights;

use std::sync::Arc;

use half::{bf16, f16};
use laptime_cuda::{CudaError, Device, Region};

use crate::{Config, Decoder, Dtype, ModelError, Offload, Options, Weights, decoder::generic::GenericDecoder};

#[doc(hidden)]
pub use self::apart_tests::logits_alone_and_apart;
use self::weights::{GpuWeights, Number};
use self::{decoder::GpuPasses, streamed::Homes};
pub use self::{
    device_cache::DeviceCache,
    fuser::{fuser, needed_fuser_bytes},
    room::{needed_bytes, train_needed_bytes},
    streamed::Pin,
    train::trainer,
    tts::{needed_tts_bytes, qwen_tts},
    vibevoice::{needed_vibevoice_bytes, vibevoice},
};

/// A model whose weights are on a GPU. Several decoders may share it, one after the other.
#[derive(Debug, Clone)]
pub struct GpuModel {
    config: Arc<Config>,
    weights: Typed,
}

#[derive(Debug, Clone)]
enum Typed {
    F32(Arc<GpuWeights<f32>>),
    Bf16(Arc<GpuWeights<bf16>>),
    F16(Arc<GpuWeights<f16>>),
    /// Matrices of layers in e4m3, all else in bf16.
    Fp8(Arc<GpuWeights<bf16>>),
}

type Source<'a> = (&'a Device, &'a Config, &'a Weights);

impl GpuModel {
    /// Loads the weights on a device in this dtype. Synthetic weights are generated there.
    pub fn load(device: &Device, config: &Config, weights: &Weights, dtype: Dtype) -> Result<Self, ModelError> {
        Self::load_with((device, config, weights), dtype, None)
    }

    /// Loads the weights on a device, except those of offloaded layers, which go to host memory: pinned, or pageable in
    /// mode `sync` or where pinned memory is refused.
    pub fn load_offloaded(
        device: &Device,
        config: &Config,
        weights: &Weights,
        dtype: Dtype,
        offload: &Offload,
    ) -> Result<Self, ModelError> {
        Self::load_with((device, config, weights), dtype, Some((offload, &Region::pinned)))
    }

    /// The same with pinned memory from another allocator.
    pub fn load_offloaded_with(
        device: &Device,
        config: &Config,
        weights: &Weights,
        dtype: Dtype,
        offload: &Offload,
        pin: Pin<'_>,
    ) -> Result<Self, ModelError> {
        Self::load_with((device, config, weights), dtype, Some((offload, pin)))
    }

    fn load_with(from: Source<'_>, dtype: Dtype, offload: Option<(&Offload, Pin<'_>)>) -> Result<Self, ModelError> {
        fn typed<T: Number>(
            (device, config, weights): Source<'_>,
            dtype: Dtype,
            offload: Option<(&Offload, Pin<'_>)>,
        ) -> Result<Arc<GpuWeights<T>>, ModelError> {
            let keep = |loader: &weights::Loader<'_, T>| match offload {
                Some((offload, pin)) => Homes::of(loader, config, offload, pin),
                None => Ok(None),
            };
            GpuWeights::load_with((device, config, weights), dtype, keep).map(Arc::new)
        }
        from.1.check()?;
        let weights = match dtype {
            Dtype::F32 => Typed::F32(typed(from, dtype, offload)?),
            Dtype::Bf16 => Typed::Bf16(typed(from, dtype, offload)?),
            Dtype::F16 => Typed::F16(typed(from, dtype, offload)?),
            Dtype::Fp8 => Typed::Fp8(typed(from, dtype, offload)?),
        };
        Ok(Self { config: Arc::new(from.1.clone()), weights })
    }

    /// A decoder over these weights, with a cache and buffers of its own.
    pub fn decoder<'a>(&self, device: &'a Device, options: Options) -> Result<Box<dyn Decoder + 'a>, ModelError> {
        self.decoder_with(device, None, options)
    }

    /// A decoder with offloaded layers. They are copied on the stream of `copies`, which is the same device
    /// with streams of its own ([`Device::with_new_streams`]), and whose lane is that of the offloading.
    pub fn decoder_offloaded<'a>(
        &self,
        device: &'a Device,
        copies: &'a Device,
        options: Options,
    ) -> Result<Box<dyn Decoder + 'a>, ModelError> {
        self.decoder_with(device, Some(copies), options)
    }

    fn decoder_with<'a>(
        &self,
        device: &'a Device,
        copies: Option<&'a Device>,
        options: Options,
    ) -> Result<Box<dyn Decoder + 'a>, ModelError> {
        if options.dtype != self.dtype() {
            let (wanted, has) = (options.dtype, self.dtype());
            return Err(ModelError::Refused(format!(
                "the weights are {has} on the device, and {wanted} was asked for"
            )));
        }
        fn typed<'a, T: Number>(
            (device, copies): (&'a Device, Option<&'a Device>),
            config: &Arc<Config>,
            weights: &Arc<GpuWeights<T>>,
            options: Options,
        ) -> Result<Box<dyn Decoder + 'a>, ModelError> {
            let passes = GpuPasses::new(device, copies, Arc::clone(config), Arc::clone(weights), options)?;
            Ok(Box::new(GenericDecoder::new(passes)))
        }
        match &self.weights {
            Typed::F32(weights) => typed((device, copies), &self.config, weights, options),
            Typed::Bf16(weights) | Typed::Fp8(weights) => typed((device, copies), &self.config, weights, options),
            Typed::F16(weights) => typed((device, copies), &self.config, weights, options),
        }
    }

    /// The number type of the weights.
    pub fn dtype(&self) -> Dtype {
        match self.weights {
            Typed::F32(_) => Dtype::F32,
            Typed::Bf16(_) => Dtype::Bf16,
            Typed::F16(_) => Dtype::F16,
            Typed::Fp8(_) => Dtype::Fp8,
        }
    }
}

fn size(value: usize) -> Result<u32, CudaError> {
    u32::try_from(value).map_err(|_| CudaError::refused("sizing", 0, format!("{value} is more than kernels can count")))
}
