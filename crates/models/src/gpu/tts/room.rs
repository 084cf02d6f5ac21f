//! Bytes that text to speech needs on a GPU, known before anything is allocated.

use super::{
    super::room::{Head, PassSizes, WORKSPACE_BYTES},
    codec::{COLUMN_BYTES, Widest},
    decoder_options,
    talker::TEXT_ROOM,
};
use crate::{
    Config,
    attention::Layout,
    gpu::sparse::GPU_TILING,
    tts::{CHUNK_FRAMES, CONTEXT_FRAMES, SpeakOptions, TtsConfig},
};

/// Codes, states, tables of rules and what each allocation is rounded up by.
const SMALL_BYTES: u64 = 16 << 20;

/// Numbers behind each row of a convolution's packed weights.
const BEHIND: u64 = 8;

/// Bytes that a model and a speaker on it need at most on a GPU, for prompts of this many tokens of text, the positions
/// before the first frame among them, and this many frames.
pub fn needed_tts_bytes(config: &TtsConfig, options: &SpeakOptions, [text, frames]: [usize; 2]) -> u64 {
    let number = options.dtype.bytes();
    let numbers = [weights(config), talker(config, options, text), codec(config, options, frames)];
    let turned = [&config.talker, &config.predictor, &config.codec.transformer];
    let positions = [options.room, config.groups, CHUNK_FRAMES + CONTEXT_FRAMES];
    let turns = turned.into_iter().zip(positions).map(|(part, positions)| turn_bytes(part, positions));
    let parts = [
        sum(numbers).saturating_mul(number),
        config.cache_bytes(options.room, options.dtype),
        sum(turns),
        product(&[config.groups, options.room.max(frames), 4]),
        product(&[config.codec.frame_samples(), together(frames), 4]),
        Layout::most_bytes(&config.codec.kept(), together(frames), GPU_TILING),
        COLUMN_BYTES as u64,
        // One of the speaker, one while weights are put on the device.
        2 * WORKSPACE_BYTES,
        SMALL_BYTES,
    ];
    sum(parts)
}

/// Frames that are decoded at once at most.
fn together(frames: usize) -> usize {
    frames.min(CHUNK_FRAMES + CONTEXT_FRAMES)
}

/// Numbers of weights as they lie on the device, and of the largest one that lies there twice while it is packed.
fn weights(config: &TtsConfig) -> u64 {
    let rows = config.talker.vocab.saturating_add(config.predicted().saturating_mul(config.predictor.vocab));
    let bridged = if config.has_bridge() { product(&[rows, config.predictor.hidden]) } else { 0 };
    let tensors = config.codec_file_tensors();
    let behind = tensors.iter().map(|spec| product(&[spec.shape.first().copied().unwrap_or(0)]).saturating_mul(BEHIND));
    let largest = tensors.iter().map(|spec| spec.count() as u64).max().unwrap_or(0);
    sum([config.parameters(), bridged, sum(behind), 2 * largest])
}

/// Numbers of a prompt on its way through the talker, and of what steps go through.
fn talker(config: &TtsConfig, options: &SpeakOptions, text: usize) -> u64 {
    let of_pass = PassSizes::new(&config.talker, &decoder_options(options, options.room, None), text, text, Head::Last);
    let rows = config.text_width.saturating_mul(2).saturating_add(config.talker.hidden);
    let kept = text.max(TEXT_ROOM).next_power_of_two();
    sum([of_pass.numbers(), product(&[text, rows]), product(&[kept, config.talker.hidden])])
}

/// Numbers of frames on their way through the codec.
fn codec(config: &TtsConfig, options: &SpeakOptions, frames: usize) -> u64 {
    let (together, transformer) = (together(frames), &config.codec.transformer);
    let of_pass =
        PassSizes::new(transformer, &decoder_options(options, together, None), together, together, Head::Last);
    let Widest { stream, wide } = Widest::of(&config.codec);
    let kept = product(&[2, together, transformer.kv_heads, transformer.head_dim]);
    sum([of_pass.numbers(), kept, product(&[together, stream.saturating_mul(2).saturating_add(wide)])])
}

/// Cosines and sines.
fn turn_bytes(config: &Config, positions: usize) -> u64 {
    product(&[positions, config.head_dim, 4])
}

fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |all: u64, size| all.saturating_mul(*size as u64))
}

fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn most_of_a_model_is_its_weights() {
        let config = TtsConfig::from_preset("1.7b").unwrap();
        let options = SpeakOptions::new(Dtype::Bf16, 2048);
        let (needed, weights) = (needed_tts_bytes(&config, &options, [300, 300]), config.weight_bytes(Dtype::Bf16));
        assert!(needed > weights && needed < weights + weights / 3, "{needed} bytes, {weights} of weights");
    }

    #[test]
    fn more_frames_need_no_more_than_are_decoded_at_once() {
        let config = TtsConfig::from_preset("tiny").unwrap();
        let options = SpeakOptions::new(Dtype::F32, 4096);
        let needed = |frames| needed_tts_bytes(&config, &options, [100, frames]);
        assert!(needed(325) > needed(100));
        assert_eq!(needed(325), needed(1000));
        assert!(needed(usize::MAX) == u64::MAX || needed(usize::MAX) > needed(1000));
    }
}
