//! Counts the work of the operations of a pass instead of computing them, so predicted work comes from the same definition.

use std::convert::Infallible;

use super::layers::{Block, LayerOf, LinearAt, LinearOf, NormAt, Ops, run_head, run_layer};
use super::weights::{LayerWeights, LoadAlike, Parameters};
use crate::fp8::WeightScales;
use crate::tensors::product;
use crate::train::{Ledger, ops};
use crate::work::{Pass, Stage, StageWork};
use crate::{Config, Done, Dtype, Marks, TensorSpec};

/// Loads nothing: the weights are the descriptions of their tensors, which are also listed.
#[derive(Debug, Default)]
pub struct Specs(pub Vec<TensorSpec>);

impl LoadAlike for Specs {
    type Part = Vec<TensorSpec>;
    type Error = Infallible;

    fn part(&mut self, tensors: &[TensorSpec]) -> Result<Vec<TensorSpec>, Infallible> {
        self.0.extend_from_slice(tensors);
        Ok(tensors.to_vec())
    }
}

/// A sum of work.
#[derive(Debug, Clone, Copy)]
pub struct Counted {
    dtype: Dtype,
    scales: WeightScales,
    pub work: StageWork,
}

impl Counted {
    pub fn new(dtype: Dtype) -> Self {
        Self { dtype, scales: WeightScales::default(), work: StageWork::default() }
    }

    pub fn read<'s>(&mut self, specs: impl IntoIterator<Item = &'s TensorSpec>) {
        specs.into_iter().for_each(|spec| self.read_bytes(spec.bytes(self.dtype, self.scales)));
    }

    pub fn read_numbers(&mut self, sizes: &[usize]) {
        self.read_bytes(product(sizes).saturating_mul(self.dtype.bytes()));
    }

    fn read_bytes(&mut self, bytes: u64) {
        self.work.weight_bytes = self.work.weight_bytes.saturating_add(bytes);
    }

    /// Adds products of this many rows with weights.
    pub fn product<'s>(&mut self, weights: impl IntoIterator<Item = &'s TensorSpec>, rows: u64) {
        for weight in weights {
            self.read([weight]);
            self.compute(product(&weight.shape).saturating_mul(rows).saturating_mul(2));
        }
    }

    pub fn compute(&mut self, flops: u64) {
        self.work.flops = self.work.flops.saturating_add(flops);
    }
}

/// Counts a forward or backward pass by stage.
pub struct PassCount<'a> {
    config: &'a Config,
    pass: Pass,
    marks: Marks,
    stages: [Counted; Stage::ALL.len()],
    /// FLOPs of the scores that backward computes again.
    pub recomputed_flops: u64,
    /// The gradients that backward writes.
    pub gradients: Counted,
}

impl<'a> PassCount<'a> {
    pub fn new(config: &'a Config, pass: Pass, dtype: Dtype) -> Self {
        let none = Counted { scales: config.weight_scales, ..Counted::new(dtype) };
        let marks = Marks::default();
        Self { config, pass, marks, stages: [none; Stage::ALL.len()], recomputed_flops: 0, gradients: none }
    }

    /// The stages of a forward pass. All layers have the same tensors.
    pub fn forward(mut self) -> [StageWork; Stage::ALL.len()] {
        let (config, embedding) = (self.config, self.config.embedding_tensor());
        let head = (self.pass.logits > 0).then(|| vec![config.head_tensor().unwrap_or_else(|| embedding.clone())]);
        let Ok(layer) = LayerWeights::load(&config.layer_tensors(0), &mut Specs::default());
        self.look_up(&embedding);
        // Counting cannot fail.
        let _ = (0..config.layers).try_for_each(|at| run_layer(&mut self, at, &layer));
        let _ = run_head(&mut self, &vec![config.final_norm_tensor()], head.as_ref());
        self.stages.map(|stage| stage.work)
    }

    /// The stages of a backward pass. Also counts the gradients.
    pub fn backward(&mut self) -> [StageWork; Stage::ALL.len()] {
        let load = || Parameters::load(self.config, 0, &mut Specs::default());
        let (Ok(parameters), Ok(mut gradients)) = (load(), load());
        let _ = ops::run_backward(self, &parameters, &mut gradients, &mut Ledger::default());
        self.stages.map(|stage| stage.work)
    }

    fn at(&mut self, stage: Stage) -> &mut Counted {
        &mut self.stages[stage as usize]
    }

    fn rows(&self, at: LinearAt) -> u64 {
        let of_sequence = if at == LinearAt::Head { self.pass.logits } else { self.pass.tokens };
        product(&[self.pass.batch, of_sequence])
    }

    /// Assumes distinct tokens, at most the whole vocabulary.
    fn look_up(&mut self, embedding: &TensorSpec) {
        let rows = self.pass.batch.saturating_mul(self.pass.tokens).min(self.config.vocab);
        self.at(Stage::Embed).read_numbers(&[rows, embedding.shape.get(1).copied().unwrap_or(1)]);
    }

    fn attention_flops(&self, layer: usize) -> u64 {
        let of_pair = product(&[4, self.pass.batch, self.config.heads, self.config.head_dim]);
        of_pair.saturating_mul(self.pass.pairs(self.config.window_of(layer)))
    }
}

