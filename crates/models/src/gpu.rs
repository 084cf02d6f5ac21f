//! The decoder on a GPU: cuBLAS and kernels of our own for passes over many tokens, a few fused kernels for one token.

mod cache;
mod decoder;
mod device_cache;
mod fuser;
mod pass;
mod room;
mod sparse;
mod speech;
mod step;
mod stepping;
mod train;
mod tts;
mod weights;

use std::sync::Arc;

use half::{bf16, f16};
use laptime_cuda::{CudaError, Device};

use crate::{Config, Decoder, Dtype, ModelError, Options, Weights};

use self::{decoder::GpuDecoder, weights::GpuWeights};
pub use self::{
    device_cache::DeviceCache,
    fuser::{fuser, needed_fuser_bytes},
    room::{needed_bytes, train_needed_bytes},
    speech::{GpuVoicing, needed_speech_bytes},
    train::trainer,
    tts::{GpuTtsModel, needed_tts_bytes},
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
}

impl GpuModel {
    /// Puts the weights on a device, in this number type. Those by formula are made there.
    pub fn load(device: &Device, config: &Config, weights: &Weights, dtype: Dtype) -> Result<Self, ModelError> {
        config.check()?;
        let weights = match dtype {
            Dtype::F32 => Typed::F32(Arc::new(GpuWeights::load(device, config, weights)?)),
            Dtype::Bf16 => Typed::Bf16(Arc::new(GpuWeights::load(device, config, weights)?)),
            Dtype::F16 => Typed::F16(Arc::new(GpuWeights::load(device, config, weights)?)),
        };
        Ok(Self { config: Arc::new(config.clone()), weights })
    }

    /// A decoder over these weights, with a cache and buffers of its own.
    pub fn decoder<'a>(&self, device: &'a Device, options: Options) -> Result<Box<dyn Decoder + 'a>, ModelError> {
        if options.dtype != self.dtype() {
            let (wanted, has) = (options.dtype, self.dtype());
            return Err(ModelError::Refused(format!(
                "the weights are {has} on the device, and {wanted} was asked for"
            )));
        }
        let config = Arc::clone(&self.config);
        Ok(match &self.weights {
            Typed::F32(weights) => Box::new(GpuDecoder::new(device, config, Arc::clone(weights), options)?),
            Typed::Bf16(weights) => Box::new(GpuDecoder::new(device, config, Arc::clone(weights), options)?),
            Typed::F16(weights) => Box::new(GpuDecoder::new(device, config, Arc::clone(weights), options)?),
        })
    }

    /// The number type of the weights.
    pub fn dtype(&self) -> Dtype {
        match self.weights {
            Typed::F32(_) => Dtype::F32,
            Typed::Bf16(_) => Dtype::Bf16,
            Typed::F16(_) => Dtype::F16,
        }
    }
}

/// A size as kernels count.
fn size(value: usize) -> Result<u32, CudaError> {
    u32::try_from(value).map_err(|_| CudaError::refused("sizing", 0, format!("{value} is more than kernels can count")))
}
