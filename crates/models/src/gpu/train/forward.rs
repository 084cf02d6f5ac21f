//! Forward, with what backward needs kept.

use laptime_cuda::{Batch, Buffer, CudaError, Matrices, Sizes};

use super::{
    GpuTrainer,
    buffers::{KeptLayer, Scratch},
};
use crate::{
    Attention, Marks,
    gpu::{pass::packed, room::qkv_width, size, weights::Number},
    marks::stage_mark,
};

impl<T: Number> GpuTrainer<'_, T> {
    /// From the ids to the loss.
    pub(super) fn run_forward(&mut self) -> Result<(), CudaError> {
        let marks = self.options.marks.clone();
        {
            let _stage = stage_mark!(marks, Layer, "embed");
            let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
            let first = self.kept.layers.first_mut().map_or(&mut self.kept.x, |layer| &mut layer.x);
            let table = &self.weights.parameters.embedding;
            self.weights.operations.embed(self.device.stream(), &self.ids, table, first, shape)?;
        }
        for index in 0..self.config.layers {
            let _layer = stage_mark!(marks, Layer, "layer", layer = index);
            self.forward_layer(index)?;
            self.ledger.layer_forward();
        }
        {
            let _stage = stage_mark!(marks, Layer, "head");
            self.forward_head()?;
        }
        let _stage = stage_mark!(marks, Layer, "loss");
        self.forward_loss()
    }

    fn forward_layer(&mut self, index: usize) -> Result<(), CudaError> {
        let marks = self.options.marks.clone();
        {
            let _part = stage_mark!(marks, Layer, "attention");
            self.forward_attention(index)?;
        }
        let _part = stage_mark!(marks, Layer, "ffn");
        self.forward_ffn(index)
    }

    fn forward_attention(&mut self, index: usize) -> Result<(), CudaError> {
        let marks = self.options.marks.clone();
        let (hidden, stream) = (self.config.hidden, self.device.stream());
        let shape = self.rows_by(hidden)?;
        let epsilon = self.config.norm_eps as f32;
        let sizes = self.product(qkv_width(&self.config), hidden)?;
        let weights = &self.weights.parameters.layers[index];
        let kept = &mut self.kept.layers[index];
        {
            let _op = stage_mark!(marks, Ops, "norm");
            let norm = &weights.attention_norm;
            self.weights.operations.rms_norm(stream, &kept.x, norm, &mut self.scratch.normed, shape, epsilon)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "qkv");
            self.blas.multiply_slices([self.scratch.normed.all(), weights.qkv.all()], kept.qkv.all_mut(), sizes)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "rope");
            let packed = packed(&self.config, &self.turns, &self.start, weights, &kept.qkv);
            let Scratch { queries, keys, values, .. } = &mut self.scratch;
            self.weights.operations.split_heads(stream, &packed, queries, keys, values, &self.heads)?;
        }
        match self.options.attention {
            Attention::Naive => self.forward_naive(index)?,
            Attention::Dense => self.forward_fused(index)?,
        }
        let _op = stage_mark!(marks, Ops, "output");
        let sizes = self.product(hidden, self.config.heads * self.config.head_dim)?;
        let weights = &self.weights.parameters.layers[index];
        let KeptLayer { x, attended, middle, .. } = &mut self.kept.layers[index];
        middle.all_mut().copy_from(stream, x.all())?;
        self.blas.multiply_add([attended.all(), weights.output.all()], middle.all_mut(), sizes)
    }

    fn forward_naive(&mut self, index: usize) -> Result<(), CudaError> {
        let (marks, stream, naive) = (self.options.marks.clone(), self.device.stream(), self.naive());
        self.naive_weights(&marks)?;
        let _op = stage_mark!(marks, Ops, "weighted");
        let Scratch { values, probabilities, by_head, .. } = &mut self.scratch;
        self.blas.multiply_batch([probabilities.all(), values.all()], by_head.all_mut(), &naive.weighted())?;
        let attended = &mut self.kept.layers[index].attended;
        self.weights.operations.merge_heads(stream, &*by_head, attended, &self.heads)
    }

    /// The weights of naive attention, from queries and keys by head.
    pub(super) fn naive_weights(&mut self, marks: &Marks) -> Result<(), CudaError> {
        let naive = self.naive();
        let Scratch { queries, keys, probabilities, .. } = &mut self.scratch;
        {
            let _op = stage_mark!(marks, Ops, "scores");
            self.blas.multiply_batch([queries.all(), keys.all()], probabilities.all_mut(), &naive.scores())?;
        }
        let _op = stage_mark!(marks, Ops, "softmax");
        let (operations, tokens) = (&self.weights.operations, self.heads.tokens);
        let scale = 1.0 / (self.config.head_dim as f32).sqrt();
        operations.softmax_causal(self.device.stream(), probabilities, &self.start, &self.heads, tokens, scale)
    }

    fn forward_fused(&mut self, index: usize) -> Result<(), CudaError> {
        let _op = stage_mark!(self.options.marks, Ops, "fused");
        let kept = &mut self.kept.layers[index];
        let Scratch { queries, keys, values, .. } = &self.scratch;
        let inputs = [queries.all(), keys.all(), values.all()];
        let scale = 1.0 / (self.config.head_dim as f32).sqrt();
        let (stream, attention) = (self.device.stream(), &self.attention);
        let (attended, logarithms) = (&mut kept.attended, &mut kept.logarithms);
        attention.attend_for_gradients(stream, inputs, &self.start, attended, logarithms, &self.heads, scale)
    }

    fn forward_ffn(&mut self, index: usize) -> Result<(), CudaError> {
        let (marks, stream) = (self.options.marks.clone(), self.device.stream());
        let (hidden, ffn, epsilon) = (self.config.hidden, self.config.ffn, self.config.norm_eps as f32);
        let (by_hidden, by_ffn) = (self.rows_by(hidden)?, self.rows_by(ffn)?);
        let (up, down) = (self.product(2 * ffn, hidden)?, self.product(hidden, ffn)?);
        let weights = &self.weights.parameters.layers[index];
        let operations = &self.weights.operations;
        let (before, after) = self.kept.layers.split_at_mut(index + 1);
        let next = after.first_mut().map_or(&mut self.kept.x, |layer| &mut layer.x);
        let KeptLayer { middle, gate_up, .. } = &mut before[index];
        let Scratch { normed, activated, .. } = &mut self.scratch;
        {
            let _op = stage_mark!(marks, Ops, "norm");
            operations.rms_norm(stream, &*middle, &weights.ffn_norm, &mut *normed, by_hidden, epsilon)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "gate_up");
            self.blas.multiply_slices([normed.all(), weights.gate_up.all()], gate_up.all_mut(), up)?;
        }
        {
            let _op = stage_mark!(marks, Ops, "swiglu");
            let bias = weights.gate_up_bias.as_ref().map(Buffer::all);
            operations.swiglu(stream, &*gate_up, bias, &mut *activated, by_ffn)?;
        }
        let _op = stage_mark!(marks, Ops, "down");
        next.all_mut().copy_from(stream, middle.all())?;
        self.blas.multiply_add([activated.all(), weights.down.all()], next.all_mut(), down)?;
        match &weights.down_bias {
            Some(bias) => operations.add_bias(stream, next, bias, by_hidden),
            None => Ok(()),
        }
    }

    fn forward_head(&mut self) -> Result<(), CudaError> {
        let (stream, shape) = (self.device.stream(), self.rows_by(self.config.hidden)?);
        let epsilon = self.config.norm_eps as f32;
        let sizes = self.product(self.config.vocab, self.config.hidden)?;
        let parameters = &self.weights.parameters;
        let normed = &mut self.scratch.normed;
        {
            let _op = stage_mark!(self.options.marks, Ops, "norm");
            self.weights.operations.rms_norm(stream, &self.kept.x, &parameters.norm, &mut *normed, shape, epsilon)?;
        }
        self.blas.multiply_slices([normed.all(), parameters.head().all()], self.kept.logits.all_mut(), sizes)
    }

    fn forward_loss(&mut self) -> Result<(), CudaError> {
        let shape = self.rows_by(self.config.vocab)?;
        let (stream, scale) = (self.device.stream(), 1.0 / shape[0] as f32);
        let Self { kept, targets, operations, .. } = self;
        operations.cross_entropy(stream, &mut kept.logits, &*targets, &mut kept.losses, shape, scale)?;
        operations.mean(stream, &kept.losses, &mut kept.loss)
    }

    /// Rows of all sequences, and so many numbers each.
    pub(super) fn rows_by(&self, width: usize) -> Result<[u32; 2], CudaError> {
        Ok([size(self.sizes.rows)?, size(width)?])
    }

    /// The product of rows of `width` numbers with weights of `out` rows.
    pub(super) fn product(&self, out: usize, width: usize) -> Result<Sizes, CudaError> {
        Ok(Sizes { m: size(self.sizes.rows)?, n: size(out)?, k: size(width)?, b_is_transposed: true })
    }

    pub(super) fn naive(&self) -> Naive {
        let (count, rows) = (self.heads.batch * self.heads.kv_heads, self.heads.group() * self.heads.tokens);
        Naive { count, rows, keys: self.heads.tokens, head_dim: self.heads.head_dim }
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
