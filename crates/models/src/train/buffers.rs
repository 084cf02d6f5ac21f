//! The buffers of training on any device: activations kept for backward, and scratch. Also counted to predict memory.

use crate::decoder::layers::{Block, LinearAt, NormAt};
use crate::{TrainSizes, parts::parts};

/// Activations kept for backward. `M` is a buffer in the dtype, `F` one in f32.
#[derive(Debug)]
pub struct Kept<M, F> {
    pub layers: Vec<KeptLayer<M>>,
    /// The log-sum-exps of fused attention, layer by layer; empty for naive attention.
    pub row_sums: Vec<F>,
    pub last: M,
    pub logits: M,
    pub losses: F,
}

parts! {
    pub struct KeptLayer { input, qkv, attended, middle, gate_up }
}

parts! {
    pub struct Scratch {
        normed, activated, d_hidden, d_normed, d_activated, d_attended, d_qkv,
        // The weights of naive attention and their gradients; empty for fused attention.
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
            layers: (0..layers).map(|_| sizes.layer().try_map(&numbers)).collect::<Result<_, E>>()?,
            row_sums: (0..layers).map(|_| floats(sizes.row_sums)).collect::<Result<_, E>>()?,
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

    /// The hidden states between the blocks of a layer and after the layer.
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

impl TrainSizes {
    pub fn layer(&self) -> KeptLayer<usize> {
        let Self { stream, qkv, attended, gate_up, .. } = *self;
        KeptLayer { input: stream, qkv, attended, middle: stream, gate_up }
    }

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
