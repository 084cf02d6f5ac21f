//! The forward operations of training: each layer keeps what backward needs.

#![allow(unsafe_code, reason = "threads write rows of their own side by side; the block has its reason")]

use super::{
    super::{
        attention::{Heads, Inputs, Span, Strides, fused_with, naive},
        crew::Crew,
        model::Layer,
        number::Number,
        product::{Put, project},
        rows::{Rows, Shared},
        steps::{Norm, Positions, add_bias},
    },
    CpuTraining,
    steps::swiglu,
};
use crate::{
    Attention, Config, Marks, ModelError, TrainOptions,
    decoder::layers::{Block, Ops},
    marks::stage_mark,
    rope::RopeTable,
    train::{buffers::KeptLayer, ops::NormAt},
};

/// What operations only read.
pub struct Setup {
    pub config: Config,
    pub options: TrainOptions,
    pub crew: Crew,
    pub table: RopeTable,
    pub span: Span,
}

impl Setup {
    pub fn rows(&self) -> usize {
        self.span.batch * self.span.queries
    }

    pub fn norm<'n>(&self, weight: &'n [f32]) -> Norm<'n> {
        Norm { weight, eps: self.config.norm_eps as f32 }
    }

    /// Multiplies every row with weights.
    fn project<T: Number>(&self, x: &[T], weights: &[T], out: &mut [T], put: Put) {
        let rows = self.rows();
        let width = x.len() / rows;
        let weights = Rows::dense(weights, weights.len() / width, width);
        project(&self.crew, Rows::dense(x, rows, width), weights, out, put);
    }

    fn add_bias<T: Number>(&self, bias: Option<&[f32]>, rows: &mut [T]) {
        if let Some(bias) = bias {
            add_bias(&self.crew, bias, rows);
        }
    }

    /// Norms the projected heads and applies RoPE.
    fn enter_positions<T: Number>(&self, layer: &Layer<T>, projected: &[T], heads: &mut [T]) {
        heads.copy_from_slice(projected);
        let positions = Positions {
            config: &self.config,
            table: &self.table,
            bias: None,
            query_norm: layer.query_norm.as_deref().map(|weight| self.norm(weight)),
            key_norm: layer.key_norm.as_deref().map(|weight| self.norm(weight)),
            tokens: self.span.queries,
            start: 0,
        };
        positions.enter(&self.crew, heads);
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
    pub fn inputs<'n, T>(&self, heads: &'n [T]) -> Inputs<'n, T> {
        let Span { heads: query_heads, kv_heads, head_dim, .. } = self.span;
        let from = |head: usize| Heads { numbers: &heads[head * head_dim..], strides: self.heads_strides() };
        Inputs { queries: from(0), keys: from(query_heads), values: from(query_heads + kv_heads) }
    }
}

impl<T: Number> Ops for CpuTraining<T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;
    type Error = ModelError;

    fn marks(&self) -> &Marks {
        &self.setup.options.marks
    }

    fn norm(&mut self, layer: usize, weights: &Layer<T>, block: Block) -> Result<(), ModelError> {
        let hidden = self.kept.norm_input(NormAt::Layer(layer, block));
        self.setup.norm(weights.norm(block)).rows(&self.setup.crew, 1, hidden, &mut self.scratch.normed);
        Ok(())
    }

    fn qkv(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let qkv = &mut self.kept.layers[layer].qkv;
        self.setup.project(&self.scratch.normed, &weights.qkv, qkv, Put::OVER);
        self.setup.add_bias(weights.qkv_bias.as_deref(), qkv);
        Ok(())
    }

    fn rope(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        self.setup.enter_positions(weights, &self.kept.layers[layer].qkv, &mut self.heads);
        Ok(())
    }

    fn attend(&mut self, layer: usize, _: &Layer<T>) -> Result<(), ModelError> {
        let KeptLayer { attended, row_sums, .. } = &mut self.kept.layers[layer];
        let (Setup { options, crew, span, .. }, inputs) = (&self.setup, self.setup.inputs(&self.heads));
        let out = (attended.as_mut_slice(), self.setup.attended_strides());
        match options.attention {
            Attention::Naive => naive(crew, &options.marks, span, &inputs, &mut self.scratch.probabilities, out),
            Attention::Dense => {
                let _stage = stage_mark!(options.marks, Ops, "fused");
                let row_sums = Shared::new(row_sums);
                fused_with(crew, span, &inputs, out, |first, tops| {
                    // SAFETY: blocks have no row in common, and each is reported once.
                    let mut row_sums = unsafe { row_sums.rows(first, 1, tops.len(), tops.len()) };
                    let row_sums = row_sums.row(0).iter_mut().zip(tops);
                    row_sums.for_each(|(row_sum, (top, sum))| *row_sum = top + sum.ln());
                });
            }
        }
        Ok(())
    }

    fn output(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let KeptLayer { input, attended, middle, .. } = &mut self.kept.layers[layer];
        middle.copy_from_slice(input);
        self.setup.project(attended, &weights.output, middle, Put::ONTO);
        Ok(())
    }

    fn gate_up(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let gate_up = &mut self.kept.layers[layer].gate_up;
        self.setup.project(&self.scratch.normed, &weights.gate_up, gate_up, Put::OVER);
        self.setup.add_bias(weights.gate_up_bias.as_deref(), gate_up);
        Ok(())
    }

    fn swiglu(&mut self, layer: usize, _: &Layer<T>) -> Result<(), ModelError> {
        let (gate_up, activated) = (&self.kept.layers[layer].gate_up, &mut self.scratch.activated);
        swiglu(&self.setup.crew, self.setup.config.ffn, gate_up, activated);
        Ok(())
    }

    fn down(&mut self, layer: usize, weights: &Layer<T>) -> Result<(), ModelError> {
        let (middle, hidden) = self.kept.middle_and_next(layer);
        hidden.copy_from_slice(middle);
        self.setup.project(&self.scratch.activated, &weights.down, hidden, Put::ONTO);
        self.setup.add_bias(weights.down_bias.as_deref(), hidden);
        Ok(())
    }

    fn final_norm(&mut self, weight: &Vec<f32>) -> Result<(), ModelError> {
        self.setup.norm(weight).rows(&self.setup.crew, 1, &self.kept.last, &mut self.scratch.normed);
        Ok(())
    }

    fn head(&mut self, _: &Vec<f32>, head: &Vec<T>) -> Result<(), ModelError> {
        self.setup.project(&self.scratch.normed, head, &mut self.kept.logits, Put::OVER);
        Ok(())
    }
}
