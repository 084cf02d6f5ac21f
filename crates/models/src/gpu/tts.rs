//! Text to speech on a GPU: the talker's step and the whole code predictor are graphs, and codes are chosen on the device,
//! so that the host reads one word a frame.

mod captured;
mod codec;
mod codec_weights;
mod engine;
mod predictor;
mod room;
mod talker;
mod weights;

use std::sync::Arc;

use half::{bf16, f16};
use laptime_cuda::{Blas, Device, nn::Operations};

pub use self::room::needed_tts_bytes;
use self::{engine::Engine, weights::TtsGpuWeights};
use super::{
    pass::{Context, Turns},
    size,
};
use crate::{
    Config, Dtype, ModelError, Options, Room,
    attention::Kept,
    tts::{SpeakOptions, Speaking, TtsConfig, TtsWeights},
};

/// A text-to-speech model whose weights are on a GPU. Several speakers may share it, one after the other.
#[derive(Clone)]
pub struct GpuTtsModel {
    config: Arc<TtsConfig>,
    weights: Typed,
}

#[derive(Clone)]
enum Typed {
    F32(Arc<TtsGpuWeights<f32>>),
    Bf16(Arc<TtsGpuWeights<bf16>>),
    F16(Arc<TtsGpuWeights<f16>>),
}

impl GpuTtsModel {
    /// Puts the weights on a device, in this number type. Those by formula are made there.
    pub fn load(device: &Device, config: &TtsConfig, weights: &TtsWeights, dtype: Dtype) -> Result<Self, ModelError> {
        config.check()?;
        let weights = match dtype {
            Dtype::F32 => Typed::F32(Arc::new(TtsGpuWeights::load(device, config, weights)?)),
            Dtype::Bf16 => Typed::Bf16(Arc::new(TtsGpuWeights::load(device, config, weights)?)),
            Dtype::F16 => Typed::F16(Arc::new(TtsGpuWeights::load(device, config, weights)?)),
        };
        Ok(Self { config: Arc::new(config.clone()), weights })
    }

    /// A speaker over these weights, with caches and buffers of its own.
    pub fn speaker<'a>(&self, device: &'a Device, options: SpeakOptions) -> Result<Box<dyn Speaking + 'a>, ModelError> {
        if options.dtype != self.dtype() {
            let (wanted, has) = (options.dtype, self.dtype());
            let reason = format!("the weights are {has} on the device, and {wanted} was asked for");
            return Err(ModelError::Refused(reason));
        }
        let config = Arc::clone(&self.config);
        Ok(match &self.weights {
            Typed::F32(weights) => Box::new(Engine::new(device, config, Arc::clone(weights), options)?),
            Typed::Bf16(weights) => Box::new(Engine::new(device, config, Arc::clone(weights), options)?),
            Typed::F16(weights) => Box::new(Engine::new(device, config, Arc::clone(weights), options)?),
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

/// How one of the decoders inside is made ready.
fn decoder_options(options: &SpeakOptions, room: usize, kept: Option<Kept>) -> Options {
    Options { kept, marks: options.marks.clone(), ..Options::new(options.dtype, Room::Static(room)) }
}

/// What a step needs of one of the decoders inside.
fn context<'a, T>(
    device: &'a Device,
    blas: &'a Blas,
    operations: &'a Operations<T>,
    (config, options, turns): (&'a Config, &'a Options, &'a Turns),
) -> Context<'a, T> {
    Context { stream: device.stream(), blas, config, marks: &options.marks, operations, turns }
}
