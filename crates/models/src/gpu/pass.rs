//! A pass of a decoder on a GPU, over the tokens of a prompt or over one token of each sequence.
//!
//! Many rows use cuBLAS with kernels between products. Few rows use fused kernels that include norms, biases and SwiGLU.

use laptime_cuda::{
    Batch, Blas, Buffer, CudaError, Device, Matrices, Sizes, Slice, Stream,
    decode::{self, Linear, Norm, State, Step, StepRows},
    nn::{Attention, BlockAttention, BlockLayout, HeadNorm, HeadSizes, Operations, Packed, Pairing, Rotation},
};

use super::memory::{Head, Parts, PassSizes};
use super::weights::{Fp8Weights, LayerWeights, Number};
use super::{cache::GpuCache, size};
use crate::decoder::layers::{Fusion, LinearAt, LinearOf, NormAt, Ops};
use crate::error::ensure;
use crate::{
    Activation, Attention as Kind, Config, Done, Marks, ModelError, RopeLayout, marks::stage_mark, rope::RopeTable,
};

/// The most rows of fused kernels, which read the weights once for all rows.
const MOST_FUSED: usize = 8;

/// Whether a step of this many rows uses fused kernels, which support SwiGLU without post-norms.
pub(super) fn is_fused(config: &Config, rows: usize) -> bool {
    rows <= MOST_FUSED && config.activation == Activation::Silu && !config.post_norms
}

#[derive(Debug)]
pub struct Buffers<T> {
    pub sizes: PassSizes,
    pub ids: Buffer<u32>,
    pub parts: Parts<Buffer<T>>,
}

impl<T: Number> Buffers<T> {
    pub fn new(device: &Device, sizes: PassSizes) -> Result<Self, ModelError> {
        let ids = device.allocate(sizes.rows)?;
        Ok(Self { sizes, ids, parts: sizes.parts.try_map(|numbers| device.allocate(numbers))? })
    }
}

#[derive(Debug)]
pub struct DeviceRope {
    pub cosines: Buffer<f32>,
    pub sines: Buffer<f32>,
    pub layout: RopeLayout,
    /// The tables of layers with a sliding window.
    windowed: Option<Box<Self>>,
}

impl DeviceRope {
    pub fn new(device: &Device, config: &Config, positions: usize) -> Result<Self, ModelError> {
        let mut table = RopeTable::new(config);
        table.reach(positions);
        Self::upload(device, config.rope.layout, &table)
    }

    fn upload(device: &Device, layout: RopeLayout, table: &RopeTable) -> Result<Self, ModelError> {
        let (cosines, sines) = table.all();
        let windowed = table.windowed().map(|table| Self::upload(device, layout, table)).transpose()?.map(Box::new);
        Ok(Self { cosines: device.upload(cosines)?, sines: device.upload(sines)?, layout, windowed })
    }

    /// The tables of a layer.
    fn of_layer(&self, config: &Config, layer: usize) -> &Self {
        self.windowed.as_deref().filter(|_| config.window_of(layer).is_some()).unwrap_or(self)
    }

    fn rotation(&self) -> Rotation<'_> {
        let pairing = match self.layout {
            RopeLayout::Halves => Pairing::Halves,
            RopeLayout::Pairs => Pairing::Pairs,
        };
        Rotation { cosines: self.cosines.all(), sines: self.sines.all(), pairing }
    }
}

pub fn packed<'a, T: Number>(
    config: &Config,
    rope: &'a DeviceRope,
    start: &'a Buffer<u32>,
    weights: &'a LayerWeights<T>,
    qkv: &'a Buffer<T>,
) -> Packed<'a, T> {
    let norm = match (&weights.query_norm, &weights.key_norm) {
        (Some(q), Some(k)) => Some(HeadNorm { q: q.all(), k: k.all(), epsilon: config.norm_eps as f32 }),
        _ => None,
    };
    let bias = weights.qkv_bias.as_ref().map(Buffer::all);
    Packed { packed: qkv.all(), bias, norm, rotation: rope.rotation(), start: start.all() }
}

