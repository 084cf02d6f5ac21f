//! Bytes that VibeVoice needs on a device, known before anything is allocated.

use super::{VibeVoiceConfig, VibeVoiceOptions, diffusion_head};
use crate::tensors::{product, sum};

/// The sizes of a reading, by which its memory is predicted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingSizes {
    /// Positions of the prompt.
    pub positions: usize,
    /// How many of them are audio of voices.
    pub voices: usize,
    /// Tokens that are generated.
    pub tokens: usize,
    /// Steps of the diffusion.
    pub steps: usize,
}

pub(crate) struct Own {
    pub weights: u64,
    /// Bytes that are needed while weights are loaded, and free before anything runs.
    pub loading: u64,
    pub capacities: [usize; 2],
    pub numbers: u64,
    pub bytes: u64,
}

pub(crate) fn needed_bytes(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    reading: &ReadingSizes,
    own: &Own,
) -> u64 {
    let [capacity, negative] = own.capacities.map(|capacity| capacity.min(config.decoder.context));
    let numbers = diffusion_head::numbers(config, reading.steps).saturating_add(own.numbers);
    let rope = product(&[capacity.max(negative), config.decoder.head_dim, size_of::<f32>()]);
    let runs = sum([numbers.saturating_mul(options.dtype.bytes()), rope, own.bytes]);
    sum([own.weights, config.cache_bytes(capacity, negative, options.dtype), runs.max(own.loading)])
}
