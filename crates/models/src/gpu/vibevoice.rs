//! VibeVoice on a GPU: every part of a token is a graph, and tokens are sampled on the device, so the host reads one word per
//! token.

mod backend;
mod diffusion;
mod graphs;
mod language;
mod tokenizer;

use laptime_cuda::nn::{Convolution, StreamingOperations};
use laptime_cuda::{Buffer, Cache, Device};
use laptime_probe::stage;

use self::backend::Cuda;
use self::graphs::{first_replay, prepare};
use self::language::{Language, negative_capacity};
use super::audio::{ConvWeights, Kit, KitLoader};
use super::memory::{Head, PassSizes, WORKSPACE_BYTES, kept_bytes};
use super::{size, streamed::Streamed, weights::Number};
use crate::tensors::{product, sum};
use crate::tts::{ConvTensors, Linear};
use crate::vibevoice::{
    BEHIND, ConvShape, Engine, Kinds, Own, Plan, ReadingSizes, TokenizerOps, TokenizerShape, VibeVoice,
    VibeVoiceConfig, VibeVoiceOptions, VibeVoiceWeights, VoiceLoad, needed_bytes,
};
use crate::{ModelError, dtype::typed, error::fit};

/// Loads VibeVoice on a device. Synthetic weights are generated there.
///
/// Offloaded layers are copied on the stream of `copies`: the same device with another stream
/// ([`Device::with_new_stream`]) and the lane of the copies.
pub fn vibevoice<'a>(
    device: &'a Device,
    copies: Option<&'a Device>,
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
) -> Result<Box<dyn VibeVoice + 'a>, ModelError> {
    config.check()?;
    options.dtype.refuse_quantised("text to speech")?;
    let longest = options.capacity.max(options.negative_capacity);
    fit(longest, &config.name, config.decoder.context)?;
    let replay = first_replay(&options);
    Ok(typed!(options.dtype, |T| {
        let (kit, streams) = (Kit::<T>::load(device)?, StreamingOperations::load(device, &Cache::of_user())?);
        let (language, host_layers, loaded) = {
            let _stage = stage!("weights");
            let (language, host_layers) = Language::load(&kit, &config, weights, &options)?;
            let loaded = config.load(&mut KitLoader::new(&kit, &streams, weights))?;
            device.stream().synchronise()?;
            (language, host_layers, loaded)
        };
        let streamed = Streamed::of((device, copies), host_layers.as_ref(), options.offload.as_ref(), &options.marks)?;
        let backend = Cuda::new((kit, streams), &config, &options, replay, language, streamed)?;
        let mut engine = Engine::new(backend, config, options, (weights, loaded))?;
        let parts: Vec<_> = engine.parts().collect();
        prepare(&mut engine, &parts)?;
        Box::new(engine)
    }))
}

impl<T: Number> Kinds for Cuda<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Conv = ConvWeights<T>;
    /// `[taps, channels]`, and a bias.
    type Depthwise = Linear<Buffer<T>>;
}

impl<'a, T: Number> VoiceLoad<Cuda<'a, T>> for KitLoader<'_, T, &StreamingOperations<T>> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<ConvWeights<T>, ModelError> {
        let [inputs, outputs, kernel, stride] = [shape.inputs, shape.outputs, shape.kernel, shape.stride].map(size);
        let (channels, kernel, stride) = ([inputs?, outputs?], kernel?, stride?);
        let of = match shape.is_transposed {
            true => Convolution::transposed(channels, kernel, stride),
            false => Convolution { stride, ..Convolution::plain(channels, kernel, 1) },
        };
        // It continues from what came before.
        let of = of.streaming();
        if shape.makes_samples { self.as_stored(of, tensors) } else { self.packed(of, tensors) }
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Linear<Buffer<T>>, ModelError> {
        let (Linear { weight: stored, bias }, Kit { device, .. }) = (self.stored(tensors)?, self.kit);
        let channels = size(bias.length())?;
        let taps = size(stored.length())? / channels.max(1);
        let mut weight = device.allocate(stored.length())?;
        self.kernels.transpose_taps(device.stream(), &stored, &mut weight, [channels, taps])?;
        Ok(Linear { weight, bias })
    }
}

/// Positions, choices, tables of lists and the rounding of allocations.
const SMALL_BYTES: u64 = 16 << 20;

/// Peak GPU bytes of a model.
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
    // Samples, noise and latents.
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

/// The size of buffers only before the first token: to encode a voice, or to run the prompt; whichever is larger.
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
    fn most_of_the_memory_is_weights() {
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
    fn longer_prompts_and_generations_need_more_memory() {
        let config = VibeVoiceConfig::from_preset("tiny").unwrap();
        let needed = |positions, tokens| {
            let options = VibeVoiceOptions::new(Dtype::F32, positions, tokens);
            needed_vibevoice_bytes(&config, &options, ReadingSizes { positions, voices: 8, tokens, steps: 10 })
        };
        assert!(needed(200, 10) > needed(100, 10) && needed(100, 100) > needed(100, 10));
    }
}