fn stage_of(at: LinearAt) -> Stage {
    match at {
        LinearAt::Qkv(_) => Stage::Qkv,
        LinearAt::Output(_) => Stage::OProj,
        LinearAt::GateUp(_) | LinearAt::Down(_) => Stage::Ffn,
        LinearAt::Head => Stage::Head,
    }
}

fn stage_of_norm(at: NormAt) -> Stage {
    match at {
        NormAt::Layer(_, Block::Attention) => Stage::Qkv,
        NormAt::Layer(_, Block::Ffn) => Stage::Ffn,
        NormAt::Final => Stage::Head,
    }
}

impl Ops for PassCount<'_> {
    type Matrix = Vec<TensorSpec>;
    type Vector = Vec<TensorSpec>;

    fn marks(&self) -> &Marks {
        &self.marks
    }

    fn norm(&mut self, at: NormAt, weight: &Vec<TensorSpec>) -> Done {
        self.at(stage_of_norm(at)).read(weight);
        Ok(())
    }

    /// RoPE reads the bias of queries, keys and values, and SwiGLU that of gate and up.
    fn linear(&mut self, at: LinearAt, linear: LinearOf<'_, Self>) -> Done {
        let (rows, stage) = (self.rows(at), self.at(stage_of(at)));
        stage.product(linear.weight, rows);
        let bias = linear.bias.filter(|_| matches!(at, LinearAt::Down(_)));
        stage.read(bias.into_iter().chain(linear.post_norm).flatten());
        Ok(())
    }

    fn rope(&mut self, _: usize, weights: &LayerOf<Self>) -> Done {
        let LayerWeights { qkv_bias, query_norm, key_norm, .. } = weights;
        self.at(Stage::Qkv).read([qkv_bias, query_norm, key_norm].into_iter().flatten().flatten());
        Ok(())
    }

    fn attend(&mut self, layer: usize, _: &LayerOf<Self>) -> Done {
        let flops = self.attention_flops(layer);
        let Config { kv_heads, head_dim, .. } = *self.config;
        let Pass { batch, tokens, start, is_cached, .. } = self.pass;
        let seen = self.config.window_of(layer).map_or(start, |window| start.min(window.saturating_sub(1)));
        let number = self.gradients.dtype.bytes();
        let bytes = |positions| product(&[2, kv_heads, head_dim, batch, positions]).saturating_mul(number);
        let attention = &mut self.at(Stage::Attention).work;
        attention.flops = attention.flops.saturating_add(flops);
        if is_cached {
            attention.kv_read = attention.kv_read.saturating_add(bytes(seen));
            attention.kv_written = attention.kv_written.saturating_add(bytes(tokens));
        }
        Ok(())
    }

    fn swiglu(&mut self, _: usize, weights: &LayerOf<Self>) -> Done {
        self.at(Stage::Ffn).read(weights.gate_up_bias.iter().flatten());
        Ok(())
    }
}

impl ops::TrainOps for PassCount<'_> {
    fn embed(&mut self, table: &Vec<TensorSpec>) -> Done {
        table.iter().for_each(|table| self.look_up(table));
        Ok(())
    }

    fn cross_entropy(&mut self) -> Done {
        Ok(())
    }

    fn weights_back(&mut self, at: LinearAt, weight: &mut Vec<TensorSpec>, bias: Option<&mut Vec<TensorSpec>>) -> Done {
        let rows = self.rows(at);
        let flops = weight.iter().map(|weight| product(&weight.shape).saturating_mul(rows).saturating_mul(2));
        flops.for_each(|flops| self.at(stage_of(at)).compute(flops));
        self.gradients.read(weight.iter().chain(bias.into_iter().flat_map(|bias| bias.iter())));
        Ok(())
    }

    fn input_back(&mut self, at: LinearAt, weight: &Vec<TensorSpec>) -> Done {
        let rows = self.rows(at);
        self.at(stage_of(at)).product(weight, rows);
        Ok(())
    }

    /// The norms of layers were read when they were recomputed.
    fn norm_back(&mut self, at: NormAt, weight: &Vec<TensorSpec>, gradient: &mut Vec<TensorSpec>) -> Done {
        self.gradients.read(&*gradient);
        if at == NormAt::Final { self.norm(at, weight) } else { Ok(()) }
    }

    fn swiglu_back(&mut self, layer: usize, weights: &LayerOf<Self>) -> Done {
        self.swiglu(layer, weights)
    }

    fn attend_back(&mut self, layer: usize) -> Done {
        let forward = self.attention_flops(layer);
        self.at(Stage::Attention).compute(forward.saturating_mul(2));
        self.recomputed_flops = self.recomputed_flops.saturating_add(forward / 2);
        Ok(())
    }

    fn rope_back(&mut self, _: usize, _: &LayerOf<Self>, gradients: &mut LayerOf<Self>) -> Done {
        self.gradients.read([&gradients.query_norm, &gradients.key_norm].into_iter().flatten().flatten());
        Ok(())
    }

    /// The gradient of a tied embedding is added to that of the head.
    fn embed_back(&mut self, table: &mut Vec<TensorSpec>) -> Done {
        self.gradients.read(table.iter().filter(|_| !self.config.tied));
        Ok(())
    }
}
