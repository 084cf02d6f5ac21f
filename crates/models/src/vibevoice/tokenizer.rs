//! The acoustic encoder, the acoustic decoder and the semantic encoder: streaming convolutions, written once for every device.
//!
//! All convolutions are causal, so a run continues from the last positions that each of them saw, which a flow keeps.

use super::tensors::{Kinds, Mixer, Tokenizer};
use super::{Done, plan::TokenizerShape};
use crate::{ModelError, error::ensure};

/// The operations of a tokenizer on one device, at the granularity of its kernels. They only enqueue work.
///
/// `at` counts the convolutions in the order in which they run: each has its own list of rows in the flow.
pub trait TokenizerOps: Kinds {
    type Flow;

    /// Tokens of audio that are run at a time where there are many.
    const TOGETHER: usize;

    /// A flow for at most this many tokens at a time, with silence before them.
    fn flow(&self, shape: &TokenizerShape, tokens: usize) -> Result<Self::Flow, ModelError>;

    /// Makes silence precede what comes next.
    fn forget(&mut self, flow: &mut Self::Flow) -> Done;

    fn enter(&mut self, flow: &mut Self::Flow, numbers: &[f32]) -> Done;

    /// Convolves what the convolution sees to hidden states, latents or samples.
    fn convolve(&mut self, flow: &mut Self::Flow, at: usize, conv: &Self::Conv, tokens: usize) -> Done;

    /// Adds what the block before made, if there is one, and lets the next convolution see the hidden states: normed if it is
    /// that of a block.
    fn add_norm(
        &mut self,
        flow: &mut Self::Flow,
        at: Rows,
        made: Option<&Mixer<Self>>,
        next: Option<&Mixer<Self>>,
    ) -> Done;

    /// Runs a block up to what it adds at the end: it mixes positions channel by channel, adds that to the hidden states,
    /// norms them and runs the feed-forward part.
    fn block(&mut self, flow: &mut Self::Flow, at: Rows, block: &Mixer<Self>) -> Done;

    /// Keeps the last positions for the next run, where that is work of its own.
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

pub fn run<B: TokenizerOps>(ops: &mut B, tokenizer: &Tokenizer<B>, flow: &mut B::Flow, tokens: usize) -> Done {
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

/// Runs numbers that silence precedes, a few tokens at a time, each of which has this many. Waits for the device.
pub fn run_all<B: TokenizerOps>(
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
        run(ops, tokenizer, &mut flow, tokens)?;
        all.extend(ops.leave(&flow, &tokenizer.shape, tokens)?);
    }
    Ok(all)
}
