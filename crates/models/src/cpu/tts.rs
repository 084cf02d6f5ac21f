//! Qwen3-TTS on the CPU.

mod load;
mod ops;
mod steps;

use std::sync::Arc;

use laptime_probe::stage;

use self::ops::{CpuOps, gathered};
pub(super) use self::steps::add_scaled;
use super::memory::{SMALL_BYTES, product_bytes};
use super::{
    attention::Span, crew::Crew, model::Source, pass::Sizes, product::PART, refuse_graph, turned::turned_bytes,
};
use crate::tts::{
    CodecSizes, DeviceNeeds, Engine, LoadedWeights, QwenTts, TtsConfig, TtsOptions, TtsWeights, needed_bytes, together,
};
use crate::{Attention, Config, ModelError, attention::CPU_TILING, dtype::typed, size::product};

/// Loads Qwen3-TTS into memory. It runs on this many threads, including the caller's.
pub fn qwen_tts(
    config: TtsConfig,
    weights: &TtsWeights,
    options: TtsOptions,
    threads: usize,
) -> Result<Box<dyn QwenTts>, ModelError> {
    options.check(&config)?;
    refuse_graph(options.graph)?;
    let _stage = stage!("weights");
    let (config, crew) = (Arc::new(config), Crew::new(threads)?);
    Ok(typed!(options.dtype, |T| {
        let mut loader = Source { weights: Some(weights), crew: &crew, fp8: None }.typed::<T>();
        let weights = LoadedWeights::load(&config, &mut loader)?;
        let ops = CpuOps::new(&config, &options, &weights, crew)?;
        Box::new(Engine::new(config, options, weights, ops))
    }))
}

/// Bytes of the heap that a model needs at most for prompts of this many tokens of text, including the positions before
/// the first frame, and this many frames.
pub fn needed_tts_bytes(config: &TtsConfig, options: &TtsOptions, [text, frames]: [usize; 2], threads: usize) -> u64 {
    let (decoded, codec, sizes) = (together(frames), &config.codec, CodecSizes::new(config));
    let pass = |config: &Config, rows: usize, logits: usize| {
        Sizes::new(config, Attention::Dense, &Span::new(config, 1, rows, 0), logits).numbers()
    };
    let wide = |config: &Config| config.hidden.max(config.ffn).max(config.heads.saturating_mul(config.head_dim));
    let decoders = [&config.talker, &config.predictor, &codec.transformer].map(wide);
    let deep = sizes.convs.iter().map(|[_, inputs, taps]| inputs.saturating_mul(*taps));
    let deepest = deep.chain(decoders).fold(config.text_width, usize::max);
    let thread =
        product_bytes(turned_bytes(options.dtype, text.max(decoded.saturating_mul(sizes.hidden)), deepest, PART));
    let books = product(&[codec.codebook, codec.groups, codec.vector_width()]);
    let device = DeviceNeeds {
        numbers: vec![
            pass(&config.talker, text, 1),
            pass(&config.predictor, 2, 1),
            pass(&codec.transformer, decoded, 0),
            // The rows of text exist twice when they are divided.
            product(&[text, config.talker.hidden]),
            product(&[decoded, sizes.hidden.max(sizes.inner)]),
            gathered(&sizes, decoded) as u64,
        ],
        bytes: vec![
            SMALL_BYTES,
            // Codebooks are kept in f32, and exist twice while they are computed.
            books.saturating_mul(4 * 2),
            // The audio may exist twice when it grows.
            product(&[codec.frame_samples(), frames, 4 * 2]),
            thread.saturating_mul(threads.max(1) as u64),
        ],
        positions: [text.saturating_add(frames), decoded],
        tiling: CPU_TILING,
    };
    needed_bytes(config, options, [text, frames], &sizes, device)
}