pub fn head_sizes(config: &Config, batch: usize, tokens: usize, capacity: usize) -> Result<HeadSizes, ModelError> {
    Ok(HeadSizes {
        batch: size(batch)?,
        tokens: size(tokens)?,
        heads: size(config.heads)?,
        kv_heads: size(config.kv_heads)?,
        head_dim: size(config.head_dim)?,
        capacity: size(capacity)?,
    })
}

#[derive(Clone, Copy)]
pub struct Context<'a, T> {
    pub stream: &'a Stream,
    pub blas: &'a Blas,
    pub config: &'a Config,
    pub marks: &'a Marks,
    pub operations: &'a Operations<T>,
    pub rope: &'a DeviceRope,
    /// The kernels for the matrices of layers if they are e4m3.
    pub fp8: Option<&'a Fp8Weights<T>>,
}

impl<T: Number> Context<'_, T> {
    /// Scales embeddings by the factor of the model, rounded to the dtype.
    pub fn scale_embedding(&self, x: &mut Buffer<T>, rows: usize) -> Done {
        let Some(factor) = self.config.embedding_scale() else { return Ok(()) };
        let numbers = rows as u64 * self.config.hidden as u64;
        Ok(self.operations.scale(self.stream, x, numbers, T::narrowed(factor).widened())?)
    }
}

pub struct Pass<'a, T> {
    pub context: Context<'a, T>,
    pub buffers: &'a mut Buffers<T>,
    pub rows: PassRows<'a, T>,
}

pub enum PassRows<'a, T> {
    Prompt(PromptRows<'a, T>),
    Token(&'a Step<T>, Sequences<'a, T>),
}

pub struct PromptRows<'a, T> {
    pub attention: &'a Attention<T>,
    /// Attention of layers with a sliding window.
    pub windowed: Option<&'a Attention<T>>,
    /// Block attention: sparse, or dense from the first position on, where it is faster.
    pub blocks: Option<(&'a BlockAttention<T>, &'a BlockLayout)>,
    pub is_sparse: bool,
    pub kind: Kind,
    pub start: &'a Buffer<u32>,
    pub heads: HeadSizes,
    /// The number of positions that the last token attends to.
    pub keys: u32,
    pub head: Head,
    /// Keys and values of each layer, or one pair of buffers for all layers in turn.
    pub cache: &'a mut [[Buffer<T>; 2]],
}

impl<'a, T> PromptRows<'a, T> {
    /// The first tokens of one sequence, in a cache of this capacity, with logits of the last.
    pub fn of_sequence(
        attention: &'a Attention<T>,
        kind: Kind,
        start: &'a Buffer<u32>,
        (config, tokens, capacity): (&Config, usize, usize),
        cache: &'a mut [[Buffer<T>; 2]],
    ) -> Result<Self, ModelError> {
        let heads = head_sizes(config, 1, tokens, capacity)?;
        let (keys, head) = (heads.tokens, Head::Last);
        Ok(Self { attention, windowed: None, blocks: None, is_sparse: false, kind, start, heads, keys, head, cache })
    }
}

pub enum Sequences<'a, T> {
    Together(&'a State, &'a mut GpuCache<T>),
    /// Each with its own position and cache. Weights are read once for all.
    Separate(Vec<SequenceRow<'a, T>>),
}

/// A sequence with its own position. Its cache has the capacity that the step was compiled for.
pub struct SequenceRow<'a, T> {
    pub position: &'a Buffer<u32>,
    pub cache: &'a mut GpuCache<T>,
}

