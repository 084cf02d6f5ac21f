//! Bytes that speech needs on a GPU, known before anything is allocated.

use super::{
    super::room::{Head, PassSizes, WORKSPACE_BYTES, weight_bytes},
    decoder_options, diffusion,
    language::negative_room,
    plan::{Plan, TokenizerShape},
    prompting::TOGETHER,
};
use crate::vibevoice::{TokenizerConfig, TokenizerTensors, VibeVoiceConfig, VibeVoiceOptions, Way};

/// Positions, choices, tables of lists and what each allocation is rounded up by.
const SMALL_BYTES: u64 = 16 << 20;

/// Numbers behind each row of a convolution's packed weights.
const BEHIND: u64 = 8;

/// Steps of the diffusion that are counted: twice the usual ones.
const STEPS: usize = 20;

/// Bytes that a model needs at most on a GPU, for prompts of this many positions, this many of them of voices, and this many
/// tokens.
pub fn needed_vibevoice_bytes(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    [positions, voices, tokens]: [usize; 3],
) -> u64 {
    let number = options.dtype.bytes();
    let decoder = config.stepped_decoder();
    let [room, negative] = [options.room, negative_room(options)].map(|room| room.min(decoder.context));
    // Of layers that do not stay there are the buffers that they take turns in.
    let all = config.decoder.weight_bytes(options.dtype);
    let kept = weight_bytes(&config.decoder, options.dtype, options.offload.as_ref());
    let gone = all.saturating_sub(kept);
    let flows = [
        plan(&config.acoustic_decoder_tensors(), &config.acoustic, Way::Decoder, 1),
        plan(&config.semantic_encoder_tensors(), &config.semantic, Way::Encoder, 1),
    ];
    let numbers = [
        behind(config),
        (diffusion::numbers(config, STEPS) as u64).max(1),
        product(&[2 * 9, decoder.hidden]).saturating_add(product(&[2 * 3, decoder.ffn])),
        sum(flows),
        before_tokens(config, options, [positions, voices]),
    ];
    let parts = [
        config.kept_weight_bytes(options.dtype).saturating_sub(gone),
        sum(numbers).saturating_mul(number),
        config.cache_bytes(room, negative, options.dtype),
        product(&[room.max(negative), decoder.head_dim, 4]),
        // Samples, and what latents begin and end as.
        product(&[options.negative_room.max(tokens), config.token_samples() + 2 * config.acoustic.latent, 4]),
        WORKSPACE_BYTES,
        SMALL_BYTES,
    ];
    sum(parts)
}

/// Numbers of what there is before the first token alone: a voice that is encoded, or the prompt with the rows of all
/// voices; whichever is more.
fn before_tokens(config: &VibeVoiceConfig, options: &VibeVoiceOptions, [positions, voices]: [usize; 2]) -> u64 {
    let decoder = config.stepped_decoder();
    let encoder = plan(&config.acoustic_encoder_tensors(), &config.acoustic, Way::Encoder, voices.clamp(1, TOGETHER));
    let pass = PassSizes::new(&decoder, &decoder_options(options), positions, positions, Head::Last).numbers();
    let connecting = product(&[2 * voices, decoder.hidden]);
    product(&[voices, decoder.hidden]).saturating_add(encoder.max(connecting).max(pass))
}

/// Numbers of what goes through a tokenizer, this many tokens at a time.
fn plan(tensors: &TokenizerTensors, config: &TokenizerConfig, way: Way, tokens: usize) -> u64 {
    // What has too many channels to be counted has too many to be run.
    let Ok(shape) = TokenizerShape::new(tensors, config, way) else { return u64::MAX };
    Plan::new(&shape, tokens).numbers() as u64
}

/// Numbers behind the rows of all convolutions that are packed.
fn behind(config: &VibeVoiceConfig) -> u64 {
    let tokenizers = [
        (config.acoustic_encoder_tensors(), &config.acoustic, Way::Encoder),
        (config.acoustic_decoder_tensors(), &config.acoustic, Way::Decoder),
        (config.semantic_encoder_tensors(), &config.semantic, Way::Encoder),
    ];
    let of = |(tensors, part, way): (TokenizerTensors, &TokenizerConfig, Way)| {
        let Ok(shape) = TokenizerShape::new(&tensors, part, way) else { return u64::MAX };
        let rows = shape.stages.iter().map(|stage| u64::from(stage.enter.outputs) * u64::from(stage.enter.stride));
        sum(rows.chain([u64::from(shape.head.outputs)])).saturating_mul(BEHIND)
    };
    sum(tokenizers.map(of))
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
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let options = VibeVoiceOptions::new(Dtype::Bf16, 1000, 200);
        let needed = needed_vibevoice_bytes(&config, &options, [1000, 150, 200]);
        let weights = config.kept_weight_bytes(Dtype::Bf16);
        assert!(needed > weights && needed < weights + weights / 20, "{needed} bytes, {weights} of weights");
    }

    #[test]
    fn more_of_everything_needs_more() {
        let config = VibeVoiceConfig::from_preset("tiny").unwrap();
        let needed = |positions, tokens| {
            let options = VibeVoiceOptions::new(Dtype::F32, positions, tokens);
            needed_vibevoice_bytes(&config, &options, [positions, 8, tokens])
        };
        assert!(needed(200, 10) > needed(100, 10) && needed(100, 100) > needed(100, 10));
    }
}
