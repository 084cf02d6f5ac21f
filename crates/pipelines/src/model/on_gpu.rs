//! Models on a GPU.

use laptime_models::{
    Config, Decoder, ModelError, Options, Weights,
    gpu::{GpuModel, needed_bytes},
};

use super::{test_name::Pass, wanted::Wanted};
use crate::gpu::CudaDevice;

/// Bytes of the device that a case needs.
pub fn needed(config: &Config, wanted: &Wanted, options: &Options) -> u64 {
    let tokens = match wanted.test.pass {
        Pass::Forward | Pass::Prefill | Pass::Training(_) => wanted.test.tokens,
        // The prompt is put into the cache by one pass.
        Pass::Decode => wanted.prompt(),
    };
    let tokens = tokens.max(wanted.prompt());
    needed_bytes(config, options, tokens, !wanted.test.pass.has_cache())
}

/// A decoder that is ready.
pub fn make<'a>(
    config: &Config,
    weights: &Weights,
    options: Options,
    gpu: &'a CudaDevice,
) -> Result<Box<dyn Decoder + 'a>, ModelError> {
    GpuModel::load(gpu.cuda(), config, weights, options.dtype)?.decoder(gpu.cuda(), options)
}
