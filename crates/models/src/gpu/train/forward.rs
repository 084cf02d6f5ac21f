//! Forward, with what backward needs kept.

use laptime_cuda::{
    Batch, Blas, Buffer, CudaError, Matrices, Sizes, Stream,
    nn::{self, HeadSizes, Operations},
};

use super::{
    GpuTrainer,
    buffers::{Kept, KeptLayer, Scratch},
};
use crate::{
    Attention, Config, Marks, TrainOptions,
    decoder::layers::{Block, Ops, run_head, run_resident},
    gpu::{
        pass::{Turns, packed},
        room::qkv_width,
        size,
        weights::{LayerWeights, Number, Parameters},
    },
    marks::stage_mark,
    train::Ledger,
};

impl<T: Number> GpuTrainer<'_, T> {
    /// From the ids to the loss.
    pub(super) fn run_forward(&mut self) -> Result<(), CudaError> {
        {
            let _stage = stage_mark!(self.options.marks, Layer, "embed");
            let shape = [size(self.config.vocab)?, size(self.config.hidden)?];
            let first = self.kept.layers.first_mut().map_or(&mut self.kept.x, |layer| &mut layer.x);
            let table = &self.weights.parameters.embedding;
            self.weights.operations.embed(self.device.stream(), &self.ids, table, first, shape)?;
        }
        let (mut forward, parameters) = self.forward_ops();
        run_resident(&mut forward, 0, &parameters.layers, |_| Ok(()))?;
        run_head(&mut forward, &parameters.norm, Some(parameters.head()))?;
        let _stage = stage_mark!(self.options.marks, Layer, "loss");
        self.forward_loss()
    }

    /// The forward operations, and the weights that they run on.
    pub(super) fn forward_ops(&mut self) -> (Forward<'_, T>, &Parameters<T>) {
        let forward = Forward {
            stream: self.device.stream(),
            blas: &self.blas,
            operations: &self.weights.operations,
            attention: &self.attention,
            config: &self.config,
            options: &self.options,
            turns: &self.turns,
            start: &self.start,
            heads: &self.heads,
            rows: self.sizes.rows,
            kept: &mut self.kept,
            scratch: &mut self.scratch,
            ledger: &mut self.ledger,
        };
        (forward, &self.weights.parameters)
    }

    fn forward_loss(&mut self) -> Result<(), CudaError> {
        let shape = self.rows_by(self.config.vocab)?;
        let (stream, scale) = (self.device.stream(), 1.0 / shape[0] as f32);
        let Self { kept, targets, operations, .. } = self;
        operations.cross_entropy(stream, &mut kept.logits, &*targets, &mut kept.losses, shape, scale)?;
        operations.mean(stream, &kept.losses, &mut kept.loss)
    }

    /// Rows of all sequences, and this many numbers each.
    pub(super) fn rows_by(&self, width: usize) -> Result<[u32; 2], CudaError> {
        Ok([size(self.sizes.rows)?, size(width)?])
    }

    pub(super) fn naive(&self) -> Naive {
        Naive::new(&self.heads)
    }
}

/// The forward operations of a training pass: each layer keeps what backward needs.
pub(super) struct Forward<'a, T> {
    stream: &'a Stream,
    blas: &'a Blas,
    operations: &'a Operations<T>,
    attention: &'a nn::Attention<T>,
    config: &'a Config,
    options: &'a TrainOptions,
    turns: &'a Turns,
    start: &'a Buffer<u32>,
    heads: &'a HeadSizes,
    rows: usize,
    kept: &'a mut Kept<T>,
    scratch: &'a mut Scratch<T>,
    ledger: &'a mut Ledger,
}

