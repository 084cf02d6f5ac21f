//! VibeVoice on the CPU.

mod backend;
mod diffusion;
mod tokenizer;

use self::backend::Cpu;
use super::conv::{Conv, Depthwise};
use super::memory::{SMALL_BYTES, kept_bytes, product_bytes, thread_bytes};
use super::{
    attention::Span, crew::Crew, model::Loader, number::Number, panels::panel_bytes, pass::Sizes, refuse_graph,
};
use crate::tensors::{product, sum};
use crate::tts::{ConvTensors, TtsLoad};
use crate::vibevoice::{
    ConvShape, Engine, Kinds, Own, Plan, ReadingSizes, TokenizerOps, TokenizerShape, VibeVoice, VibeVoiceConfig,
    VibeVoiceOptions, VibeVoiceWeights, VoiceLoad, needed_bytes,
};
use crate::{Attention, ModelError, dtype::typed};

/// Loads VibeVoice into memory. It runs on this many threads, including the caller's.
pub fn vibevoice(
    config: VibeVoiceConfig,
    weights: &VibeVoiceWeights,
    options: VibeVoiceOptions,
    threads: usize,
) -> Result<Box<dyn VibeVoice>, ModelError> {
    config.check()?;
    options.dtype.refuse_quantised("text to speech")?;
    refuse_graph(options.graph)?;
    let _stage = laptime_probe::stage!("weights");
    let crew = Crew::new(threads)?;
    Ok(typed!(options.dtype, |T| {
        let loaded = config.load(&mut Loader::<T>::new(Some(weights), &crew))?;
        let backend = Cpu::load(&config, weights, &options, crew)?;
        Box::new(Engine::new(backend, config, options, (weights, loaded))?)
    }))
}

impl<T: Number> Kinds for Cpu<T> {
    type Matrix = Vec<T>;
    /// In f32, rounded to the dtype of the matrices.
    type Vector = Vec<f32>;
    type Conv = Conv<T>;
    type Depthwise = Depthwise;
}

impl<T: Number> VoiceLoad<Cpu<T>> for Loader<'_, T> {
    fn conv(&mut self, tensors: &ConvTensors, shape: ConvShape) -> Result<Conv<T>, ModelError> {
        let (dilation, step) = if shape.is_transposed { (shape.stride, 1) } else { (1, shape.stride) };
        let mut conv = TtsLoad::conv(self, tensors, dilation)?;
        conv.step = step;
        Ok(conv)
    }

    fn depthwise(&mut self, tensors: &ConvTensors) -> Result<Depthwise, ModelError> {
        TtsLoad::depthwise(self, tensors)
    }
}

/// Peak heap bytes of a model.
pub fn needed_vibevoice_bytes(
    config: &VibeVoiceConfig,
    options: &VibeVoiceOptions,
    reading: ReadingSizes,
    threads: usize,
) -> u64 {
    const TOGETHER: usize = Cpu::<f32>::TOGETHER;
    let ReadingSizes { positions, voices, tokens, steps } = reading;
    let (dtype, decoder) = (options.dtype, config.stepped_decoder());
    let shapes = config.tokenizer_shapes();
    let plans = shapes.each_ref().map(|shape| Plan::new(shape, TOGETHER));
    let products = plans.iter().flat_map(|plan| &plan.products);
    let packed = products
        .map(|[rows, width]| panel_bytes(dtype, rows.saturating_mul(TOGETHER), *width, threads))
        .max()
        .unwrap_or(0);
    let thread = thread_bytes(&decoder, dtype, positions, threads).max(product_bytes(packed));
    let kernel = |conv: ConvShape| product(&[conv.inputs, conv.outputs, conv.kernel]);
    let largest_kernel = shapes.iter().flat_map(TokenizerShape::convolutions).map(kernel).max();
    let numbers = [
        Sizes::new(&decoder, Attention::Dense, &Span::new(&decoder, 1, positions, 0), 1).numbers(),
        // Rows of voices, and scratch buffers of the diffusion head.
        product(&[decoder.hidden, voices.saturating_mul(3).saturating_add(steps.saturating_mul(2)).saturating_add(8)]),
        product(&[config.head.ffn, 2]),
        plans.iter().map(|plan| tokenizer_numbers(plan, TOGETHER)).max().unwrap_or(0),
    ];
    // Samples and latents may exist twice while they grow.
    let each = config.token_samples().saturating_add(config.acoustic.latent).saturating_mul(2);
    let own = Own {
        weights: kept_bytes(&decoder, dtype, options.offload.as_ref(), config.kept_weight_bytes(dtype)),
        // A kernel exists twice while it is reordered.
        loading: largest_kernel.unwrap_or(0).saturating_mul(dtype.bytes()),
        capacities: [options.capacity, options.negative_capacity],
        numbers: sum(numbers),
        bytes: sum([
            product(&[each, voices.saturating_add(tokens), size_of::<f32>()]),
            thread.saturating_mul(threads.max(1) as u64),
        ]),
    };
    needed_bytes(config, options, &reading, &own).saturating_add(SMALL_BYTES)
}

/// The size of a tokenizer's buffers: hidden states, the input of a convolution, normed states, and inner states of a block.
fn tokenizer_numbers(plan: &Plan, tokens: usize) -> u64 {
    let lists = plan.lists.iter().map(|list| list.end(tokens).saturating_sub(list.begin));
    let largest = lists.max().unwrap_or(0).max(plan.hidden.saturating_mul(tokens));
    product(&[3, largest]).saturating_add(plan.inner.saturating_mul(tokens).max(largest) as u64)
}
