//! The operations of training, and the order of forward and backward, written once for every device.

use std::ops::Range;

use super::Ledger;
use crate::decoder::layers::{Block, LayerOf, LinearAt, NormAt, Ops, mark_op, run_head, run_layer};
use crate::decoder::weights::{Parameters, Part};
use crate::{Config, Done, ModelError, TrainOptions, marks::stage_mark};

/// The operations of training in addition to those of [`Ops`]. They only enqueue work.
pub trait TrainOps: Ops {
    /// Looks up the hidden states of the batch.
    fn embed(&mut self, table: &Self::Matrix) -> Done;

    /// Computes the losses, and replaces the logits by their gradients.
    fn cross_entropy(&mut self) -> Done;

    /// Writes the gradients of a weight and its bias.
    fn weights_back(&mut self, at: LinearAt, weight: &mut Self::Matrix, bias: Option<&mut Self::Vector>) -> Done;

    /// Computes the gradient of the input of a product with a weight.
    fn input_back(&mut self, at: LinearAt, weight: &Self::Matrix) -> Done;

    /// Adds the gradient of a norm's input to that of the hidden states, or writes it for the final norm. Writes the gradient
    /// of the norm's weight.
    fn norm_back(&mut self, at: NormAt, weight: &Self::Vector, gradient: &mut Self::Vector) -> Done;

    /// Replaces gate and up of a layer by their gradients, and recomputes the output of SwiGLU.
    fn swiglu_back(&mut self, layer: usize, weights: &LayerOf<Self>) -> Done;

    /// Computes the gradients of the heads of a layer. Marks its own stages.
    fn attend_back(&mut self, layer: usize) -> Done;

    /// Computes the gradients of the projected queries, keys and values from those of the heads. Writes those of the head
    /// norms.
    fn rope_back(&mut self, layer: usize, weights: &LayerOf<Self>, gradients: &mut LayerOf<Self>) -> Done;

    /// Writes the gradient of the embedding, or adds it to that of a tied head.
    fn embed_back(&mut self, table: &mut Self::Matrix) -> Done;
}

/// A device that trains. A value has a batch, its activations and the buffers of both passes.
pub trait TrainDevice: TrainOps {
    fn config(&self) -> &Config;
    fn options(&self) -> &TrainOptions;
    fn start(&mut self, ids: &[u32], targets: &[u32]) -> Done;

    /// The mean of the losses. Waits for the device.
    fn loss(&mut self) -> Result<f32, ModelError>;

    /// Updates every parameter by AdamW. The first update is number 1.
    fn update(&mut self, state: &mut TrainStateOf<Self>, number: u64) -> Done;

    /// Reads a range of a part of the weights. Waits for the device.
    fn read(&self, part: Part<&Self::Matrix, &Self::Vector>, range: Range<usize>) -> Result<Vec<f32>, ModelError>;
}

/// The parameters of a model, their gradients, and both moments if there is an optimizer.
pub struct TrainState<M, V> {
    pub parameters: Parameters<M, V>,
    pub gradients: Parameters<M, V>,
    pub moments: Option<[Parameters<M, V>; 2]>,
}

pub type TrainStateOf<O> = TrainState<<O as Ops>::Matrix, <O as Ops>::Vector>;

type ParametersOf<O> = Parameters<<O as Ops>::Matrix, <O as Ops>::Vector>;

pub fn run_forward<O: TrainOps>(ops: &mut O, parameters: &ParametersOf<O>, ledger: &mut Ledger) -> Done {
    {
        let _stage = stage_mark!(ops.marks(), Layer, "embed");
        ops.embed(&parameters.embedding)?;
    }
    for (at, weights) in parameters.layers.iter().enumerate() {
        let _layer = stage_mark!(ops.marks(), Layer, "layer", layer = at);
        run_layer(ops, at, weights)?;
        ledger.layer_forward();
    }
    run_head(ops, &parameters.norm, Some(parameters.head()))?;
    let _stage = stage_mark!(ops.marks(), Layer, "loss");
    ops.cross_entropy()
}