impl<'a, T: Number> Pass<'a, T> {
    fn fused(&self) -> Option<&'a Step<T>> {
        match &self.rows {
            PassRows::Token(step, _) if is_fused(self.context.config, self.buffers.sizes.rows) => Some(step),
            _ => None,
        }
    }

    fn shape(&self, width: usize) -> Result<[u32; 2], ModelError> {
        Ok([size(self.buffers.sizes.rows)?, size(width)?])
    }

    fn epsilon(&self) -> f32 {
        self.context.config.norm_eps as f32
    }

    /// A product fused with the norm before it, SwiGLU after it, or the addition to the hidden states.
    fn fused_linear(&mut self, step: &Step<T>, at: LinearAt, linear: LinearOf<'_, Self>) -> Done {
        let ([out, width], epsilon) = (at.shape(self.context.config), self.epsilon());
        let (stream, shape) = (self.context.stream, [size(out)?, size(width)?]);
        let no_norm = || CudaError::refused("multiplying", 0, "the weight of the norm is missing");
        let norm = linear.norm.map(|weight| Norm { weight, epsilon }).ok_or_else(no_norm);
        let fp8 = self.context.fp8.filter(|_| at != LinearAt::Head).map(Fp8Weights::scales);
        let linear = Linear { weight: linear.weight, bias: linear.bias, fp8 };
        let Parts { x, qkv, attended, activated, logits, .. } = &mut self.buffers.parts;
        match at {
            LinearAt::Qkv(_) => step.norm_linear(stream, x, &norm?, &linear, qkv, shape)?,
            LinearAt::Output(_) => step.linear_add(stream, attended, &linear, x, shape)?,
            LinearAt::GateUp(_) => {
                step.norm_gate_up(stream, x, &norm?, &linear, activated, [shape[0] / 2, shape[1]])?
            }
            LinearAt::Down(_) => step.linear_add(stream, activated, &linear, x, shape)?,
            LinearAt::Head => step.norm_linear(stream, x, &norm?, &linear, logits, shape)?,
        }
        Ok(())
    }
}

impl<T: Number> Ops for Pass<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;

    fn marks(&self) -> &Marks {
        self.context.marks
    }

    fn fusion(&self) -> Fusion {
        Fusion { products: self.fused().is_some(), rope: matches!(self.rows, PassRows::Token(..)) }
    }

    /// The final norm of a prompt writes the last row of each sequence over the hidden states, for the head.
    fn norm(&mut self, at: NormAt, weight: &Buffer<T>) -> Done {
        let ([rows, hidden], epsilon) = (self.shape(self.context.config.hidden)?, self.epsilon());
        let Context { stream, operations, .. } = self.context;
        let Parts { x, normed, .. } = &mut self.buffers.parts;
        match (at, &self.rows) {
            (NormAt::Final, PassRows::Prompt(PromptRows { head: Head::Last, heads, .. })) => {
                operations.last_rows(stream, &*x, &mut *normed, [heads.batch, heads.tokens, hidden])?;
                operations.rms_norm(stream, &*normed, weight, x, [heads.batch, hidden], epsilon)?;
            }
            _ => operations.rms_norm(stream, &*x, weight, normed, [rows, hidden], epsilon)?,
        }
        Ok(())
    }

    /// SwiGLU adds the bias of gate and up; in a prompt, RoPE adds that of queries, keys and values.
    fn linear(&mut self, at: LinearAt, linear: LinearOf<'_, Self>) -> Done {
        if let Some(step) = self.fused() {
            return self.fused_linear(step, at, linear);
        }
        let ([out, width], Context { stream, blas, operations, .. }) = (at.shape(self.context.config), &self.context);
        let mut sizes =
            Sizes { m: size(self.buffers.sizes.rows)?, n: size(out)?, k: size(width)?, b_is_transposed: true };
        let (shape, epsilon) = ([sizes.m, sizes.n], self.epsilon());
        let Parts { x, normed, qkv, attended, gate_up, activated, logits, dequantised, .. } = &mut self.buffers.parts;
        let weight = match self.context.fp8.filter(|_| at != LinearAt::Head) {
            Some(fp8) => fp8.dequantise(stream, linear.weight, dequantised, [sizes.n, sizes.k])?,
            None => linear.weight.all(),
        };
        match at {
            LinearAt::Qkv(_) => {
                blas.multiply_slices([normed.all(), weight], qkv.all_mut(), sizes)?;
                if let (PassRows::Token(..), Some(bias)) = (&self.rows, linear.bias) {
                    operations.add_bias(stream, qkv, bias, shape)?;
                }
            }
            LinearAt::Output(_) | LinearAt::Down(_) => {
                let from = if matches!(at, LinearAt::Down(_)) { activated.all() } else { attended.all() };
                // A product with a post-norm overwrites the normed states, which are no longer needed.
                let out = if linear.post_norm.is_some() {
                    blas.multiply_slices([from, weight], normed.all_mut(), sizes)?;
                    &mut *normed
                } else {
                    blas.multiply_add([from, weight], x.all_mut(), sizes)?;
                    &mut *x
                };
                linear.bias.map_or(Ok(()), |bias| operations.add_bias(stream, out, bias, shape))?;
                if let Some(norm) = linear.post_norm {
                    operations.rms_norm_add(stream, &*normed, norm, x, shape, epsilon)?;
                }
            }
            LinearAt::GateUp(_) => blas.multiply_slices([normed.all(), weight], gate_up.all_mut(), sizes)?,
            LinearAt::Head => {
                let rows: Slice<'_, T> = match &self.rows {
                    PassRows::Prompt(PromptRows { head: Head::Last, heads, .. }) => {
                        sizes.m = heads.batch;
                        x.slice(0..heads.batch as usize * width)?
                    }
                    _ => normed.all(),
                };
                blas.multiply_slices([rows, weight], logits.all_mut(), sizes)?;
            }
        }
        Ok(())
    }

    fn rope(&mut self, layer: usize, weights: &LayerWeights<T>) -> Done {
        let PassRows::Prompt(prompt) = &mut self.rows else { return Ok(()) };
        let Context { stream, config, operations, rope, .. } = self.context;
        let Parts { qkv, queries, .. } = &mut self.buffers.parts;
        let at = layer % prompt.cache.len();
        let [keys, values] = &mut prompt.cache[at];
        let packed = packed(config, rope.of_layer(config, layer), prompt.start, weights, qkv);
        Ok(operations.split_heads(stream, &packed, queries, keys, values, &prompt.heads)?)
    }

    fn attend(&mut self, layer: usize, weights: &LayerWeights<T>) -> Done {
        match &mut self.rows {
            PassRows::Prompt(prompt) => prompt.attend(&self.context, layer, self.buffers),
            PassRows::Token(step, sequences) => sequences.attend(&self.context, step, layer, weights, self.buffers),
        }
    }

    fn swiglu(&mut self, _: usize, weights: &LayerWeights<T>) -> Done {
        let shape = self.shape(self.context.config.ffn)?;
        let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
        let Parts { gate_up, activated, .. } = &mut self.buffers.parts;
        let Context { stream, operations, config, .. } = self.context;
        match config.activation {
            Activation::Silu => operations.swiglu(stream, &*gate_up, bias, activated, shape)?,
            Activation::GeluTanh => operations.geglu(stream, &*gate_up, bias, activated, shape)?,
        }
        Ok(())
    }
}

