//! The forward operations of training: each layer keeps what backward needs.

use laptime_cuda::{Batch, Buffer, CudaError, Matrices, Sizes, nn::HeadSizes};

use super::{GpuTraining, Heads};
use crate::{
    Attention, Marks,
    decoder::layers::{Block, Ops},
    gpu::{
        pass::packed,
        room::qkv_width,
        size,
        weights::{LayerWeights, Number},
    },
    marks::stage_mark,
    train::{buffers::KeptLayer, ops::NormAt},
};

impl<T: Number> GpuTraining<'_, T> {
    /// All rows, and this many numbers each.
    pub(super) fn shape(&self, width: usize) -> Result<[u32; 2], CudaError> {
        Ok([size(self.rows)?, size(width)?])
    }

    /// The product of all rows of `width` numbers with weights of `out` rows.
    fn product(&self, out: usize, width: usize) -> Result<Sizes, CudaError> {
        Ok(Sizes { m: size(self.rows)?, n: size(out)?, k: size(width)?, b_is_transposed: true })
    }

    pub(super) fn scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }

    pub(super) fn epsilon(&self) -> f32 {
        self.config.norm_eps as f32
    }

    /// Norms the hidden states.
    fn norm_at(&mut self, at: NormAt, weight: &Buffer<T>) -> Result<(), CudaError> {
        let (shape, epsilon) = (self.shape(self.config.hidden)?, self.epsilon());
        let (hidden, normed) = (self.kept.norm_input(at), &mut self.scratch.normed);
        self.operations.rms_norm(self.device.stream(), hidden, weight, normed, shape, epsilon)
    }

    /// The weights of naive attention, from queries and keys by head.
    pub(super) fn naive_weights(&mut self, marks: &Marks) -> Result<(), CudaError> {
        let (naive, scale) = (Naive::new(&self.sizes), self.scale());
        let (Heads { queries, keys, .. }, probabilities) = (&self.heads, &mut self.scratch.probabilities);
        {
            let _op = stage_mark!(marks, Ops, "scores");
            self.blas.multiply_batch([queries.all(), keys.all()], probabilities.all_mut(), &naive.scores())?;
        }
        let _op = stage_mark!(marks, Ops, "softmax");
        let (stream, sizes) = (self.device.stream(), &self.sizes);
        self.operations.softmax_causal(stream, probabilities, &self.start, sizes, sizes.tokens, scale)
    }

    fn attend_naive(&mut self, layer: usize) -> Result<(), CudaError> {
        self.naive_weights(&self.options.marks.clone())?;
        let _op = stage_mark!(self.options.marks, Ops, "weighted");
        let (weighted, probabilities) = (Naive::new(&self.sizes).weighted(), &self.scratch.probabilities);
        let by_head = &mut self.by_head;
        self.blas.multiply_batch([probabilities.all(), self.heads.values.all()], by_head.all_mut(), &weighted)?;
        let attended = &mut self.kept.layers[layer].attended;
        self.operations.merge_heads(self.device.stream(), &*by_head, attended, &self.sizes)
    }

    fn attend_fused(&mut self, layer: usize) -> Result<(), CudaError> {
        let _op = stage_mark!(self.options.marks, Ops, "fused");
        let (stream, scale) = (self.device.stream(), self.scale());
        let Heads { queries, keys, values } = &self.heads;
        let inputs = [queries.all(), keys.all(), values.all()];
        let KeptLayer { attended, row_sums, .. } = &mut self.kept.layers[layer];
        self.attention.attend_for_gradients(stream, inputs, &self.start, attended, row_sums, &self.sizes, scale)
    }
}

