//! The forward operations of training. Each layer keeps the activations for backward.

#![allow(unsafe_code, reason = "threads write disjoint rows; the block has its reason")]

use super::super::attention::{self, Inputs, Span, Strides};
use super::super::product::{Put, project};
use super::super::rows::{Rows, Shared};
use super::super::steps::{Norm, Positions, add_bias};
use super::super::{crew::Crew, model::Layer, number::Number};
use super::{CpuTraining, steps::swiglu};
use crate::decoder::layers::{LinearAt, LinearOf, NormAt, Ops};
use crate::train::buffers::{Kept, KeptLayer, Scratch};
use crate::{Attention, Config, Done, Marks, TrainOptions, marks::stage_mark, rope::RopeTable};

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

    pub fn all<'n, T>(&self, numbers: &'n [T]) -> Rows<'n, T> {
        Rows::dense(numbers, self.rows(), numbers.len() / self.rows())
    }

    pub fn positions<'n, T>(&'n self, weights: &'n Layer<T>) -> Positions<'n> {
        Positions {
            config: &self.config,
            table: &self.table,
            bias: None,
            query_norm: weights.query_norm.as_deref().map(|weight| self.norm(weight)),
            key_norm: weights.key_norm.as_deref().map(|weight| self.norm(weight)),
            tokens: self.span.queries,
            start: 0,
        }
    }

    pub fn strides(&self, heads: usize) -> Strides {
        Strides::by_token(self.span.queries, heads, self.span.head_dim)
    }
}

impl<T: Number> Ops for CpuTraining<T> {
    type Matrix = Vec<T>;
    type Vector = Vec<f32>;

    fn marks(&self) -> &Marks {
        &self.setup.options.marks
    }

    fn norm(&mut self, at: NormAt, weight: &Vec<f32>) -> Done {
        let (setup, hidden) = (&self.setup, self.kept.norm_input(at));
        setup.norm(weight).rows(&setup.crew, 1, hidden, &mut self.scratch.normed);
        Ok(())
    }

    fn linear(&mut self, at: LinearAt, linear: LinearOf<'_, Self>) -> Done {
        let (Scratch { normed, activated, .. }, Kept { layers, logits, .. }) = (&self.scratch, &mut self.kept);
        let (x, out, put) = match at {
            LinearAt::Qkv(layer) => (normed, &mut layers[layer].qkv, Put::OVER),
            LinearAt::GateUp(layer) => (normed, &mut layers[layer].gate_up, Put::OVER),
            LinearAt::Head => (normed, logits, Put::OVER),
            LinearAt::Output(layer) => {
                let KeptLayer { input, attended, middle, .. } = &mut layers[layer];
                middle.copy_from_slice(input);
                (&*attended, middle, Put::ONTO)
            }
            LinearAt::Down(layer) => {
                let (middle, hidden) = self.kept.middle_and_next(layer);
                hidden.copy_from_slice(middle);
                (activated, hidden, Put::ONTO)
            }
        };
        let (crew, [outputs, width]) = (&self.setup.crew, at.shape(&self.setup.config));
        project(crew, self.setup.all(x), Rows::dense(linear.weight, outputs, width), out, put);
        if let Some(bias) = linear.bias {
            add_bias(crew, bias, out);
        }
        Ok(())
    }

    fn rope(&mut self, layer: usize, weights: &Layer<T>) -> Done {
        self.heads.copy_from_slice(&self.kept.layers[layer].qkv);
        self.setup.positions(weights).enter(&self.setup.crew, &mut self.heads);
        Ok(())
    }

    fn attend(&mut self, layer: usize, _: &Layer<T>) -> Done {
        let (Setup { options, crew, span, .. }, inputs) = (&self.setup, Inputs::packed(&self.setup.span, &self.heads));
        let Kept { layers, row_sums, .. } = &mut self.kept;
        let out = (layers[layer].attended.as_mut_slice(), self.setup.strides(span.heads));
        let attention = attention::Attention { crew, marks: &options.marks, span: *span, inputs };
        match options.attention {
            Attention::Naive => attention.naive(&mut self.scratch.probabilities, out),
            Attention::Dense => {
                let _stage = stage_mark!(options.marks, Ops, "fused");
                let row_sums = Shared::new(&mut row_sums[layer]);
                attention.fused_with(None, out, |first, tops| {
                    // SAFETY: blocks share no row, and each is reported once.
                    let mut row_sums = unsafe { row_sums.rows(first, 1, tops.len(), tops.len()) };
                    let row_sums = row_sums.row(0).iter_mut().zip(tops);
                    row_sums.for_each(|(row_sum, (top, sum))| *row_sum = top + sum.ln());
                });
            }
        }
        Ok(())
    }

    fn swiglu(&mut self, layer: usize, _: &Layer<T>) -> Done {
        let (gate_up, activated) = (&self.kept.layers[layer].gate_up, &mut self.scratch.activated);
        swiglu(&self.setup.crew, self.setup.config.ffn, gate_up, activated);
        Ok(())
    }
}
