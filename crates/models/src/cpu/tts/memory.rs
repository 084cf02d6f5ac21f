//! What text to speech on the CPU needs, before it allocates anything.

use super::super::{
    attention::Span,
    conv,
    memory::{SMALL_BYTES, THREAD_BYTES},
    pass,
    product::{BLOCKS_BYTES, WIDENED_BYTES},
    turned::turned_bytes,
};
use crate::{
    Attention, Config, Dtype,
    attention::{CPU_TILING, Layout},
    tts::{CHUNK_FRAMES, CONTEXT_FRAMES, CodecConfig, KERNELS, NEXT_WIDENING, SpeakOptions, TtsConfig},
};

/// How many numbers the buffers of decoding have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Each of three.
    pub stream: usize,
    /// What convolutions gather.
    pub gathered: usize,
    /// The deepest product.
    deepest: usize,
}

impl Sizes {
    /// Those of this many frames that are decoded together.
    pub fn new(codec: &CodecConfig, frames: usize) -> Self {
        let mut sizes = Self { stream: 0, gathered: 0, deepest: 0 };
        sizes.conv(frames, codec.code_width, KERNELS.input);
        let mut rows = frames;
        for ratio in &codec.ratios {
            sizes.conv(rows, codec.latent, 1);
            rows = rows.saturating_mul(*ratio);
            sizes.conv(rows, codec.latent.saturating_mul(NEXT_WIDENING), 1);
        }
        sizes.conv(rows, codec.latent, KERNELS.outer);
        for (at, rate) in codec.rates.iter().enumerate() {
            sizes.conv(rows, codec.channels_behind(at), 2);
            rows = rows.saturating_mul(*rate);
            sizes.conv(rows, codec.channels_behind(at + 1), KERNELS.unit);
        }
        sizes
    }

    /// Makes room for a convolution.
    fn conv(&mut self, rows: usize, inputs: usize, taps: usize) {
        self.stream = self.stream.max(rows.saturating_mul(inputs));
        self.gathered = self.gathered.max(conv::gathered(rows, inputs, taps));
        self.deepest = self.deepest.max(inputs.saturating_mul(taps));
    }

    fn numbers(&self) -> u64 {
        (self.stream as u64).saturating_mul(3).saturating_add(self.gathered as u64)
    }
}

/// Bytes of the heap that a model needs at most for prompts of this many tokens of text, the positions before the first
/// frame among them, and this many frames.
pub fn needed_tts_bytes(config: &TtsConfig, options: &SpeakOptions, [text, frames]: [usize; 2], threads: usize) -> u64 {
    let together = frames.min(CHUNK_FRAMES.saturating_add(CONTEXT_FRAMES));
    let sizes = Sizes::new(&config.codec, together);
    let numbers = |config: &Config, rows: usize, logits: usize| {
        pass::Sizes::new(config, Attention::Dense, &Span::new(config, 1, rows, 0), logits).numbers() as u64
    };
    let codec = &config.codec.transformer;
    let buffers = [
        numbers(&config.talker, text, 1),
        numbers(&config.predictor, 2, 1),
        numbers(codec, together, 0),
        sizes.numbers(),
        text_numbers(config, text),
    ];
    let parts = [
        SMALL_BYTES,
        config.weight_bytes(options.dtype),
        // Codebooks are kept in f32, and lie there twice while they are made.
        (codebook_numbers(&config.codec)).saturating_mul(8),
        config.cache_bytes(options.room.min(config.talker.context), options.dtype),
        buffers.into_iter().fold(0, u64::saturating_add).saturating_mul(options.dtype.bytes()),
        kernel_bytes(config, options.dtype),
        Layout::most_bytes(&config.codec.kept(), together, CPU_TILING),
        samples_and_codes(config, frames),
        rope_bytes(config, text.saturating_add(frames), together),
        thread_bytes(config, options.dtype, text.max(sizes.stream), sizes.deepest)
            .saturating_mul(threads.max(1) as u64),
    ];
    parts.into_iter().fold(0, u64::saturating_add)
}

/// Rows of text: looked up, inside, and as wide as the talker, twice when they are divided.
fn text_numbers(config: &TtsConfig, text: usize) -> u64 {
    let widths = config.text_width.saturating_add(config.talker.hidden).saturating_mul(2);
    (widths as u64).saturating_mul(text as u64)
}

fn codebook_numbers(codec: &CodecConfig) -> u64 {
    [codec.codebook, codec.groups, codec.vector_width()]
        .into_iter()
        .fold(1, |all, size| all.saturating_mul(size as u64))
}

/// The largest kernel lies there twice while it is brought into order.
fn kernel_bytes(config: &TtsConfig, dtype: Dtype) -> u64 {
    let largest = config.codec_file_tensors().iter().map(|spec| spec.count() as u64).max().unwrap_or(0);
    largest.saturating_mul(dtype.bytes())
}

/// The audio, which may lie there twice when it grows, and the codes of all frames.
fn samples_and_codes(config: &TtsConfig, frames: usize) -> u64 {
    let a_frame = config.codec.frame_samples().saturating_mul(2).saturating_add(2 * config.groups);
    (a_frame as u64).saturating_mul(frames as u64).saturating_mul(4)
}

/// Cosines and sines.
fn rope_bytes(config: &TtsConfig, positions: usize, together: usize) -> u64 {
    let one = |config: &Config, positions: usize| (config.head_dim as u64).saturating_mul(positions as u64);
    let all = one(&config.talker, positions)
        .saturating_add(one(&config.predictor, config.groups))
        .saturating_add(one(&config.codec.transformer, together));
    all.saturating_mul(4)
}

/// What each thread needs for products with this many rows.
fn thread_bytes(config: &TtsConfig, dtype: Dtype, rows: usize, deepest: usize) -> u64 {
    let decoders = [&config.talker, &config.predictor, &config.codec.transformer];
    let wide = decoders.map(|config| config.hidden.max(config.ffn).max(config.heads.saturating_mul(config.head_dim)));
    let turned = turned_bytes(rows, wide.into_iter().fold(deepest.max(config.text_width), usize::max));
    // A product needs the one or the other.
    let blocks = if dtype == Dtype::F32 { turned } else { turned.saturating_add(WIDENED_BYTES).max(BLOCKS_BYTES) };
    THREAD_BYTES.saturating_add(blocks)
}
