//! What VibeVoice needs on a GPU besides what every device needs.

use super::super::memory::{Head, PassSizes, WORKSPACE_BYTES, kept_bytes};
use super::{backend::Cuda, language::negative_capacity};
use crate::tensors::{product, sum};
use crate::vibevoice::{
    BEHIND, Own, Plan, ReadingSizes, TokenizerOps, TokenizerShape, VibeVoiceConfig, VibeVoiceOptions, needed_bytes,
};

/// Positions, choices, tables of lists and what each allocation is rounded up by.
const SMALL_BYTES: u64 = 16 << 20;

/// Bytes that a model needs at most on a GPU.
pub fn needed_vibevoice_bytes(config: &VibeVoiceConfig, options: &VibeVoiceOptions, reading: ReadingSizes) -> u64 {
    let (decoder, dtype) = (config.stepped_decoder(), options.dtype);
    let shapes = config.tokenizer_shapes();
    let packed = shapes.iter().flat_map(TokenizerShape::convolutions).map(|conv| conv.packed_rows() as u64);
    let [encoder, decoder_flow, semantic] = &shapes;
    let numbers = [
        sum(packed).saturating_mul(BEHIND as u64),
        product(&[2 * 9, decoder.hidden]).saturating_add(product(&[2 * 3, decoder.ffn])),
        flow_numbers(decoder_flow, 1),
        flow_numbers(semantic, 1),
        before_tokens(config, options, &reading, encoder),
    ];
    // Samples, and what latents begin and end as.
    let each = config.token_samples().saturating_add(config.acoustic.latent.saturating_mul(2));
    let audio = product(&[options.negative_capacity.max(reading.tokens), each, size_of::<f32>()]);
    let own = Own {
        weights: kept_bytes(&config.decoder, dtype, options.offload.as_ref(), config.kept_weight_bytes(dtype)),
        loading: 0,
        capacities: [options.capacity, negative_capacity(options)],
        numbers: sum(numbers),
        bytes: sum([audio, WORKSPACE_BYTES, SMALL_BYTES]),
    };
    needed_bytes(config, options, &reading, &own)
}

/// Numbers of what is there before the first token alone: a voice that is encoded, or the prompt with the rows of all
/// voices; whichever is more.
fn before_tokens(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    reading: &ReadingSizes,
    encoder: &TokenizerShape,
) -> u64 {
    let ReadingSizes { positions, voices, .. } = *reading;
    let (decoder, together) = (config.stepped_decoder(), voices.clamp(1, Cuda::<f32>::TOGETHER));
    let encoder = flow_numbers(encoder, together);
    let pass =
        PassSizes::new(&decoder, &options.decoder(options.capacity), positions, positions, Head::Last).parts.numbers();
    let connecting = product(&[voices.saturating_mul(2), decoder.hidden]);
    product(&[voices, decoder.hidden]).saturating_add(encoder.max(connecting).max(pass))
}

fn flow_numbers(shape: &TokenizerShape, tokens: usize) -> u64 {
    let plan = Plan::new(shape, tokens);
    let of_token = [plan.hidden.saturating_mul(3), plan.inner, plan.columns];
    sum(of_token.map(|numbers| product(&[numbers, tokens])).into_iter().chain([plan.kept_numbers() as u64]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Dtype;

    #[test]
    fn most_of_a_model_is_its_weights() {
        let config = VibeVoiceConfig::from_preset("7b").unwrap();
        let options = VibeVoiceOptions::new(Dtype::Bf16, 1000, 200);
        let needed = needed_vibevoice_bytes(
            &config,
            &options,
            ReadingSizes { positions: 1000, voices: 150, tokens: 200, steps: 10 },
        );
        let weights = config.kept_weight_bytes(Dtype::Bf16);
        assert!(needed > weights && needed < weights + weights / 20, "{needed} bytes, {weights} of weights");
    }

    #[test]
    fn more_of_everything_needs_more() {
        let config = VibeVoiceConfig::from_preset("tiny").unwrap();
        let needed = |positions, tokens| {
            let options = VibeVoiceOptions::new(Dtype::F32, positions, tokens);
            needed_vibevoice_bytes(&config, &options, ReadingSizes { positions, voices: 8, tokens, steps: 10 })
        };
        assert!(needed(200, 10) > needed(100, 10) && needed(100, 100) > needed(100, 10));
    }
}
