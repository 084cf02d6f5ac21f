//! The layers of a decoder, written once for every device, batch and dtype.

use super::weights::LayerWeights;
use crate::offload::schedule::{LayerCopies, OffloadedLayers};
use crate::{Config, Done, Marks, marks::stage_mark};

/// The operations of a decoder on one device, at the granularity of its kernels.
///
/// A value has the hidden states, caches and buffers of one pass: a prompt, or one token of each sequence. Operations only
/// enqueue work, so they can be captured as a graph. Operations named by [`Ops::fusion`] are part of others and never called.
pub trait Ops {
    type Matrix;
    type Vector;

    fn marks(&self) -> &Marks;

    /// The operations that kernels of this pass include.
    fn fusion(&self) -> Fusion {
        Fusion::default()
    }

    /// Norms the hidden states; before the head, possibly only the last of each sequence.
    fn norm(&mut self, at: NormAt, weight: &Self::Vector) -> Done;

    /// Multiplies the normed states, or the output of attention or SwiGLU, with a weight. The products after attention and
    /// SwiGLU are added to the hidden states, after the post-norm if there is one. The next operation may add the bias.
    fn linear(&mut self, at: LinearAt, linear: LinearOf<'_, Self>) -> Done;

    /// Norms the heads, applies RoPE, and writes keys and values to the cache of a layer.
    fn rope(&mut self, layer: usize, weights: &LayerOf<Self>) -> Done;

    /// Attends to the cache of a layer. Marks its own stages.
    fn attend(&mut self, layer: usize, weights: &LayerOf<Self>) -> Done;

    /// Applies SwiGLU or GeGLU to gate and up.
    fn swiglu(&mut self, layer: usize, weights: &LayerOf<Self>) -> Done;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NormAt {
    Layer(usize, Block),
    Final,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinearAt {
    Qkv(usize),
    Output(usize),
    GateUp(usize),
    Down(usize),
    Head,
}

impl LinearAt {
    pub fn shape(self, config: &Config) -> [usize; 2] {
        let Config { hidden, ffn, vocab, heads, kv_heads, head_dim, .. } = *config;
        match self {
            Self::Qkv(_) => [(heads + 2 * kv_heads) * head_dim, hidden],
            Self::Output(_) => [hidden, heads * head_dim],
            Self::GateUp(_) => [2 * ffn, hidden],
            Self::Down(_) => [hidden, ffn],
            Self::Head => [vocab, hidden],
        }
    }
}

/// A weight and its bias, and the norm before it for kernels that include the norm.
#[derive(Debug)]
pub struct Linear<'a, M, V> {
    pub weight: &'a M,
    pub bias: Option<&'a V>,
    pub norm: Option<&'a V>,
    /// The norm of the product before it is added to the hidden states.
    pub post_norm: Option<&'a V>,
}

impl<'a, M, V> Linear<'a, M, V> {
    fn new(weight: &'a M, bias: Option<&'a V>, norm: Option<&'a V>) -> Self {
        Self { weight, bias, norm, post_norm: None }
    }
}

pub type LinearOf<'a, O> = Linear<'a, <O as Ops>::Matrix, <O as Ops>::Vector>;

/// Runs one operation as a stage.
macro_rules! mark_op {
    ($ops:ident, $name:literal, $run:expr) => {{
        let _op = $crate::marks::stage_mark!($ops.marks(), Ops, $name);
        $run
    }};
}

pub(crate) use mark_op;

pub type LayerOf<O> = LayerWeights<<O as Ops>::Matrix, <O as Ops>::Vector>;

/// Which operations are part of a neighbouring kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fusion {
    /// Products include the norm before and SwiGLU after them.
    pub products: bool,
    /// Attention includes RoPE and the cache write.
    pub rope: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Block {
    Attention,
    Ffn,
}

/// Runs all layers, then `finish`. After offloaded layers, the rest of the pass is one stage.
pub fn run_all<O: Ops, C: LayerCopies<Layer = LayerOf<O>>>(
    ops: &mut O,
    offloaded: Option<&mut OffloadedLayers<C>>,
    resident: &[LayerOf<O>],
    finish: impl FnOnce(&mut O) -> Done,
) -> Done {
    let mut first = 0;
    let mut _resident = None;
    if let Some(offloaded) = offloaded {
        run_offloaded(ops, offloaded)?;
        first = offloaded.layers;
        _resident = stage_mark!(ops.marks(), Pipeline, "resident", forward = offloaded.pass_number());
    }
    run_resident(ops, first, resident)?;
    finish(ops)
}

pub fn run_offloaded<O: Ops, C: LayerCopies<Layer = LayerOf<O>>>(
    ops: &mut O,
    offloaded: &mut OffloadedLayers<C>,
) -> Done {
    offloaded.begin()?;
    for at in 0..offloaded.layers {
        offloaded.turn(at, |weights| run_layer(ops, at, weights))?;
    }
    Ok(())
}

/// Runs resident layers, starting with layer `first`.
pub fn run_resident<O: Ops>(ops: &mut O, first: usize, layers: &[LayerOf<O>]) -> Done {
    for (at, weights) in (first..).zip(layers) {
        let _layer = stage_mark!(ops.marks(), Layer, "layer", layer = at);
        run_layer(ops, at, weights)?;
    }
    Ok(())
}

pub fn run_layer<O: Ops>(ops: &mut O, at: usize, weights: &LayerOf<O>) -> Done {
    {
        let _block = stage_mark!(ops.marks(), Layer, "attention");
        run_attention(ops, at, weights)?;
    }
    let _block = stage_mark!(ops.marks(), Layer, "ffn");
    run_ffn(ops, at, weights)
}

fn run_attention<O: Ops>(ops: &mut O, at: usize, weights: &LayerOf<O>) -> Done {
    let (fusion, norm) = (ops.fusion(), &weights.attention_norm);
    if !fusion.products {
        mark_op!(ops, "norm", ops.norm(NormAt::Layer(at, Block::Attention), norm))?;
    }
    let qkv = Linear::new(&weights.qkv, weights.qkv_bias.as_ref(), Some(norm));
    mark_op!(ops, "qkv", ops.linear(LinearAt::Qkv(at), qkv))?;
    if !fusion.rope {
        mark_op!(ops, "rope", ops.rope(at, weights))?;
    }
    ops.attend(at, weights)?;
    let post_norm = weights.attention_post_norm.as_ref();
    let output = Linear { post_norm, ..Linear::new(&weights.output, None, None) };
    mark_op!(ops, "output", ops.linear(LinearAt::Output(at), output))
}

fn run_ffn<O: Ops>(ops: &mut O, at: usize, weights: &LayerOf<O>) -> Done {
    let (fusion, norm) = (ops.fusion(), &weights.ffn_norm);
    if !fusion.products {
        mark_op!(ops, "norm", ops.norm(NormAt::Layer(at, Block::Ffn), norm))?;
    }
    let gate_up = Linear::new(&weights.gate_up, weights.gate_up_bias.as_ref(), Some(norm));
    mark_op!(ops, "gate_up", ops.linear(LinearAt::GateUp(at), gate_up))?;
    if !fusion.products {
        mark_op!(ops, "swiglu", ops.swiglu(at, weights))?;
    }
    let post_norm = weights.ffn_post_norm.as_ref();
    let down = Linear { post_norm, ..Linear::new(&weights.down, weights.down_bias.as_ref(), None) };
    mark_op!(ops, "down", ops.linear(LinearAt::Down(at), down))
}

pub fn run_head<O: Ops>(ops: &mut O, norm: &O::Vector, head: Option<&O::Matrix>) -> Done {
    let _stage = stage_mark!(ops.marks(), Layer, "head");
    if !ops.fusion().products {
        mark_op!(ops, "norm", ops.norm(NormAt::Final, norm))?;
    }
    let Some(weight) = head else { return Ok(()) };
    ops.linear(LinearAt::Head, Linear::new(weight, None, Some(norm)))
}
