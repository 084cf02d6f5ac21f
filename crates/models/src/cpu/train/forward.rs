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
use crate::{Attention, Config, Marks, TrainOptions, marks::stage_mark, rope::RopeTable};

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
    pub fn forward(&self, ids: &[u32], targets: &[u32], buffers: &mut Buffers<T>) {
        let Buffers { kept: Kept { layers, last, logits, losses }, scratch, ledger } = buffers;
        ledger.forward_begins();
        {
            let _stage = stage_mark!(self.marks(), Layer, "embed");
            let stream = layers.first_mut().map_or(&mut *last, |layer| &mut layer.input);
            embed(self.crew, ids, &self.model.embedding, self.config.hidden, stream);
        }
        let mut rest = layers.as_mut_slice();
        for (at, layer) in self.model.layers.iter().enumerate() {
            let Some((kept, others)) = rest.split_first_mut() else { break };
            let _stage = stage_mark!(self.marks(), Layer, "layer", layer = at);
            let out = others.first_mut().map_or(&mut *last, |layer| &mut layer.input);
            self.attention(layer, kept, scratch);
            self.ffn(layer, kept, out, scratch);
            ledger.layer_forward();
            rest = others;
        }
        {
            let _stage = stage_mark!(self.marks(), Layer, "head");
            self.norm_rows(&self.model.norm, last, &mut scratch.normed);
            self.project(&scratch.normed, self.model.head(), logits, Put::OVER);
        }
        {
            let _stage = stage_mark!(self.marks(), Layer, "loss");
            cross_entropy(self.crew, targets, logits, losses);
        }
        ledger.forward_ends();
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

    pub fn norm_rows(&self, weight: &[f32], from: &[T], out: &mut [T]) {
        let _stage = stage_mark!(self.marks(), Ops, "norm");
        self.norm(weight).rows(self.crew, 1, from, out);
    }

    /// Multiplies every row with weights.
    fn project(&self, x: &[T], weights: &[T], out: &mut [T], put: Put) {
        let rows = self.rows();
        let width = x.len() / rows;
        let weights = Rows::dense(weights, weights.len() / width, width);
        project(self.crew, Rows::dense(x, rows, width), weights, out, put);
    }

    fn attention(&self, layer: &Layer<T>, kept: &mut LayerKept<T>, scratch: &mut Scratch<T>) {
        let marks = self.marks();
        let _stage = stage_mark!(marks, Layer, "attention");
        self.norm_rows(&layer.attention_norm, &kept.input, &mut scratch.normed);
        {
            let _stage = stage_mark!(marks, Ops, "qkv");
            self.project(&scratch.normed, &layer.qkv, &mut kept.qkv, Put::OVER);
            if let Some(bias) = &layer.qkv_bias {
                add_bias(self.crew, bias, &mut kept.qkv);
            }
        }
        {
            let _stage = stage_mark!(marks, Ops, "rope");
            self.enter_positions(layer, &kept.qkv, &mut scratch.heads);
        }
        self.attend(kept, scratch);
        let _stage = stage_mark!(marks, Ops, "output");
        kept.middle.copy_from_slice(&kept.input);
        self.project(&kept.attended, &layer.output, &mut kept.middle, Put::ONTO);
    }

    /// Norms and turns what was projected.
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

    fn ffn(&self, layer: &Layer<T>, kept: &mut LayerKept<T>, out: &mut [T], scratch: &mut Scratch<T>) {
        let marks = self.marks();
        let _stage = stage_mark!(marks, Layer, "ffn");
        self.norm_rows(&layer.ffn_norm, &kept.middle, &mut scratch.normed);
        {
            let _stage = stage_mark!(marks, Ops, "gate_up");
            self.project(&scratch.normed, &layer.gate_up, &mut kept.gate_up, Put::OVER);
            if let Some(bias) = &layer.gate_up_bias {
                add_bias(self.crew, bias, &mut kept.gate_up);
            }
        }
        {
            let _stage = stage_mark!(marks, Ops, "swiglu");
            swiglu(self.crew, self.config.ffn, &kept.gate_up, &mut scratch.activated);
        }
        let _stage = stage_mark!(marks, Ops, "down");
        out.copy_from_slice(&kept.middle);
        self.project(&scratch.activated, &layer.down, out, Put::ONTO);
        if let Some(bias) = &layer.down_bias {
            add_bias(self.crew, bias, out);
        }
    }
}