fn scale(config: &Config) -> f32 {
    1.0 / (config.head_dim as f32).sqrt()
}

impl<T: Number> PromptRows<'_, T> {
    fn attend(&mut self, context: &Context<'_, T>, layer: usize, buffers: &mut Buffers<T>) -> Done {
        let Parts { queries, attended, .. } = &mut buffers.parts;
        let [keys, values] = &self.cache[layer % self.cache.len()];
        let inputs = [queries.all(), keys.all(), values.all()];
        if let Some((attention, layout)) = self.blocks {
            let _op = match self.is_sparse {
                true => stage_mark!(context.marks, Ops, "blocks"),
                false => stage_mark!(context.marks, Ops, "fused"),
            };
            return Ok(attention.attend(context.stream, &self.heads, inputs, layout, attended)?);
        }
        if self.kind == Kind::Naive {
            return self.naive(context, layer, buffers);
        }
        let _op = stage_mark!(context.marks, Ops, "fused");
        let no_window = || CudaError::refused("attending", 0, "the kernels for sliding windows are missing");
        let attention = match context.config.window_of(layer) {
            Some(_) => self.windowed.ok_or_else(no_window)?,
            None => self.attention,
        };
        let out = (attended.all_mut(), None);
        Ok(attention.attend(context.stream, inputs, self.start, out, &self.heads, scale(context.config))?)
    }

    /// Scores of all pairs, softmax, and the weighted sums of values.
    fn naive(&mut self, context: &Context<'_, T>, layer: usize, buffers: &mut Buffers<T>) -> Done {
        let Context { stream, blas, operations, marks, .. } = *context;
        let naive = Naive::new(&self.heads, self.keys);
        let Parts { queries, scores, attended, .. } = &mut buffers.parts;
        let [keys, values] = &self.cache[layer % self.cache.len()];
        {
            let _op = stage_mark!(marks, Ops, "scores");
            blas.multiply_batch([queries.all(), keys.all()], scores.all_mut(), &naive.scores())?;
        }
        {
            let _op = stage_mark!(marks, Ops, "softmax");
            let window = context.config.window_of(layer).map(size).transpose()?;
            let (heads, keys, scale) = (&self.heads, self.keys, scale(context.config));
            operations.softmax_causal(stream, &mut *scores, self.start, heads, (keys, window), scale)?;
        }
        let _op = stage_mark!(marks, Ops, "weighted");
        blas.multiply_batch([scores.all(), values.all()], queries.all_mut(), &naive.weighted())?;
        Ok(operations.merge_heads(stream, &*queries, attended, &self.heads)?)
    }
}