pub fn run_backward<O: TrainOps>(
    ops: &mut O,
    parameters: &ParametersOf<O>,
    gradients: &mut ParametersOf<O>,
    ledger: &mut Ledger,
) -> Done {
    {
        let _stage = stage_mark!(ops.marks(), Layer, "head");
        // The normed states of forward are still there.
        mark_op!(ops, "head_weights", ops.weights_back(LinearAt::Head, gradients.head_mut(), None))?;
        mark_op!(ops, "head_input", ops.input_back(LinearAt::Head, parameters.head()))?;
        mark_op!(ops, "norm_back", ops.norm_back(NormAt::Final, &parameters.norm, &mut gradients.norm))?;
    }
    ledger.head_backward();
    for (at, (weights, gradients)) in parameters.layers.iter().zip(&mut gradients.layers).enumerate().rev() {
        let _layer = stage_mark!(ops.marks(), Layer, "layer", layer = at);
        ffn_back(ops, at, weights, gradients)?;
        attention_back(ops, at, weights, gradients)?;
        ledger.layer_backward();
    }
    let _stage = stage_mark!(ops.marks(), Layer, "embed");
    ops.embed_back(&mut gradients.embedding)
}

fn ffn_back<O: TrainOps>(ops: &mut O, at: usize, weights: &LayerOf<O>, gradients: &mut LayerOf<O>) -> Done {
    let _block = stage_mark!(ops.marks(), Layer, "ffn");
    let (down, gate_up, norm) = (LinearAt::Down(at), LinearAt::GateUp(at), NormAt::Layer(at, Block::Ffn));
    let LayerOf::<O> { down: d_down, down_bias, gate_up: d_gate_up, gate_up_bias, ffn_norm, .. } = gradients;
    mark_op!(ops, "down_input", ops.input_back(down, &weights.down))?;
    mark_op!(ops, "swiglu", ops.swiglu_back(at, weights))?;
    mark_op!(ops, "down_weights", ops.weights_back(down, d_down, down_bias.as_mut()))?;
    mark_op!(ops, "norm_again", ops.norm(norm, &weights.ffn_norm))?;
    mark_op!(ops, "gate_up_weights", ops.weights_back(gate_up, d_gate_up, gate_up_bias.as_mut()))?;
    mark_op!(ops, "gate_up_input", ops.input_back(gate_up, &weights.gate_up))?;
    mark_op!(ops, "norm_back", ops.norm_back(norm, &weights.ffn_norm, ffn_norm))
}

fn attention_back<O: TrainOps>(ops: &mut O, at: usize, weights: &LayerOf<O>, gradients: &mut LayerOf<O>) -> Done {
    let _block = stage_mark!(ops.marks(), Layer, "attention");
    let (output, qkv, norm) = (LinearAt::Output(at), LinearAt::Qkv(at), NormAt::Layer(at, Block::Attention));
    mark_op!(ops, "output_weights", ops.weights_back(output, &mut gradients.output, None))?;
    mark_op!(ops, "output_input", ops.input_back(output, &weights.output))?;
    mark_op!(ops, "rope_again", ops.rope(at, weights))?;
    ops.attend_back(at)?;
    mark_op!(ops, "rope_back", ops.rope_back(at, weights, gradients))?;
    mark_op!(ops, "norm_again", ops.norm(norm, &weights.attention_norm))?;
    mark_op!(ops, "qkv_weights", ops.weights_back(qkv, &mut gradients.qkv, gradients.qkv_bias.as_mut()))?;
    mark_op!(ops, "qkv_input", ops.input_back(qkv, &weights.qkv))?;
    mark_op!(ops, "norm_back", ops.norm_back(norm, &weights.attention_norm, &mut gradients.attention_norm))
}
