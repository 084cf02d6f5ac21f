//! What VibeVoice needs on the CPU besides what every device needs.

use super::super::memory::{SMALL_BYTES, kept_bytes, product_bytes, thread_bytes};
use super::super::{attention::Span, panels::panel_bytes, pass::Sizes};
use super::backend::Cpu;
use crate::Attention;
use crate::tensors::{product, sum};
use crate::vibevoice::{
    ConvShape, Own, Plan, ReadingSizes, TokenizerOps, TokenizerShape, VibeVoiceConfig, VibeVoiceOptions, needed_bytes,
};

/// Bytes of the heap that a model needs at most.
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
    let turned = products
        .map(|[rows, width]| panel_bytes(dtype, rows.saturating_mul(TOGETHER), *width, threads))
        .max()
        .unwrap_or(0);
    let thread = thread_bytes(&decoder, dtype, positions, threads).max(product_bytes(turned));
    let kernel = |conv: ConvShape| product(&[conv.inputs, conv.outputs, conv.kernel]);
    let largest_kernel = shapes.iter().flat_map(TokenizerShape::convolutions).map(kernel).max();
    let numbers = [
        Sizes::new(&decoder, Attention::Dense, &Span::new(&decoder, 1, positions, 0), 1).numbers(),
        // Rows of voices, and what times and layers of the diffusion head compute in.
        product(&[decoder.hidden, voices.saturating_mul(3).saturating_add(steps.saturating_mul(2)).saturating_add(8)]),
        product(&[config.head.ffn, 2]),
        plans.iter().map(|plan| tokenizer_numbers(plan, TOGETHER)).max().unwrap_or(0),
    ];
    // Samples and latents of voices and tokens may be there twice when they grow.
    let each = config.token_samples().saturating_add(config.acoustic.latent).saturating_mul(2);
    let own = Own {
        weights: kept_bytes(&decoder, dtype, options.offload.as_ref(), config.kept_weight_bytes(dtype)),
        // A kernel is there twice while it is reordered.
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

/// Numbers of the buffers of a tokenizer: hidden states, what a convolution sees, what is normed, and what is inside a block.
fn tokenizer_numbers(plan: &Plan, tokens: usize) -> u64 {
    let lists = plan.lists.iter().map(|list| list.end(tokens).saturating_sub(list.begin));
    let seen = lists.max().unwrap_or(0).max(plan.hidden.saturating_mul(tokens));
    product(&[3, seen]).saturating_add(plan.inner.saturating_mul(tokens).max(seen) as u64)
}
