//! Models on a GPU.

use laptime_models::{
    Config, Decoder, ModelError, Options, Weights,
    gpu::{GpuModel, needed_bytes},
};

use super::spec::Spec;
use crate::gpu::CudaDevice;

/// Bytes of the device that a case needs.
pub fn needed(config: &Config, spec: &Spec, options: &Options) -> u64 {
    needed_bytes(config, options, spec.most_at_once(), !spec.test.pass.has_cache())
}

/// A prepared decoder.
pub fn make<'a>(
    config: &Config,
    weights: &Weights,
    options: Options,
    gpu: &'a CudaDevice,
) -> Result<Box<dyn Decoder + 'a>, ModelError> {
    GpuModel::load(gpu.cuda(), config, weights, options.dtype)?.decoder(gpu.cuda(), options)
}
