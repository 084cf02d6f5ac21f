//! The operations of Qwen3-TTS on one device, at the granularity of its kernels, and their order, which is written once.

use std::ops::Range;

use super::tensors::{CodecWeights, LinearOf, LoadedWeights, NextWeights, Parts};
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

/// The operations of the codec decoder. A value holds the hidden states of one chunk, `[rows, channels]`, and the inner
/// states of residual branches.
pub trait CodecOps {
    type Parts: Parts;

    /// Looks up the vectors of all codes and projects them to the hidden states.
    fn look_up(&mut self, weights: &CodecWeights<Self::Parts>, frames: usize) -> Done;

    /// Convolves rows, behind a snake if there is one. Returns the number of rows behind it.
    fn conv(
        &mut self,
        conv: &<Self::Parts as Parts>::Conv,
        snake: Option<&<Self::Parts as Parts>::Snake>,
        rows: usize,
        flow: Flow,
    ) -> Result<usize, ModelError>;

    /// Runs the layers of the transformer and its norm over the hidden states.
    fn transformer(&mut self, weights: &CodecWeights<Self::Parts>, frames: usize) -> Done;

    /// Convolves each channel of the hidden states by itself, and norms the result: the inner states.
    fn depthwise_norm(&mut self, next: &NextWeights<Self::Parts>, rows: usize) -> Done;

    /// Projects the inner states up, and applies GELU.
    fn up_gelu(&mut self, next: &NextWeights<Self::Parts>, rows: usize) -> Done;

    /// Projects the inner states down, scales them by channel, and adds them to the hidden states.
    fn down_add(&mut self, next: &NextWeights<Self::Parts>, rows: usize) -> Done;

    /// Convolves a snake of the hidden states to samples.
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
        ops.depthwise_norm(next, rows)?;
        ops.up_gelu(next, rows)?;
        ops.down_add(next, rows)?;
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

/// A part of a frame that a device may replay as a graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FramePart {
    /// All codes but the first, by the code predictor.
    CodePredictor,
    /// The frame, through the talker.
    TalkerStep,
}

/// A part of sampling a semantic code, in order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SamplingPart {
    /// Penalties, temperature and top-k.
    TopK,
    TopP,
    Draw,
}

pub type WeightsOf<O> = LoadedWeights<<O as TtsOps>::Parts>;

/// The operations of a synthesis. A value holds the caches, the codes of all frames and the buffers. Operations only
/// enqueue work; those that return numbers wait for the device.
pub trait TtsOps {
    type Parts: Parts;
    type Rows;

    /// Where the stages inside a part of a frame are marked.
    fn marks(&self) -> &Marks;

    /// Makes ready for a prompt, after a reset: takes the rules of sampling, and captures what is replayed.
    fn begin(&mut self, weights: &WeightsOf<Self>, prompt: &Prompt, sampling: &Sampling) -> Done;

    fn embed_text(&mut self, weights: &WeightsOf<Self>, ids: &[u32]) -> Result<Self::Rows, ModelError>;

    /// Multiplies rows with a matrix and adds its bias, then applies SiLU if that is asked for.
    fn linear(
        &mut self,
        linear: &LinearOf<Self::Parts>,
        rows: &Self::Rows,
        has_silu: bool,
    ) -> Result<Self::Rows, ModelError>;

    /// Adds the embeddings of codec ids to the first rows, runs them through the talker, and computes the logits of the
    /// last one. Keeps the other rows: each is added to a frame, the last one to all later frames.
    fn prefill(&mut self, weights: &WeightsOf<Self>, prompt: &Prompt, rows: Self::Rows) -> Done;

    /// Sums the embeddings of all codes of the frame and the row of its text: the talker's hidden state.
    fn sum_codes(&mut self, weights: &WeightsOf<Self>) -> Done;

    /// Runs the talker's hidden state through its layers and its head.
    fn step(&mut self, weights: &WeightsOf<Self>) -> Done;

    /// Begins a frame of the predictor: the talker's normed state is its first position, the semantic code its second.
    fn enter(&mut self, weights: &WeightsOf<Self>) -> Done;

    /// Runs the predictor's next position through its layers and the head of a group.
    fn predict(&mut self, weights: &WeightsOf<Self>, group: usize) -> Done;

    /// Samples the code of a group from the predictor's logits, and begins the next position with its embedding.
    fn sample_code(&mut self, weights: &WeightsOf<Self>, group: usize) -> Done;

    /// Runs a part of sampling the semantic code of a frame from the talker's logits.
    fn sample(&mut self, part: SamplingPart, frame: usize) -> Done;

    /// The semantic code of the first frame or of the one drawn last, and whether it is the end. The device has been
    /// waited for.
    fn drawn(&self, frame: usize) -> (u32, bool);

    /// The number by which the span of a part's next replay is known, where it is stamped.
    fn replay_number(&mut self, _: FramePart) -> Result<Option<u64>, ModelError> {
        Ok(None)
    }

    /// Replays a part of a frame; false if it is not captured.
    fn replay(&mut self, _: FramePart) -> Result<bool, ModelError> {
        Ok(false)
    }

    fn codes(&self, frames: Range<usize>) -> Result<Vec<u32>, ModelError>;
    fn set_codes(&mut self, codes: &[u32]) -> Done;
    fn decode(&mut self, weights: &WeightsOf<Self>, frames: Range<usize>) -> Done;

    /// Appends some of the samples that were decoded last, between -1 and 1.
    fn read_samples(&mut self, samples: Range<usize>, to: &mut Vec<f32>) -> Done;

    fn logits(&mut self) -> Result<Vec<f32>, ModelError>;
    fn hidden(&mut self, weights: &WeightsOf<Self>) -> Result<Vec<f32>, ModelError>;
    fn wait(&mut self) -> Done;
    fn reset(&mut self) -> Done;
}

pub fn prefill<O: TtsOps>(ops: &mut O, weights: &WeightsOf<O>, prompt: &Prompt) -> Done {
    let rows = {
        let text = ops.embed_text(weights, &prompt.text_ids())?;
        let inner = ops.linear(&weights.talker.text_up, &text, true)?;
        ops.linear(&weights.talker.text_down, &inner, false)?
    };
    ops.prefill(weights, prompt, rows)
}

impl FramePart {
    pub fn run<O: TtsOps>(self, ops: &mut O, weights: &WeightsOf<O>) -> Done {
        if self == Self::TalkerStep {
            {
                let _stage = stage_mark!(ops.marks(), Layer, "embed");
                ops.sum_codes(weights)?;
            }
            return ops.step(weights);
        }
        {
            let _stage = stage_mark!(ops.marks(), Layer, "enter");
            ops.enter(weights)?;
        }
        for group in 1..=weights.predictor.heads.len() {
            let _stage = stage_mark!(ops.marks(), Layer, "code", group = group);
            ops.predict(weights, group)?;
            ops.sample_code(weights, group)?;
        }
        Ok(())
    }
}
