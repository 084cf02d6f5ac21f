//! Forward, with what backward needs kept.

#![allow(unsafe_code, reason = "threads write rows of their own side by side; the block has its reason")]

use super::{
    super::{
        attention::{Heads, Inputs, Span, Strides, fused_with, naive},
        crew::Crew,
        model::{Layer, Model},
        number::Number,
        product::{Put, project},
        rows::{Rows, Shared},
        steps::{Norm, Positions, add_bias, embed},
    },
    buffers::{Buffers, Kept, LayerKept, Scratch},
    steps::{cross_entropy, swiglu},
};
use crate::{
    Attention, Config, Marks, ModelError, TrainOptions,
    decoder::layers::{Block, Ops, run_head, run_resident},
    marks::stage_mark,
    rope::RopeTable,
};

/// A pass over a batch, forward or backward.
pub struct Pass<'a, T> {
    pub config: &'a Config,
    pub options: &'a TrainOptions,
    pub crew: &'a Crew,
    pub model: &'a Model<T>,
    pub table: &'a RopeTable,
    pub span: Span,
}

impl<T: Number> Pass<'_, T> {
    /// Runs tokens and leaves losses and the gradients of logits.
    pub fn forward(&self, ids: &[u32], targets: &[u32], buffers: &mut Buffers<T>) -> Result<(), ModelError> {
        buffers.ledger.forward_begins();
        {
            let _stage = stage_mark!(self.marks(), Layer, "embed");
            let Kept { layers, last, .. } = &mut buffers.kept;
            let hidden = layers.first_mut().map_or(last, |layer| &mut layer.input);
            embed(self.crew, ids, &self.model.embedding, self.config.hidden, hidden);
        }
        let mut forward = Forward { pass: self, buffers };
        run_resident(&mut forward, 0, &self.model.layers, |_| Ok(()))?;
        run_head(&mut forward, &self.model.norm, Some(self.model.head()))?;
        {
            let _stage = stage_mark!(self.marks(), Layer, "loss");
            let Kept { logits, losses, .. } = &mut buffers.kept;
            cross_entropy(self.crew, targets, logits, losses);
        }
        buffers.ledger.forward_ends();
        Ok(())
    }

    pub fn marks(&self) -> &Marks {
        &self.options.marks
    }

    pub fn rows(&self) -> usize {
        self.span.batch * self.span.queries
    }

    pub fn norm<'n>(&self, weight: &'n [f32]) -> Norm<'n> {
        Norm { weight, eps: self.config.norm_eps as f32 }
    }

    /// Multiplies every row with weights.
    fn project(&self, x: &[T], weights: &[T], out: &mut [T], put: Put) {
        let rows = self.rows();
        let width = x.len() / rows;
        let weights = Rows::dense(weights, weights.len() / width, width);
        project(self.crew, Rows::dense(x, rows, width), weights, out, put);
    }

    fn add_bias(&self, bias: Option<&[f32]>, rows: &mut [T]) {
        if let Some(bias) = bias {
            add_bias(self.crew, bias, rows);
        }
    }

    /// Norms the projected heads and applies RoPE.
    pub fn enter_positions(&self, layer: &Layer<T>, projected: &[T], heads: &mut [T]) {
        heads.copy_from_slice(projected);
        let positions = Positions {
            config: self.config,
            table: self.table,
            bias: None,
            query_norm: layer.query_norm.as_deref().map(|weight| self.norm(weight)),
            key_norm: layer.key_norm.as_deref().map(|weight| self.norm(weight)),
            tokens: self.span.queries,
            start: 0,
        };
        positions.enter(self.crew, heads);
    }

    /// Where heads lie in rows of queries, keys and values.
    pub fn heads_strides(&self) -> Strides {
        let Span { heads, kv_heads, head_dim, queries, .. } = self.span;
        let row = (heads + 2 * kv_heads) * head_dim;
        Strides { batch: queries * row, head: head_dim, row }
    }

    /// Where heads lie in what attention gives.
    pub fn attended_strides(&self) -> Strides {
        let Span { heads, head_dim, queries, .. } = self.span;
        Strides { batch: queries * heads * head_dim, head: head_dim, row: heads * head_dim }
    }

    /// Queries, keys and values, which lie in rows side by side.
    pub fn inputs<'n>(&self, heads: &'n [T]) -> Inputs<'n, T> {
        let Span { heads: query_heads, kv_heads, head_dim, .. } = self.span;
        let from = |head: usize| Heads { numbers: &heads[head * head_dim..], strides: self.heads_strides() };
        Inputs { queries: from(0), keys: from(query_heads), values: from(query_heads + kv_heads) }
    }

    fn attend(&self, kept: &mut LayerKept<T>, scratch: &mut Scratch<T>) {
        let inputs = self.inputs(&scratch.heads);
        let out = (kept.attended.as_mut_slice(), self.attended_strides());
        match self.options.attention {
            Attention::Naive => naive(self.crew, self.marks(), &self.span, &inputs, &mut scratch.weights, out),
            Attention::Dense => {
                let _stage = stage_mark!(self.marks(), Ops, "fused");
                let row_sums = Shared::new(&mut kept.row_sums);
                fused_with(self.crew, &self.span, &inputs, out, |first, tops| {
                    // SAFETY: blocks have no row in common, and each is told of once.
                    let mut row_sums = unsafe { row_sums.rows(first, 1, tops.len(), tops.len()) };
                    let row_sums = row_sums.row(0).iter_mut().zip(tops);
                    row_sums.for_each(|(row_sum, (top, sum))| *row_sum = top + sum.ln());
                });
            }
        }
    }
}

