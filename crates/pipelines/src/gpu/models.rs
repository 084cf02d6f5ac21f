//! Models on a GPU. Offloaded layers are copied on the second stream.

use laptime_cuda::Region;
use laptime_models::vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights};
use laptime_models::{Config, Decoder, ModelError, Offload, Options, Weights, gpu};

use super::CudaDevice;

pub fn decoder<'a>(
    gpu: &'a CudaDevice,
    config: &Config,
    weights: &Weights,
    options: Options,
) -> Result<Box<dyn Decoder + 'a>, ModelError> {
    let Some(offload) = options.offload.clone() else { return on_stream(gpu.cuda(), config, weights, options) };
    let side = gpu.side_stream()?;
    let offload = Offload { lane: Some(side.lane().clone()), ..offload };
    gpu::GpuModel::compile_ahead(gpu.cuda(), config, &options)?;
    let model = gpu::GpuModel::load(gpu.cuda(), config, weights, options.dtype, Some((&offload, &Region::pinned)));
    let options = Options { offload: Some(offload), ..options };
    model.and_then(|model| model.decoder(gpu.cuda(), Some(side.cuda()), options))
}

/// A decoder without offloaded layers, on this stream.
pub fn on_stream<'a>(
    stream: &'a laptime_cuda::Device,
    config: &Config,
    weights: &Weights,
    options: Options,
) -> Result<Box<dyn Decoder + 'a>, ModelError> {
    gpu::GpuModel::compile_ahead(stream, config, &options)?;
    let model = gpu::GpuModel::load(stream, config, weights, options.dtype, None);
    model.and_then(|model| model.decoder(stream, None, options))
}

pub fn vibevoice<'a>(
    gpu: &'a CudaDevice,
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    mut options: VibeVoiceOptions,
) -> Result<Box<dyn VibeVoice + 'a>, ModelError> {
    let side = options.offload.is_some().then(|| gpu.side_stream()).transpose()?;
    if let (Some(offload), Some(side)) = (&mut options.offload, side) {
        offload.lane = Some(side.lane().clone());
    }
    gpu::vibevoice(gpu.cuda(), side.map(|side| side.cuda()), config, weights, options)
}
