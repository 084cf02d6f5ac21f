//! Bytes that a synthesis needs, known before anything is allocated: the sizes of the model, to which a device adds its
//! buffers.

use super::{CHUNK_FRAMES, CONTEXT_FRAMES, TtsConfig, TtsOptions, count::CodecSizes};
use crate::HasTensors;
use crate::attention::{Layout, Tiling};
use crate::tensors::{product, sum};

/// What a device adds. Weights are loaded first; then prompts and chunks of audio follow one another.
pub struct DeviceNeeds {
    /// Bytes that live as long as the model.
    pub kept: u64,
    /// Bytes that are freed when the weights are loaded.
    pub loading: u64,
    /// Bytes that the codec keeps from its first chunk on.
    pub codec: u64,
    /// Bytes that are freed after each prompt.
    pub prefill: u64,
    /// Bytes that are freed after each chunk.
    pub chunk: u64,
    /// Positions of the RoPE tables of the talker and of the codec.
    pub positions: [usize; 2],
    /// How block attention divides queries and keys.
    pub tiling: Tiling,
}

pub fn together(frames: usize) -> usize {
    frames.min(CHUNK_FRAMES + CONTEXT_FRAMES)
}

/// The maximum for prompts of this many tokens of text, including the positions before the first frame, and this many
/// frames.
pub fn needed_bytes(
    config: &TtsConfig,
    options: &TtsOptions,
    [text, frames]: [usize; 2],
    sizes: &CodecSizes,
    device: DeviceNeeds,
) -> u64 {
    let (decoded, [positions, codec_positions]) = (together(frames), device.positions);
    let numbers = |numbers: u64| numbers.saturating_mul(options.dtype.bytes());
    let kept = sum([
        numbers(config.parameters()),
        config.cache_bytes(options.capacity, options.dtype),
        product(&[config.talker.head_dim, positions, 4]),
        product(&[config.predictor.head_dim, config.groups, 4]),
        product(&[config.codec.transformer.head_dim, codec_positions, 4]),
        // A list of codes that grows may exist twice.
        product(&[config.groups, options.capacity.max(frames), 4 * 2]),
        device.kept,
    ]);
    // The largest tensor exists twice while it is packed.
    let largest = config.codec_file_tensors().iter().map(|spec| product(&spec.shape)).max().unwrap_or(0);
    let loading = numbers(largest).saturating_add(device.loading);
    let codec = sum([
        numbers(product(&[decoded, sizes.hidden, 2])),
        Layout::most_bytes(&config.codec.kept(), decoded, device.tiling),
        device.codec,
    ]);
    // Rows of text: looked up, inside, and as wide as the talker.
    let rows = sum([product(&[text, config.text_width, 2]), product(&[text, config.talker.hidden])]);
    let prefill = numbers(rows).saturating_add(device.prefill);
    kept.saturating_add(loading.max(codec.saturating_add(prefill.max(device.chunk))))
}
