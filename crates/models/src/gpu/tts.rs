//! Qwen3-TTS on a GPU.

mod codec;
mod load;
mod ops;

use std::sync::Arc;

use laptime_cuda::Device;
use laptime_probe::stage;

use self::codec::COLUMN_BYTES;
use self::ops::{GpuOps, TEXT_CAPACITY};
use super::audio::{Kit, KitLoader};
use super::memory::{Head, PassSizes, WORKSPACE_BYTES};
use super::sparse::GPU_TILING;
use crate::tensors::{product, sum};
use crate::tts::{
    CHUNK_FRAMES, CONTEXT_FRAMES, CodecSizes, DeviceNeeds, Engine, LoadedWeights, QwenTts, TtsConfig, TtsOptions,
    TtsWeights, needed_bytes, together,
};
use crate::{CacheCapacity, Config, ModelError, dtype::typed};

/// Loads Qwen3-TTS on a device. Synthetic weights are generated there.
pub fn qwen_tts<'a>(
    device: &'a Device,
    config: TtsConfig,
    weights: &TtsWeights,
    options: TtsOptions,
) -> Result<Box<dyn QwenTts + 'a>, ModelError> {
    options.check(&config)?;
    Ok(typed!(options.dtype, |T| {
        let (config, kit) = (Arc::new(config), Kit::<T>::load(device)?);
        let weights = {
            let _stage = stage!("weights");
            let loaded = LoadedWeights::load(&config, &mut KitLoader::new(&kit, (), weights))?;
            device.stream().synchronise()?;
            loaded
        };
        let ops = GpuOps::new(kit, &config, &options, &weights)?;
        Box::new(Engine::new(config, options, weights, ops))
    }))
}

/// Codes, states, tables of rules and what each allocation is rounded up by.
const SMALL_BYTES: u64 = 4 << 20;

/// Numbers behind each row of a convolution's packed weights.
const BEHIND: usize = 8;

/// Bytes that a model needs at most on a GPU, for prompts of this many tokens of text, including the positions before the
/// first frame, and this many frames.
pub fn needed_tts_bytes(config: &TtsConfig, options: &TtsOptions, [text, frames]: [usize; 2]) -> u64 {
    let (decoded, sizes) = (together(frames), CodecSizes::new(config));
    let (talker, transformer, tensors) = (&config.talker, &config.codec.transformer, config.codec_file_tensors());
    let numbers = |numbers: u64| numbers.saturating_mul(options.dtype.bytes());
    let pass = |config: &Config, rows: usize| {
        PassSizes::new(config, &options.decoder(CacheCapacity::Static(rows), None), rows, rows, Head::Last)
            .parts
            .numbers()
    };
    let bridged = talker.vocab.saturating_add(config.predicted().saturating_mul(config.predictor.vocab));
    let tables = if config.has_bridge() { product(&[bridged, config.predictor.hidden]) } else { 0 };
    let kept = [
        // All embeddings of codes after the bridge.
        tables,
        sum(tensors.iter().map(|spec| product(&[spec.shape.first().copied().unwrap_or(0), BEHIND]))),
        product(&[text.max(TEXT_CAPACITY).next_power_of_two(), talker.hidden]),
    ];
    let device = DeviceNeeds {
        kept: sum([numbers(sum(kept)), WORKSPACE_BYTES, SMALL_BYTES]),
        loading: if config.has_bridge() { WORKSPACE_BYTES } else { 0 },
        codec: sum([
            numbers(product(&[decoded, sizes.inner])),
            product(&[config.codec.frame_samples(), decoded, 4]),
            COLUMN_BYTES as u64,
        ]),
        prefill: numbers(pass(talker, text)),
        chunk: numbers(pass(transformer, decoded).saturating_add(product(&[
            2,
            decoded,
            transformer.kv_heads,
            transformer.head_dim,
        ]))),
        positions: [options.capacity, CHUNK_FRAMES + CONTEXT_FRAMES],
        tiling: GPU_TILING,
    };
    needed_bytes(config, options, [text, frames], &sizes, device)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Dtype, HasTensors};

    #[test]
    fn most_of_a_model_is_its_weights() {
        let config = TtsConfig::from_preset("1.7b").unwrap();
        let options = TtsOptions::new(Dtype::Bf16, 2048);
        let (needed, weights) = (needed_tts_bytes(&config, &options, [300, 300]), config.weight_bytes(Dtype::Bf16));
        assert!(needed > weights && needed < weights + weights / 3, "{needed} bytes, {weights} of weights");
    }

    #[test]
    fn more_frames_need_no_more_than_are_decoded_at_once() {
        let config = TtsConfig::from_preset("tiny").unwrap();
        let options = TtsOptions::new(Dtype::F32, 4096);
        let needed = |frames| needed_tts_bytes(&config, &options, [100, frames]);
        assert!(needed(325) > needed(100));
        assert_eq!(needed(325), needed(1000));
        assert!(needed(usize::MAX) == u64::MAX || needed(usize::MAX) > needed(1000));
    }
}