impl<T: Number> Ops for GpuTraining<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Error = CudaError;

    fn marks(&self) -> &Marks {
        &self.options.marks
    }

    fn norm(&mut self, layer: usize, weights: &LayerWeights<T>, block: Block) -> Result<(), CudaError> {
        self.norm_at(NormAt::Layer(layer, block), weights.norm(block))
    }

    fn qkv(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let sizes = self.product(qkv_width(&self.config), self.config.hidden)?;
        let qkv = &mut self.kept.layers[layer].qkv;
        self.blas.multiply_slices([self.scratch.normed.all(), weights.qkv.all()], qkv.all_mut(), sizes)
    }

    fn rope(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let packed = packed(&self.config, &self.turns, &self.start, weights, &self.kept.layers[layer].qkv);
        let Heads { queries, keys, values } = &mut self.heads;
        self.operations.split_heads(self.device.stream(), &packed, queries, keys, values, &self.sizes)
    }

    fn attend(&mut self, layer: usize, _: &LayerWeights<T>) -> Result<(), CudaError> {
        match self.options.attention {
            Attention::Naive => self.attend_naive(layer),
            Attention::Dense => self.attend_fused(layer),
        }
    }

    fn output(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let sizes = self.product(self.config.hidden, self.config.heads * self.config.head_dim)?;
        let KeptLayer { input, attended, middle, .. } = &mut self.kept.layers[layer];
        middle.all_mut().copy_from(self.device.stream(), input.all())?;
        self.blas.multiply_add([attended.all(), weights.output.all()], middle.all_mut(), sizes)
    }

    fn gate_up(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let sizes = self.product(2 * self.config.ffn, self.config.hidden)?;
        let gate_up = &mut self.kept.layers[layer].gate_up;
        self.blas.multiply_slices([self.scratch.normed.all(), weights.gate_up.all()], gate_up.all_mut(), sizes)
    }

    fn swiglu(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let shape = self.shape(self.config.ffn)?;
        let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
        let (gate_up, activated) = (&self.kept.layers[layer].gate_up, &mut self.scratch.activated);
        self.operations.swiglu(self.device.stream(), gate_up, bias, activated, shape)
    }

    fn down(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let (stream, shape) = (self.device.stream(), self.shape(self.config.hidden)?);
        let sizes = self.product(self.config.hidden, self.config.ffn)?;
        let (middle, hidden) = self.kept.middle_and_next(layer);
        hidden.all_mut().copy_from(stream, middle.all())?;
        self.blas.multiply_add([self.scratch.activated.all(), weights.down.all()], hidden.all_mut(), sizes)?;
        match &weights.down_bias {
            Some(bias) => self.operations.add_bias(stream, hidden, bias, shape),
            None => Ok(()),
        }
    }

    fn final_norm(&mut self, weight: &Buffer<T>) -> Result<(), CudaError> {
        self.norm_at(NormAt::Final, weight)
    }

    fn head(&mut self, _: &Buffer<T>, head: &Buffer<T>) -> Result<(), CudaError> {
        let sizes = self.product(self.config.vocab, self.config.hidden)?;
        self.blas.multiply_slices([self.scratch.normed.all(), head.all()], self.kept.logits.all_mut(), sizes)
    }
}

/// The products of naive attention: the queries of a group lie one behind the other, so that keys are read once for all.
#[derive(Debug, Clone, Copy)]
pub(super) struct Naive {
    count: u32,
    rows: u32,
    keys: u32,
    head_dim: u32,
}

impl Naive {
    pub fn new(heads: &HeadSizes) -> Self {
        let (count, rows) = (heads.batch * heads.kv_heads, heads.group() * heads.tokens);
        Self { count, rows, keys: heads.tokens, head_dim: heads.head_dim }
    }

    fn batch(&self, [m, n, k]: [u32; 3], a: Matrices, b: Matrices) -> Batch {
        Batch { count: self.count, m, n, k, a, b, c: Matrices::plain(m, n), scale: 1.0, is_added: false }
    }

    /// Queries by keys.
    pub fn scores(&self) -> Batch {
        let Self { rows, keys, head_dim, .. } = *self;
        self.batch([rows, keys, head_dim], Matrices::plain(rows, head_dim), Matrices::transposed(head_dim, keys))
    }

    /// Weights by values, and by keys.
    pub fn weighted(&self) -> Batch {
        let Self { rows, keys, head_dim, .. } = *self;
        self.batch([rows, head_dim, keys], Matrices::plain(rows, keys), Matrices::plain(keys, head_dim))
    }

    /// The transposed weights by what is of queries.
    pub fn gathered(&self) -> Batch {
        let Self { rows, keys, head_dim, .. } = *self;
        self.batch([keys, head_dim, rows], Matrices::transposed(keys, rows), Matrices::plain(rows, head_dim))
    }
}
