//! Two sequences at different positions that are decoded as one batch, compared with two separate decoders.

use std::sync::Arc;

use laptime_cuda::{Device, decode::State};

use super::pass::{Context, SequenceRow, Sequences};
use super::weights::{GpuWeights, Number};
use super::{decoder::GpuPasses, size, step::Stepper};
use crate::decoder::layers::{run_head, run_resident};
use crate::{CacheCapacity, Config, Decoder, Done, Dtype, ModelError, Options, Tokens, Weights, dtype::typed};

const ROOM: usize = 128;

/// Logits of this many steps behind two prompts, step after step: of two decoders, and of one stepper with two caches that
/// is given the tokens that the decoders choose.
pub fn logits_alone_and_apart(
    device: &Device,
    config: &Config,
    weights: &Weights,
    dtype: Dtype,
    prompts: [&[u32]; 2],
    steps: usize,
) -> Result<[Vec<f32>; 2], ModelError> {
    typed!(dtype, |T| both::<T>(device, config, weights, prompts, steps))
}

fn both<T: Number>(
    device: &Device,
    config: &Config,
    weights: &Weights,
    prompts: [&[u32]; 2],
    steps: usize,
) -> Result<[Vec<f32>; 2], ModelError> {
    let (config, weights) = (Arc::new(config.clone()), Arc::new(GpuWeights::<T>::load(device, config, weights)?));
    let ready = |prompt: &[u32]| -> Result<GpuPasses<'_, T>, ModelError> {
        let (config, weights) = (Arc::clone(&config), Arc::clone(&weights));
        let options = Options::new(T::DTYPE, CacheCapacity::Static(ROOM));
        let mut decoder = GpuPasses::new(device, None, config, weights, options)?;
        decoder.prefill(&Tokens::one(prompt.to_vec()))?;
        Ok(decoder)
    };
    let mut alone = [ready(prompts[0])?, ready(prompts[1])?];
    let mut together = [ready(prompts[0])?, ready(prompts[1])?];
    let mut stepper = Stepper::new(device, &config, 2, ROOM)?;
    let mut logits = [Vec::new(), Vec::new()];
    for _ in 0..steps {
        let mut tokens = Vec::new();
        for decoder in &mut alone {
            tokens.extend(decoder.sampled()?);
            decoder.step()?;
            logits[0].extend(decoder.logits()?);
        }
        let [first, second] = &mut together;
        step_apart(device, &mut stepper, [first, second], &tokens)?;
        logits[1].extend(stepper.buffers.parts.logits.read()?.into_iter().map(T::widened));
    }
    Ok(logits)
}

fn step_apart<T: Number>(
    device: &Device,
    stepper: &mut Stepper<T>,
    [first, second]: [&mut GpuPasses<'_, T>; 2],
    tokens: &[u32],
) -> Done {
    let mut state = State::new(device, size(tokens.len())?, 1)?;
    state.begin(tokens, 0)?;
    let weights = Arc::clone(&first.weights);
    let context = Context {
        stream: device.stream(),
        blas: &first.blas,
        config: &first.config,
        marks: &first.options.marks,
        operations: &weights.operations,
        fp8: None,
        rope: &first.rope,
    };
    stepper.embed(&context, &weights.parameters.embedding, &state)?;
    let rows = vec![
        SequenceRow { position: &first.state.position, cache: &mut first.cache },
        SequenceRow { position: &second.state.position, cache: &mut second.cache },
    ];
    let mut pass = stepper.pass(context, Sequences::Separate(rows));
    run_resident(&mut pass, 0, &weights.parameters.layers)?;
    run_head(&mut pass, &weights.parameters.norm, Some(weights.parameters.head()))?;
    for decoder in [first, second] {
        let length = decoder.cache.length() + 1;
        decoder.cache.advance(length);
        decoder.set_position(length)?;
    }
    Ok(())
}