/// The forward operations of a training pass: each layer keeps what backward needs.
struct Forward<'a, T> {
    pass: &'a Pass<'a, T>,
    buffers: &'a mut Buffers<T>,
}

impl<T: Number> Ops for Forward<'_, T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;
    type Error = ModelError;

    fn marks(&self) -> &Marks {
        self.pass.marks()
    }

    fn norm(&mut self, layer: usize, weights: &Layer<T>, block: Block) -> Result<(), ModelError> {
        let Buffers { kept, scratch, .. } = &mut *self.buffers;
        let hidden = match block {
            Block::Attention => &kept.layers[layer].input,
            Block::Ffn => &kept.layers[layer].middle,
        };
        self.pass.norm(weights.norm(block)).rows(self.pass.crew, 1, hidden, &mut scratch.normed);
        Ok(())
    }

    fn qkv(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let qkv = &mut self.buffers.kept.layers[layer].qkv;
        self.pass.project(&self.buffers.scratch.normed, &weights.qkv, qkv, Put::OVER);
        self.pass.add_bias(weights.qkv_bias.as_deref(), qkv);
        Ok(())
    }

    fn rope(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let Buffers { kept, scratch, .. } = &mut *self.buffers;
        self.pass.enter_positions(weights, &kept.layers[layer].qkv, &mut scratch.heads);
        Ok(())
    }

    fn attend(&mut self, layer: usize, _: &Layer<T>) -> Result<(), ModelError> {
        let Buffers { kept, scratch, .. } = &mut *self.buffers;
        self.pass.attend(&mut kept.layers[layer], scratch);
        Ok(())
    }

    fn output(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let LayerKept { input, attended, middle, .. } = &mut self.buffers.kept.layers[layer];
        middle.copy_from_slice(input);
        self.pass.project(attended, &weights.output, middle, Put::ONTO);
        Ok(())
    }

    fn gate_up(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let gate_up = &mut self.buffers.kept.layers[layer].gate_up;
        self.pass.project(&self.buffers.scratch.normed, &weights.gate_up, gate_up, Put::OVER);
        self.pass.add_bias(weights.gate_up_bias.as_deref(), gate_up);
        Ok(())
    }

    fn swiglu(&mut self, layer: usize, _: &Layer<T>) -> Result<(), ModelError> {
        let Buffers { kept, scratch, .. } = &mut *self.buffers;
        swiglu(self.pass.crew, self.pass.config.ffn, &kept.layers[layer].gate_up, &mut scratch.activated);
        Ok(())
    }

    fn down(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let Buffers { kept, scratch, ledger } = &mut *self.buffers;
        let (before, after) = kept.layers.split_at_mut(layer + 1);
        let hidden = after.first_mut().map_or(&mut kept.last, |layer| &mut layer.input);
        hidden.copy_from_slice(&before[layer].middle);
        self.pass.project(&scratch.activated, &weights.down, hidden, Put::ONTO);
        self.pass.add_bias(weights.down_bias.as_deref(), hidden);
        ledger.layer_forward();
        Ok(())
    }

    fn final_norm(&mut self, weight: &Vec<f32>) -> Result<(), ModelError> {
        let Buffers { kept, scratch, .. } = &mut *self.buffers;
        self.pass.norm(weight).rows(self.pass.crew, 1, &kept.last, &mut scratch.normed);
        Ok(())
    }

    fn head(&mut self, _: &Vec<f32>, head: &Vec<T>) -> Result<(), ModelError> {
        let Buffers { kept, scratch, .. } = &mut *self.buffers;
        self.pass.project(&scratch.normed, head, &mut kept.logits, Put::OVER);
        Ok(())
    }
}
