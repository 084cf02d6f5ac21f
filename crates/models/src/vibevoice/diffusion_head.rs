//! The diffusion head: the hidden states of both streams in, a latent out, written once for every device.
//!
//! The adaptation of a layer depends on the step and not on the sample, so the shifts, scales and gates of all steps are
//! computed at once, and their weights are read once per token and not once per step.

use super::tensors::{DiffusionHead, HeadLayer};
use super::{Done, TokenizerOps, VibeVoiceConfig};

/// Rows that run together: one of each stream.
pub const STREAMS: usize = 2;

/// The operations of the diffusion head on one device, at the granularity of its kernels. They only enqueue work.
pub trait DiffusionOps: TokenizerOps {
    fn steps(&self) -> usize;

    /// Projects the hidden states of both streams, and adds the time of each step.
    fn condition(&mut self, weight: &Self::Matrix) -> Done;

    /// Computes the adaptation of a layer, or of the last norm, at all steps.
    fn adapt(&mut self, layer: usize, weight: &Self::Matrix) -> Done;

    /// Advances the sample by the velocities of the step before, and projects it to the width of the head.
    fn begin_step(&mut self, step: usize, enter: &Self::Matrix) -> Done;

    /// Norms and adapts the hidden states, and runs the first half of the feed-forward part.
    fn gate_up(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done;

    /// Runs the second half, and adds what the adaptation lets through.
    fn add_gated(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done;

    /// Norms and adapts the hidden states, and projects them to velocities.
    fn velocity(&mut self, step: usize, leave: &Self::Matrix) -> Done;

    /// Advances the sample for the last time. It enters the acoustic decoder, divided and shifted by the factors.
    fn end_steps(&mut self, decoder: &mut Self::Flow, factors: [f32; 2]) -> Done;
}

pub fn run<B: DiffusionOps>(ops: &mut B, head: &DiffusionHead<B>, decoder: &mut B::Flow, factors: [f32; 2]) -> Done {
    ops.condition(&head.condition)?;
    let adapts = head.layers.iter().map(|layer| &layer.adapt).chain([&head.adapt]);
    adapts.enumerate().try_for_each(|(layer, weight)| ops.adapt(layer, weight))?;
    for step in 0..ops.steps() {
        ops.begin_step(step, &head.enter)?;
        for (at, layer) in head.layers.iter().enumerate() {
            ops.gate_up(step, at, layer)?;
            ops.add_gated(step, at, layer)?;
        }
        ops.velocity(step, &head.leave)?;
    }
    ops.end_steps(decoder, factors)
}

/// Numbers of the buffers of the head on any device: times, conditioning and adaptations of all steps, and two hidden rows
/// with what is inside a layer.
pub fn numbers(config: &VibeVoiceConfig, steps: usize) -> u64 {
    let [hidden, ffn, layers] = [config.decoder.hidden, config.head.ffn, config.head.layers].map(|size| size as u64);
    let per_step = layers.saturating_mul(3).saturating_add(3).saturating_mul(STREAMS as u64).saturating_add(1);
    let of_steps = hidden.saturating_mul(per_step).saturating_mul(steps as u64);
    of_steps.saturating_add(hidden.saturating_mul(2).saturating_add(ffn).saturating_mul(STREAMS as u64))
}
