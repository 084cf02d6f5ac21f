//! What speech on the CPU needs, before it allocates anything.

use super::{
    super::{
        attention::Span,
        memory::{SMALL_BYTES, THREAD_BYTES, kept_bytes, with_resident},
        pass,
        product::{BLOCKS_BYTES, WIDENED_BYTES},
        turned::turned_bytes,
    },
    tokenizer::TOGETHER,
};
use crate::{
    Attention, Dtype, ModelError, most_resident,
    vibevoice::{TokenizerConfig, VibeVoiceConfig, VibeVoiceOptions},
};

/// How many numbers the buffers of a tokenizer have, and what a thread needs for its products.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Sizes {
    /// The largest of what blocks add to, with what comes before it.
    stream: usize,
    /// The largest of what is inside a feed-forward part.
    inner: usize,
    /// Bytes of a thread.
    turned: u64,
}

impl Sizes {
    /// Those of this many tokens of audio that are run together, either way.
    fn new(config: &TokenizerConfig, tokens: usize) -> Self {
        let mut sizes = Self { stream: 0, inner: 0, turned: 0 };
        let mut rows = tokens.saturating_mul(config.hop());
        for stage in 0..=config.ratios.len() {
            let (channels, ratio) = (config.channels(stage), config.ratios.get(stage).copied().unwrap_or(1).max(1));
            let inner = channels.saturating_mul(config.widening);
            let seen = rows.saturating_add(config.kernel.max(ratio)).saturating_mul(channels);
            sizes.stream = sizes.stream.max(seen);
            sizes.inner = sizes.inner.max(rows.saturating_mul(inner));
            // A feed-forward part and the ends have all rows; what leaves the stage for a smaller one has fewer.
            let is_end = stage == 0 || stage == config.ratios.len();
            let ends = if is_end { channels.saturating_mul(config.kernel) } else { 0 };
            let leaves = turned_bytes(rows / ratio, channels.saturating_mul(ratio.saturating_mul(2)));
            sizes.turned =
                sizes.turned.max(turned_bytes(rows, inner.max(ends).max(channels.saturating_mul(2)))).max(leaves);
            rows /= ratio;
        }
        sizes
    }

    /// All of them: what blocks add to, what is seen, what is normed, and what is inside.
    fn numbers(&self) -> u64 {
        (self.stream as u64).saturating_mul(3).saturating_add(self.inner.max(self.stream) as u64)
    }
}

/// Bytes of the heap that a model needs at most for prompts of this many positions, this many of them of voices, and this many
/// tokens.
pub fn needed_vibevoice_bytes(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    [positions, voices, tokens]: [usize; 3],
    threads: usize,
) -> u64 {
    let dtype = options.dtype;
    let decoder = config.stepped_decoder();
    let sizes = [&config.acoustic, &config.semantic].map(|tokenizer| Sizes::new(tokenizer, TOGETHER));
    let pass = pass::Sizes::new(&decoder, Attention::Dense, &Span::new(&decoder, 1, positions, 0), 1).numbers() as u64;
    let rows = (decoder.hidden as u64).saturating_mul(positions.saturating_add(3 * voices) as u64);
    let buffers = [pass, rows, head_numbers(config), sizes[0].numbers().max(sizes[1].numbers())];
    let [room, negative] = [options.room, options.negative_room].map(|room| room.min(decoder.context));
    let thread = thread_bytes(config, dtype, positions, sizes[0].turned.max(sizes[1].turned));
    let runs = [
        buffers.into_iter().fold(0, u64::saturating_add).saturating_mul(dtype.bytes()),
        audio_bytes(config, voices, tokens),
        (decoder.head_dim as u64).saturating_mul(positions.saturating_add(tokens) as u64).saturating_mul(4),
        thread.saturating_mul(threads.max(1) as u64),
    ];
    let parts = [
        SMALL_BYTES,
        kept_bytes(&decoder, dtype, options.offload.as_ref(), config.kept_weight_bytes(dtype)),
        config.cache_bytes(room, negative, dtype),
        // Kernels are brought into order before anything runs.
        runs.into_iter().fold(0, u64::saturating_add).max(kernel_bytes(config, dtype)),
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// The largest number of resident layers of the language model that fits this many bytes, with the others
/// streamed as the options say. Too few for any number are refused, with the least that is needed.
pub fn most_resident_vibevoice_layers(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    counts: [usize; 3],
    threads: usize,
    budget: u64,
) -> Result<usize, ModelError> {
    most_resident(config.decoder.layers, budget, |resident| {
        let offload = Some(with_resident(options.offload.as_ref(), resident));
        needed_vibevoice_bytes(config, &VibeVoiceOptions { offload, ..options.clone() }, counts, threads)
    })
}

/// What a step of the diffusion head computes in, two rows of each, and the rows of times.
fn head_numbers(config: &VibeVoiceConfig) -> u64 {
    let (hidden, ffn) = (config.decoder.hidden as u64, config.head.ffn as u64);
    let rows = hidden.saturating_mul(12).saturating_add(ffn.saturating_mul(2)).saturating_mul(2);
    rows.saturating_add(hidden.saturating_mul(2 * crate::vibevoice::TRAINED_STEPS as u64))
}

/// The largest kernel lies there twice while it is brought into order.
fn kernel_bytes(config: &VibeVoiceConfig, dtype: Dtype) -> u64 {
    let tokenizers = [config.acoustic_encoder_tensors(), config.acoustic_decoder_tensors()];
    let all = tokenizers.into_iter().chain([config.semantic_encoder_tensors()]).flat_map(|tensors| tensors.all());
    let largest = all.map(|spec| spec.count() as u64).max().unwrap_or(0);
    largest.saturating_mul(dtype.bytes())
}

/// Samples and latents of voices and tokens in f32, which may lie there twice when they grow.
fn audio_bytes(config: &VibeVoiceConfig, voices: usize, tokens: usize) -> u64 {
    let each = config.token_samples().saturating_add(config.acoustic.latent).saturating_mul(2) as u64;
    each.saturating_mul(voices.saturating_add(tokens) as u64).saturating_mul(4)
}

/// What each thread needs for a prompt of this many rows, or for what a tokenizer turns.
fn thread_bytes(config: &VibeVoiceConfig, dtype: Dtype, rows: usize, tokenizer: u64) -> u64 {
    let decoder = &config.decoder;
    let wide = decoder.hidden.max(decoder.ffn).max(decoder.heads.saturating_mul(decoder.head_dim));
    let turned = turned_bytes(rows, wide).max(tokenizer);
    // A product needs the one or the other.
    let blocks = if dtype == Dtype::F32 { turned } else { turned.saturating_add(WIDENED_BYTES).max(BLOCKS_BYTES) };
    THREAD_BYTES.saturating_add(blocks)
}
