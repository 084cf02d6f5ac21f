//! A whole layer, and the end of a step.

use super::{Attention, Linear, Norm, Rotation, State, Step, StepSizes};
use crate::{blas::Element, device::Device, error::CudaError, memory::Buffer, stream::Stream};

/// The weights of a layer, borrowed.
#[derive(Debug)]
pub struct Layer<'a, T> {
    /// The norm weight before attention.
    pub attention_norm: &'a Buffer<T>,
    /// The projection to queries, keys and values, packed in this order: `[(heads + 2 kv_heads) * head_dim, hidden]`.
    pub qkv: Linear<'a, T>,
    /// The norm weight of each query head, if the model has one.
    pub query_norm: Option<&'a Buffer<T>>,
    /// The norm weight of each key head, if the model has one.
    pub key_norm: Option<&'a Buffer<T>>,
    /// The projection after attention: `[hidden, heads * head_dim]`.
    pub output: Linear<'a, T>,
    /// The norm weight before the feed-forward part.
    pub ffn_norm: &'a Buffer<T>,
    /// Gate and up projections, packed in this order: `[2 * ffn, hidden]`.
    pub gate_up: Linear<'a, T>,
    /// The down projection: `[hidden, ffn]`.
    pub down: Linear<'a, T>,
    /// The epsilon of every norm of the layer.
    pub epsilon: f32,
}

/// The buffers between the kernels of a step.
#[derive(Debug)]
pub struct Activations<T> {
    /// The hidden state, `[batch, hidden]`.
    pub x: Buffer<T>,
    /// Queries, keys and values, `[batch, (heads + 2 kv_heads) * head_dim]`.
    pub qkv: Buffer<T>,
    /// The output of attention, `[batch, heads * head_dim]`.
    pub attended: Buffer<T>,
    /// The output of the gate, `[batch, ffn]`.
    pub gated: Buffer<T>,
    /// The logits, `[batch, vocab]`.
    pub logits: Buffer<T>,
}

impl<T: Element> Activations<T> {
    /// Allocates the buffers for a step of these sizes.
    pub fn new(device: &Device, sizes: &StepSizes) -> Result<Self, CudaError> {
        let each = |numbers: u32| device.allocate(sizes.batch as usize * numbers as usize);
        Ok(Self {
            x: each(sizes.hidden)?,
            qkv: each(sizes.qkv())?,
            attended: each(sizes.attended())?,
            gated: each(sizes.ffn)?,
            logits: each(sizes.vocab)?,
        })
    }
}

impl<T: Element> Step<T> {
    /// One layer: five kernels, from `x` to `x`. The cache is that of the layer; see [`Step::attention`].
    pub fn layer(
        &self,
        stream: &Stream,
        layer: &Layer<'_, T>,
        rotation: Rotation<'_>,
        state: &State,
        cache: [&mut Buffer<T>; 2],
        activations: &mut Activations<T>,
    ) -> Result<(), CudaError> {
        let Activations { x, qkv, attended, gated, .. } = activations;
        let StepSizes { hidden, ffn, .. } = self.sizes;
        let before = Norm { weight: layer.attention_norm, epsilon: layer.epsilon };
        self.norm_linear(stream, x, &before, &layer.qkv, qkv, [self.sizes.qkv(), hidden])?;
        let (query_norm, key_norm) = (layer.query_norm, layer.key_norm);
        let attention = Attention { query_norm, key_norm, epsilon: layer.epsilon, rotation };
        self.attention(stream, qkv, &attention, state, cache, attended)?;
        self.linear_add(stream, attended, &layer.output, x, [hidden, self.sizes.attended()])?;
        let between = Norm { weight: layer.ffn_norm, epsilon: layer.epsilon };
        self.norm_gate_up(stream, x, &between, &layer.gate_up, gated, [ffn, hidden])?;
        self.linear_add(stream, gated, &layer.down, x, [hidden, ffn])
    }

    /// The end of a step: the logits from the head `[vocab, hidden]`, and the next token; see [`Step::argmax`].
    pub fn finish(
        &self,
        stream: &Stream,
        norm: &Norm<'_, T>,
        head: &Linear<'_, T>,
        activations: &mut Activations<T>,
        state: &mut State,
    ) -> Result<(), CudaError> {
        let Activations { x, logits, .. } = activations;
        self.norm_linear(stream, x, norm, head, logits, [self.sizes.vocab, self.sizes.hidden])?;
        self.argmax(stream, logits, state)
    }
}
