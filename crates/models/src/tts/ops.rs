//! The operations of Qwen3-TTS on a device, and their order, written once for every device.

use std::ops::Range;

use super::tensors::{CodecWeights, NextWeights, Parts};
use super::{Prompt, Sampling};
use crate::{Done, Marks, ModelError, marks::stage_mark};

/// The epsilon of the norms of ConvNeXt blocks, as in the official classes.
pub const NEXT_EPS: f32 = 1e-6;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// From the hidden states to the hidden states.
    Hidden,
    /// From the hidden states to the inner states.
    Inner,
    /// From the inner states, added to the hidden states.
    Add,
}

/// The operations of the codec decoder. A value holds the hidden states of a chunk, `[rows, channels]`, and the inner
/// states of residual branches.
pub trait CodecOps {
    type Parts: Parts;

    /// Looks up the vectors of all codes and projects them to the hidden states.
    fn look_up(&mut self, weights: &CodecWeights<Self::Parts>, frames: usize) -> Done;

    /// Convolves rows, after a snake activation if given. Returns the new number of rows.
    fn conv(
        &mut self,
        conv: &<Self::Parts as Parts>::Conv,
        snake: Option<&<Self::Parts as Parts>::Snake>,
        rows: usize,
        flow: Flow,
    ) -> Result<usize, ModelError>;

    /// Runs the transformer and its final norm over the hidden states.
    fn transformer(&mut self, weights: &CodecWeights<Self::Parts>, frames: usize) -> Done;

    /// Runs a ConvNeXt block over the hidden states: depthwise convolution, layer norm, and a feed-forward part with GELU,
    /// whose output is scaled by channel and added.
    fn next_block(&mut self, next: &NextWeights<Self::Parts>, rows: usize) -> Done;

    /// The last snake activation and convolution: hidden states to samples.
    fn to_samples(&mut self, weights: &CodecWeights<Self::Parts>, rows: usize) -> Done;
}

pub fn decode<O: CodecOps>(ops: &mut O, weights: &CodecWeights<O::Parts>, frames: usize) -> Done {
    ops.look_up(weights, frames)?;
    ops.conv(&weights.input, None, frames, Flow::Hidden)?;
    ops.conv(&weights.enter, None, frames, Flow::Hidden)?;
    ops.transformer(weights, frames)?;
    let mut rows = ops.conv(&weights.leave, None, frames, Flow::Hidden)?;
    for next in &weights.next {
        rows = ops.conv(&next.lengthen, None, rows, Flow::Hidden)?;
        ops.next_block(next, rows)?;
    }
    rows = ops.conv(&weights.first, None, rows, Flow::Hidden)?;
    for block in &weights.blocks {
        rows = ops.conv(&block.lengthen, Some(&block.snake), rows, Flow::Hidden)?;
        for [(snake, wide), (snake_between, narrow)] in &block.units {
            ops.conv(wide, Some(snake), rows, Flow::Inner)?;
            ops.conv(narrow, Some(snake_between), rows, Flow::Add)?;
        }
    }
    ops.to_samples(weights, rows)
}

/// A part of a frame that may be replayed as a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePart {
    CodePredictor,
    TalkerStep,
}

/// The parts of sampling a semantic code, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingPart {
    /// Penalties, temperature and top-k.
    TopK,
    TopP,
    Draw,
}

/// The operations of a synthesis. A value holds the weights, the caches, the codes of all frames and the buffers. Operations
/// only enqueue work; those that return values wait for the device.
pub trait TtsOps {
    fn marks(&self) -> &Marks;

    /// Prepares for a prompt after a reset: sets the sampling rules and captures graphs.
    fn begin(&mut self, prompt: &Prompt, sampling: &Sampling) -> Done;

    /// Projects the text, adds the embeddings of codec ids to the rows of the positions, runs these through the talker, and
    /// computes the logits of the last one. Keeps the other rows for the frames; the last one serves all later frames.
    fn prefill(&mut self, prompt: &Prompt) -> Done;

    /// The talker's hidden state: the sum of the embeddings of all codes of the frame and of its text.
    fn sum_codes(&mut self) -> Done;

    /// Runs the talker's hidden state through its layers and its head.
    fn step(&mut self) -> Done;

    /// Begins a frame of the predictor. Its first position is the talker's normed state, the second the semantic code.
    fn enter(&mut self) -> Done;

    /// Runs the predictor's next position through its layers and the head of the group, and samples the code. Its embedding
    /// is the next position.
    fn predict(&mut self, group: usize) -> Done;

    /// Runs a part of sampling the semantic code of a frame.
    fn sample(&mut self, part: SamplingPart, frame: usize) -> Done;

    /// The semantic code of the first frame, or the latest one, and whether it is the end. Call it after `wait`.
    fn drawn(&self, frame: usize) -> (u32, bool);

    /// The number of the part's next replay, if it is stamped.
    fn replay_number(&mut self, _: FramePart) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// Replays a part; false if it is not captured.
    fn replay(&mut self, _: FramePart) -> Result<bool, ModelError> {
        Ok(false)
    }

    fn codes(&self, frames: Range<usize>) -> Result<Vec<u32>, ModelError>;
    fn set_codes(&mut self, codes: &[u32]) -> Done;
    fn decode(&mut self, frames: Range<usize>) -> Done;

    /// Appends samples of the last decode, between -1 and 1.
    fn read_samples(&mut self, samples: Range<usize>, to: &mut Vec<f32>) -> Done;

    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;
    fn hidden(&mut self) -> Result<Vec<f32>, ModelError>;
    fn wait(&mut self) -> Done {
        Ok(())
    }

    fn reset(&mut self) -> Done;
}

impl FramePart {
    /// Runs the part, which generates this many codes if it is the code predictor.
    pub fn run(self, ops: &mut dyn TtsOps, codes: usize) -> Done {
        if self == Self::TalkerStep {
            {
                let _stage = stage_mark!(ops.marks(), Layer, "embed");
                ops.sum_codes()?;
            }
            return ops.step();
        }
        {
            let _stage = stage_mark!(ops.marks(), Layer, "enter");
            ops.enter()?;
        }
        for group in 1..=codes {
            let _stage = stage_mark!(ops.marks(), Layer, "code", group = group);
            ops.predict(group)?;
        }
        Ok(())
    }
}
