//! Models with offloaded layers on a GPU: layers are copied on a separate stream.

use laptime_models::{
    Config, Decoder, Offload, Options, Weights,
    gpu::{GpuModel, vibevoice},
    vibevoice::{VibeVoice, VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights},
};

use crate::{
    gpu::CudaDevice,
    model::{decoder_on_gpu, into_error},
};

/// A prepared language model.
pub fn lm<'a>(
    config: &Config,
    weights: &Weights,
    options: Options,
    gpu: &'a CudaDevice,
) -> anyhow::Result<Box<dyn Decoder + 'a>> {
    let Some(offload) = options.offload.clone() else {
        return decoder_on_gpu(config, weights, options, gpu).map_err(into_error);
    };
    let side_stream = gpu.side_stream()?;
    let offload = Offload { lane: Some(side_stream.lane().clone()), ..offload };
    let model = GpuModel::load_offloaded(gpu.cuda(), config, weights, options.dtype, &offload).map_err(into_error)?;
    let options = Options { offload: Some(offload), ..options };
    model.decoder_offloaded(gpu.cuda(), side_stream.cuda(), options).map_err(into_error)
}

/// A prepared speech model.
pub fn model<'a>(
    config: &VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    gpu: &'a CudaDevice,
) -> anyhow::Result<Box<dyn VibeVoice + 'a>> {
    let config = config.clone();
    let Some(offload) = options.offload.clone() else {
        return vibevoice(gpu.cuda(), None, config, weights, options).map_err(into_error);
    };
    let side_stream = gpu.side_stream()?;
    let offload = Offload { lane: Some(side_stream.lane().clone()), ..offload };
    let options = VibeVoiceOptions { offload: Some(offload), ..options };
    vibevoice(gpu.cuda(), Some(side_stream.cuda()), config, weights, options).map_err(into_error)
}
