//! Qwen3-TTS on the CPU.

mod load;
mod ops;

use std::sync::Arc;

use laptime_probe::stage;

use self::ops::{CpuOps, gathered};
use super::memory::{SMALL_BYTES, product_bytes};
use super::{attention::Span, crew::Crew, model::Loader, panels::panel_bytes, pass::Sizes, refuse_graph};
use crate::tensors::{product, sum};
use crate::tts::{
    CodecSizes, DeviceNeeds, Engine, LoadedWeights, QwenTts, TtsConfig, TtsOptions, TtsWeights, needed_bytes, together,
};
use crate::{Attention, Config, ModelError, attention::CPU_TILING, dtype::typed};

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
        let weights = LoadedWeights::load(&config, &mut Loader::<T>::new(Some(weights), &crew))?;
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
    let of_decoders = [(text, &config.talker), (1, &config.predictor), (decoded, &codec.transformer)];
    let products =
        of_decoders.map(|(rows, config)| [rows, wide(config)]).into_iter().chain([[text, config.text_width]]);
    let convs =
        sizes.convs.iter().map(|&[rows, inputs, taps]| [rows.saturating_mul(decoded), inputs.saturating_mul(taps)]);
    let panels = products.chain(convs).map(|[rows, depth]| panel_bytes(options.dtype, rows, depth, threads)).max();
    let thread = product_bytes(panels.unwrap_or(0));
    let books = product(&[codec.codebook, codec.groups, codec.vector_width()]);
    let numbers = |numbers: u64| numbers.saturating_mul(options.dtype.bytes());
    let device = DeviceNeeds {
        kept: sum([
            numbers(sum([pass(&config.talker, text, 1), pass(&config.predictor, 2, 1)])),
            // Codebooks are kept in f32.
            books.saturating_mul(4),
            SMALL_BYTES,
        ]),
        // Codebooks exist twice while they are computed.
        loading: books.saturating_mul(4),
        codec: sum([
            numbers(pass(&codec.transformer, decoded, 0)),
            numbers(product(&[decoded, sizes.hidden.max(sizes.inner)])),
            numbers(gathered(&sizes, decoded) as u64),
            // The audio may exist twice when it grows.
            product(&[codec.frame_samples(), frames, 4 * 2]),
            thread.saturating_mul(threads.max(1) as u64),
        ]),
        // The rows of text exist twice when they are divided.
        prefill: numbers(product(&[text, config.talker.hidden])),
        chunk: 0,
        positions: [text.saturating_add(frames), decoded],
        tiling: CPU_TILING,
    };
    needed_bytes(config, options, [text, frames], &sizes, device)
}
