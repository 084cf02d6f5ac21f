//! What forward keeps for backward, and what both compute in, whatever the device. Predicted memory is counted from it.

use crate::decoder::layers::{Block, LinearAt, NormAt};
use crate::{TrainSizes, parts::parts};

/// What forward keeps. `M` are numbers of the dtype, `F` are numbers in f32.
#[derive(Debug)]
pub struct Kept<M, F> {
    pub layers: Vec<KeptLayer<M, F>>,
    pub last: M,
    pub logits: M,
    pub losses: F,
}

#[derive(Debug)]
pub struct KeptLayer<M, F> {
    pub input: M,
    pub qkv: M,
    /// The logarithm of the sum of exponentials of each row of fused attention; empty for naive attention.
    pub row_sums: F,
    pub attended: M,
    pub middle: M,
    pub gate_up: M,
}

parts! {
    pub struct Scratch {
        normed, activated, d_hidden, d_normed, d_activated, d_attended, d_qkv,
        // The weights of naive attention; empty for fused attention.
        probabilities, d_scores,
    }
}

impl<M, F> Kept<M, F> {
    pub fn new<E>(
        sizes: &TrainSizes,
        layers: usize,
        numbers: impl Fn(usize) -> Result<M, E>,
        floats: impl Fn(usize) -> Result<F, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            layers: (0..layers).map(|_| KeptLayer::new(sizes, &numbers, &floats)).collect::<Result<_, E>>()?,
            last: numbers(sizes.stream)?,
            logits: numbers(sizes.logits)?,
            losses: floats(sizes.rows)?,
        })
    }

    pub fn norm_input(&self, at: NormAt) -> &M {
        match at {
            NormAt::Layer(layer, Block::Attention) => &self.layers[layer].input,
            NormAt::Layer(layer, Block::Ffn) => &self.layers[layer].middle,
            NormAt::Final => &self.last,
        }
    }

    pub fn first(&mut self) -> &mut M {
        self.layers.first_mut().map_or(&mut self.last, |layer| &mut layer.input)
    }

    /// The hidden states between the blocks of a layer, and those after the layer.
    pub fn middle_and_next(&mut self, layer: usize) -> (&M, &mut M) {
        let (before, after) = self.layers.split_at_mut(layer + 1);
        (&before[layer].middle, after.first_mut().map_or(&mut self.last, |layer| &mut layer.input))
    }

    pub fn of_weights<'a>(&'a self, scratch: &'a Scratch<M>, at: LinearAt) -> (&'a M, &'a M) {
        match at {
            LinearAt::Qkv(_) => (&scratch.d_qkv, &scratch.normed),
            LinearAt::Output(layer) => (&scratch.d_hidden, &self.layers[layer].attended),
            LinearAt::GateUp(layer) => (&self.layers[layer].gate_up, &scratch.normed),
            LinearAt::Down(_) => (&scratch.d_hidden, &scratch.activated),
            LinearAt::Head => (&self.logits, &scratch.normed),
        }
    }

    pub fn of_input<'a>(&'a self, scratch: &'a mut Scratch<M>, at: LinearAt) -> (&'a M, &'a mut M) {
        match at {
            LinearAt::Qkv(_) => (&scratch.d_qkv, &mut scratch.d_normed),
            LinearAt::Output(_) => (&scratch.d_hidden, &mut scratch.d_attended),
            LinearAt::GateUp(layer) => (&self.layers[layer].gate_up, &mut scratch.d_normed),
            LinearAt::Down(_) => (&scratch.d_hidden, &mut scratch.d_activated),
            LinearAt::Head => (&self.logits, &mut scratch.d_normed),
        }
    }
}

impl<M, F> KeptLayer<M, F> {
    pub fn new<E>(
        sizes: &TrainSizes,
        numbers: impl Fn(usize) -> Result<M, E>,
        floats: impl Fn(usize) -> Result<F, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            input: numbers(sizes.stream)?,
            qkv: numbers(sizes.qkv)?,
            row_sums: floats(sizes.row_sums)?,
            attended: numbers(sizes.attended)?,
            middle: numbers(sizes.stream)?,
            gate_up: numbers(sizes.gate_up)?,
        })
    }
}

impl TrainSizes {
    /// The sizes of what both passes compute in.
    pub fn scratch(&self) -> Scratch<usize> {
        let Self { stream, activated, attended, qkv, scores, .. } = *self;
        Scratch {
            normed: stream,
            activated,
            d_hidden: stream,
            d_normed: stream,
            d_activated: activated,
            d_attended: attended,
            d_qkv: qkv,
            probabilities: scores,
            d_scores: scores,
        }
    }
}
