//! A whole layer and the end of a step, as the checks of steps run them.

use laptime_cuda::decode::{Attention, Linear, Norm, State, Step, StepRows, StepSizes};
use laptime_cuda::nn::Rotation;
use laptime_cuda::{Buffer, CudaError, Device, Element, Stream};

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

impl<T: Element> Layer<'_, T> {
    /// Five kernels, from `x` to `x`. The cache is that of the layer; see [`Step::attention`].
    pub fn run(
        &self,
        stream: &Stream,
        step: &Step<T>,
        rotation: Rotation<'_>,
        state: &State,
        cache: [&mut Buffer<T>; 2],
        activations: &mut Activations<T>,
    ) -> Result<(), CudaError> {
        let Activations { x, qkv, attended, gated, .. } = activations;
        let (sizes, epsilon) = (step.sizes(), self.epsilon);
        let StepSizes { hidden, ffn, .. } = sizes;
        let before = Norm { weight: self.attention_norm, epsilon };
        step.norm_linear(stream, x, &before, &self.qkv, qkv, [sizes.qkv(), hidden])?;
        let (query_norm, key_norm) = (self.query_norm, self.key_norm);
        let attention = Attention { query_norm, key_norm, epsilon, rotation, is_windowed: false };
        step.attention(stream, qkv, &attention, StepRows::All(state), cache, attended)?;
        step.linear_add(stream, attended, &self.output, x, [hidden, sizes.attended()])?;
        let between = Norm { weight: self.ffn_norm, epsilon };
        step.norm_gate_up(stream, x, &between, &self.gate_up, gated, [ffn, hidden])?;
        step.linear_add(stream, gated, &self.down, x, [hidden, ffn])
    }
}

impl<T: Element> Activations<T> {
    /// The end of a step: the logits from the head `[vocab, hidden]`, and the next token; see [`Step::argmax`].
    pub fn finish(
        &mut self,
        stream: &Stream,
        step: &Step<T>,
        norm: &Norm<'_, T>,
        head: &Linear<'_, T>,
        state: &mut State,
    ) -> Result<(), CudaError> {
        let StepSizes { vocab, hidden, .. } = step.sizes();
        step.norm_linear(stream, &self.x, norm, head, &mut self.logits, [vocab, hidden])?;
        step.argmax(stream, &self.logits, state)
    }
}
