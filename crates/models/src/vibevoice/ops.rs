//! The tokenizers (acoustic encoder, acoustic decoder, semantic encoder) and the diffusion head, written once for every device.
//!
//! All convolutions are causal. A flow keeps the last input positions of each, so that the next run continues from them.
//!
//! The diffusion head turns the hidden states of both streams into a latent. Shifts, scales and gates of its layers depend on
//! the step but not on the sample, so they are computed for all steps at once, and their weights are read once per token.

use super::tensors::{DiffusionHead, HeadLayer, Kinds, Mixer, Tokenizer};
use super::{Done, plan::TokenizerShape};
use crate::{ModelError, error::ensure};

/// The operations of a tokenizer on a device. They only enqueue work. `at` counts the convolutions in order; each has its
/// own list of rows in the flow.
pub trait TokenizerOps: Kinds {
    type Flow;

    /// The maximum number of tokens of audio per run.
    const TOGETHER: usize;

    /// A flow for at most this many tokens per run, after silence.
    fn flow(&self, shape: &TokenizerShape, tokens: usize) -> Result<Self::Flow, ModelError>;

    /// Resets a flow to silence.
    fn forget(&mut self, flow: &mut Self::Flow) -> Done;

    fn enter(&mut self, flow: &mut Self::Flow, numbers: &[f32]) -> Done;

    /// Convolves the list of a convolution to hidden states, latents or samples.
    fn convolve(&mut self, flow: &mut Self::Flow, at: usize, conv: &Self::Conv, tokens: usize) -> Done;

    /// Adds the output of the previous block, if any, and copies the hidden states to the list of the next convolution,
    /// normed if it belongs to a block.
    fn add_norm(
        &mut self,
        flow: &mut Self::Flow,
        at: Rows,
        done: Option<&Mixer<Self>>,
        next: Option<&Mixer<Self>>,
    ) -> Done;

    /// Runs a block except its last addition: adds the depthwise convolution to the hidden states, norms them, and runs the
    /// feed-forward part.
    fn block(&mut self, flow: &mut Self::Flow, at: Rows, block: &Mixer<Self>) -> Done;

    /// Keeps the last positions for the next run, if this is a separate operation.
    fn keep(&mut self, _: &mut Self::Flow, _: usize) -> Done {
        Ok(())
    }

    /// Reads the output of a run. Waits for the device.
    fn leave(&mut self, flow: &Self::Flow, shape: &TokenizerShape, tokens: usize) -> Result<Vec<f32>, ModelError>;
}

#[derive(Debug, Clone, Copy)]
pub struct Rows {
    pub at: usize,
    pub rows: usize,
    pub taps: usize,
    pub eps: f32,
}

pub fn run_tokenizer<B: TokenizerOps>(
    ops: &mut B,
    tokenizer: &Tokenizer<B>,
    flow: &mut B::Flow,
    tokens: usize,
) -> Done {
    let Tokenizer { stages, head, shape } = tokenizer;
    let mut to = Rows { at: 0, rows: shape.entering * tokens, taps: shape.taps, eps: shape.eps };
    for (stage, shape) in stages.iter().zip(&shape.stages) {
        ops.convolve(flow, to.at, &stage.enter, tokens)?;
        to = Rows { at: to.at + 1, rows: shape.enter.rows(to.rows), ..to };
        ops.add_norm(flow, to, None, stage.blocks.first())?;
        for (index, block) in stage.blocks.iter().enumerate() {
            ops.block(flow, to, block)?;
            to.at += 1;
            ops.add_norm(flow, to, Some(block), stage.blocks.get(index + 1))?;
        }
    }
    ops.convolve(flow, to.at, head, tokens)?;
    ops.keep(flow, tokens)
}

/// Encodes or decodes a whole input after silence, with this many numbers per token. Waits for the device.
pub fn run_whole<B: TokenizerOps>(
    ops: &mut B,
    tokenizer: &Tokenizer<B>,
    numbers: &[f32],
    each: usize,
) -> Result<Vec<f32>, ModelError> {
    ensure!(numbers.len().is_multiple_of(each), "{} numbers are not whole tokens of {each}", numbers.len());
    let together = (numbers.len() / each).clamp(1, B::TOGETHER);
    let mut flow = ops.flow(&tokenizer.shape, together)?;
    ops.forget(&mut flow)?;
    let mut all = Vec::new();
    for part in numbers.chunks(together * each) {
        let tokens = part.len() / each;
        ops.enter(&mut flow, part)?;
        run_tokenizer(ops, tokenizer, &mut flow, tokens)?;
        all.extend(ops.leave(&flow, &tokenizer.shape, tokens)?);
    }
    Ok(all)
}

/// Rows per step: one per stream.
pub const STREAMS: usize = 2;

/// The operations of the diffusion head on a device. They only enqueue work.
pub trait DiffusionOps: TokenizerOps {
    fn steps(&self) -> usize;

    /// Projects the hidden states of both streams, adds the time embedding of each step, and computes the adaptations of all
    /// layers and of the last norm for all steps.
    fn condition(&mut self, head: &DiffusionHead<Self>) -> Done;

    /// Advances the sample by the velocities of the previous step, and projects it to the width of the head.
    fn begin_step(&mut self, step: usize, enter: &Self::Matrix) -> Done;

    /// Runs a layer: adapted norm, feed-forward part, and an addition times the gate.
    fn layer(&mut self, step: usize, layer: usize, weights: &HeadLayer<Self>) -> Done;

    /// Norms and adapts the hidden states, and projects them to velocities.
    fn velocity(&mut self, step: usize, leave: &Self::Matrix) -> Done;

    /// Advances the sample for the last time, scales it by the factors, and passes it to the acoustic decoder.
    fn end_steps(&mut self, decoder: &mut Self::Flow, factors: [f32; 2]) -> Done;
}

pub fn run_diffusion<B: DiffusionOps>(
    ops: &mut B,
    head: &DiffusionHead<B>,
    decoder: &mut B::Flow,
    factors: [f32; 2],
) -> Done {
    ops.condition(head)?;
    for step in 0..ops.steps() {
        ops.begin_step(step, &head.enter)?;
        head.layers.iter().enumerate().try_for_each(|(at, layer)| ops.layer(step, at, layer))?;
        ops.velocity(step, &head.leave)?;
    }
    ops.end_steps(decoder, factors)
}