/// The products of naive attention. The queries of a group are contiguous, so keys are read once for all.
#[derive(Debug, Clone, Copy)]
pub struct Naive {
    count: u32,
    rows: u32,
    keys: u32,
    head_dim: u32,
    /// The stride between the keys of two heads.
    apart: u64,
}

impl Naive {
    pub fn new(heads: &HeadSizes, keys: u32) -> Self {
        let HeadSizes { batch, tokens, kv_heads, head_dim, capacity, .. } = *heads;
        let (count, rows) = (batch * kv_heads, heads.group() * tokens);
        Self { count, rows, keys, head_dim, apart: u64::from(capacity) * u64::from(head_dim) }
    }

    fn batch(&self, [m, n, k]: [u32; 3], a: Matrices, b: Matrices) -> Batch {
        Batch { count: self.count, m, n, k, a, b, c: Matrices::plain(m, n), scale: 1.0, is_added: false }
    }

    pub fn scores(&self) -> Batch {
        let Self { rows, keys, head_dim, apart, .. } = *self;
        let b = Matrices::transposed(head_dim, keys).every(apart);
        self.batch([rows, keys, head_dim], Matrices::plain(rows, head_dim), b)
    }

    pub fn weighted(&self) -> Batch {
        let Self { rows, keys, head_dim, apart, .. } = *self;
        self.batch([rows, head_dim, keys], Matrices::plain(rows, keys), Matrices::plain(keys, head_dim).every(apart))
    }

    pub fn gathered(&self) -> Batch {
        let Self { rows, keys, head_dim, .. } = *self;
        self.batch([keys, head_dim, rows], Matrices::transposed(keys, rows), Matrices::plain(rows, head_dim))
    }
}

impl<T: Number> Sequences<'_, T> {
    /// RoPE, the cache write and attention in one kernel.
    fn attend(
        &mut self,
        context: &Context<'_, T>,
        step: &Step<T>,
        layer: usize,
        weights: &LayerWeights<T>,
        buffers: &mut Buffers<T>,
    ) -> Done {
        let _op = stage_mark!(context.marks, Ops, "fused");
        let Context { stream, config, .. } = *context;
        let rope = context.rope.of_layer(config, layer);
        let attention = decode::Attention {
            query_norm: weights.query_norm.as_ref(),
            key_norm: weights.key_norm.as_ref(),
            epsilon: config.norm_eps as f32,
            rotation: rope.rotation(),
            is_windowed: config.window_of(layer).is_some(),
        };
        let Parts { qkv, attended, .. } = &mut buffers.parts;
        match self {
            Self::Together(state, cache) => {
                let [keys, values] = &mut cache.layers[layer];
                Ok(step.attention(stream, qkv, &attention, StepRows::All(state), [keys, values], attended)?)
            }
            Self::Separate(rows) => {
                for (row, SequenceRow { position, cache }) in (0..).zip(rows.iter_mut()) {
                    let has_capacity = cache.capacity == step.sizes().capacity as usize;
                    ensure!(has_capacity, "a cache has another capacity than the step was compiled for");
                    let [keys, values] = &mut cache.layers[layer];
                    step.attention(stream, qkv, &attention, StepRows::One(row, position), [keys, values], attended)?;
                }
                Ok(())
            }
        }
    }
}