impl<T: Number> Forward<'_, T> {
    fn shape(&self, width: usize) -> Result<[u32; 2], CudaError> {
        Ok([size(self.rows)?, size(width)?])
    }

    /// The product of all rows of `width` numbers with weights of `out` rows.
    fn product(&self, out: usize, width: usize) -> Result<Sizes, CudaError> {
        Ok(Sizes { m: size(self.rows)?, n: size(out)?, k: size(width)?, b_is_transposed: true })
    }

    fn scale(&self) -> f32 {
        1.0 / (self.config.head_dim as f32).sqrt()
    }

    /// The weights of naive attention, from queries and keys by head.
    pub fn naive_weights(&mut self, marks: &Marks) -> Result<(), CudaError> {
        let (naive, scale) = (Naive::new(self.heads), self.scale());
        let Scratch { queries, keys, probabilities, .. } = &mut *self.scratch;
        {
            let _op = stage_mark!(marks, Ops, "scores");
            self.blas.multiply_batch([queries.all(), keys.all()], probabilities.all_mut(), &naive.scores())?;
        }
        let _op = stage_mark!(marks, Ops, "softmax");
        let tokens = self.heads.tokens;
        self.operations.softmax_causal(self.stream, probabilities, self.start, self.heads, tokens, scale)
    }

    fn attend_naive(&mut self, layer: usize) -> Result<(), CudaError> {
        self.naive_weights(&self.options.marks)?;
        let _op = stage_mark!(self.options.marks, Ops, "weighted");
        let Scratch { values, probabilities, by_head, .. } = &mut *self.scratch;
        let weighted = Naive::new(self.heads).weighted();
        self.blas.multiply_batch([probabilities.all(), values.all()], by_head.all_mut(), &weighted)?;
        let attended = &mut self.kept.layers[layer].attended;
        self.operations.merge_heads(self.stream, &*by_head, attended, self.heads)
    }

    fn attend_fused(&mut self, layer: usize) -> Result<(), CudaError> {
        let _op = stage_mark!(self.options.marks, Ops, "fused");
        let scale = self.scale();
        let Scratch { queries, keys, values, .. } = &*self.scratch;
        let inputs = [queries.all(), keys.all(), values.all()];
        let KeptLayer { attended, logarithms, .. } = &mut self.kept.layers[layer];
        let (stream, heads) = (self.stream, self.heads);
        self.attention.attend_for_gradients(stream, inputs, self.start, attended, logarithms, heads, scale)
    }
}

impl<T: Number> Ops for Forward<'_, T> {
    type Matrix = Buffer<T>;
    type Vector = Buffer<T>;
    type Error = CudaError;

    fn marks(&self) -> &Marks {
        &self.options.marks
    }

    fn norm(&mut self, layer: usize, weights: &LayerWeights<T>, block: Block) -> Result<(), CudaError> {
        let (shape, epsilon) = (self.shape(self.config.hidden)?, self.config.norm_eps as f32);
        let KeptLayer { x, middle, .. } = &self.kept.layers[layer];
        let hidden = match block {
            Block::Attention => x,
            Block::Ffn => middle,
        };
        let normed = &mut self.scratch.normed;
        self.operations.rms_norm(self.stream, hidden, weights.norm(block), normed, shape, epsilon)
    }

    fn qkv(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let sizes = self.product(qkv_width(self.config), self.config.hidden)?;
        let qkv = &mut self.kept.layers[layer].qkv;
        self.blas.multiply_slices([self.scratch.normed.all(), weights.qkv.all()], qkv.all_mut(), sizes)
    }

    fn rope(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let packed = packed(self.config, self.turns, self.start, weights, &self.kept.layers[layer].qkv);
        let Scratch { queries, keys, values, .. } = &mut *self.scratch;
        self.operations.split_heads(self.stream, &packed, queries, keys, values, self.heads)
    }

    fn attend(&mut self, layer: usize, _: &LayerWeights<T>) -> Result<(), CudaError> {
        match self.options.attention {
            Attention::Naive => self.attend_naive(layer),
            Attention::Dense => self.attend_fused(layer),
        }
    }

    fn output(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let sizes = self.product(self.config.hidden, self.config.heads * self.config.head_dim)?;
        let KeptLayer { x, attended, middle, .. } = &mut self.kept.layers[layer];
        middle.all_mut().copy_from(self.stream, x.all())?;
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
        self.operations.swiglu(self.stream, gate_up, bias, activated, shape)
    }

    fn down(&mut self, layer: usize, weights: &LayerWeights<T>) -> Result<(), CudaError> {
        let sizes = self.product(self.config.hidden, self.config.ffn)?;
        let shape = self.shape(self.config.hidden)?;
        let (before, after) = self.kept.layers.split_at_mut(layer + 1);
        let hidden = after.first_mut().map_or(&mut self.kept.x, |layer| &mut layer.x);
        hidden.all_mut().copy_from(self.stream, before[layer].middle.all())?;
        self.blas.multiply_add([self.scratch.activated.all(), weights.down.all()], hidden.all_mut(), sizes)?;
        if let Some(bias) = &weights.down_bias {
            self.operations.add_bias(self.stream, hidden, bias, shape)?;
        }
        self.ledger.layer_forward();
        Ok(())
    }

    fn final_norm(&mut self, weight: &Buffer<T>) -> Result<(), CudaError> {
        let (shape, epsilon) = (self.shape(self.config.hidden)?, self.config.norm_eps as f32);
        let normed = &mut self.scratch.normed;
        self.operations.rms_norm(self.stream, &self.kept.x, weight, normed, shape, epsilon)
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
    fn new(heads: &HeadSizes) -> Self {
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
