//! One pass of tokens through the layers.

use candle_core::{DType, Device, Module, Result, Tensor};

use super::{
    cache::Cache,
    model::{Layer, Model},
    operations::Operations,
};
use crate::{Config, Marks, marks::stage_mark, rope::RopeTable};

/// A pass of tokens through a model.
pub struct Pass<'a> {
    pub config: &'a Config,
    pub marks: &'a Marks,
    pub model: &'a Model,
    pub operations: Operations,
    /// Sequences.
    pub batch: usize,
    /// Tokens of each sequence.
    pub tokens: usize,
    /// Whether only the last token of each sequence gets logits.
    pub is_last_only: bool,
}

/// What the positions of a pass are to it.
pub struct Positions {
    /// A row for each token.
    pub cosines: Tensor,
    pub sines: Tensor,
    /// Minus infinity where a token must not look, unless it may look everywhere.
    mask: Option<Tensor>,
}

impl Positions {
    /// Those of tokens that come behind `start` others.
    pub fn new(table: &mut RopeTable, dtype: DType, start: usize, tokens: usize) -> Result<Self> {
        table.reach(start + tokens);
        let (mut cosines, mut sines) = (Vec::new(), Vec::new());
        for position in start..start + tokens {
            let (cosine, sine) = table.at(position);
            cosines.extend_from_slice(cosine);
            sines.extend_from_slice(sine);
        }
        let rows = |numbers: Vec<f32>| {
            let shape = (tokens, numbers.len() / tokens.max(1));
            Tensor::from_vec(numbers, shape, &Device::Cpu)?.to_dtype(dtype)
        };
        Ok(Self { cosines: rows(cosines)?, sines: rows(sines)?, mask: mask(dtype, start, tokens)? })
    }
}

/// What is added to scores, so that no token looks ahead.
fn mask(dtype: DType, start: usize, tokens: usize) -> Result<Option<Tensor>> {
    if tokens <= 1 {
        return Ok(None);
    }
    let keys = start + tokens;
    let allowed = |query: usize, key: usize| if key <= start + query { 0.0 } else { f32::NEG_INFINITY };
    let numbers = (0..tokens).flat_map(|query| (0..keys).map(move |key| allowed(query, key))).collect();
    Tensor::from_vec(numbers, (tokens, keys), &Device::Cpu)?.to_dtype(dtype).map(Some)
}

/// Queries, keys and values.
type Three = (Tensor, Tensor, Tensor);

impl Pass<'_> {
    /// Runs tokens, with keys and values in a cache if there is one, and gives their logits, a row each.
    pub fn run(&self, ids: &[u32], positions: &Positions, mut cache: Option<&mut Cache>) -> Result<Tensor> {
        let mut stream = {
            let _stage = stage_mark!(self.marks, Layer, "embed");
            on_threads(|| self.model.embedding.index_select(&Tensor::new(ids, &Device::Cpu)?, 0))?
        };
        for (at, layer) in self.model.layers.iter().enumerate() {
            let _stage = stage_mark!(self.marks, Layer, "layer", layer = at);
            stream = self.attention(at, stream, positions, cache.as_deref_mut())?;
            stream = self.ffn(layer, stream)?;
        }
        let _stage = stage_mark!(self.marks, Layer, "head");
        self.head(stream)
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        let _stage = stage_mark!(self.marks, Ops, "norm");
        on_threads(|| self.operations.norm(x, weight, self.config.norm_eps))
    }

    fn attention(&self, at: usize, stream: Tensor, positions: &Positions, cache: Option<&mut Cache>) -> Result<Tensor> {
        let _stage = stage_mark!(self.marks, Layer, "attention");
        let layer = &self.model.layers[at];
        let normed = self.norm(&stream, &layer.attention_norm)?;
        let projected = {
            let _stage = stage_mark!(self.marks, Ops, "qkv");
            let one = |linear: &candle_nn::Linear| linear.forward(&normed);
            on_threads(|| Ok((one(&layer.query)?, one(&layer.key)?, one(&layer.value)?)))?
        };
        let (queries, keys, values) = {
            let _stage = stage_mark!(self.marks, Ops, "rope");
            on_threads(|| {
                let (queries, keys, values) = self.enter_positions(layer, projected, positions)?;
                match cache {
                    None => Ok((queries, keys, values)),
                    Some(cache) => cache.append(at, keys, values).map(|(keys, values)| (queries, keys, values)),
                }
            })?
        };
        let mixed = self.attend(queries, &keys, &values, positions)?;
        let _stage = stage_mark!(self.marks, Ops, "output");
        on_threads(|| stream + layer.output.forward(&mixed)?)
    }

    /// Norms queries and keys by head, and turns them. All become `[batch, heads, tokens, head_dim]`.
    fn enter_positions(&self, layer: &Layer, (queries, keys, values): Three, positions: &Positions) -> Result<Three> {
        let by_head = |rows: Tensor, heads: usize| rows.reshape((self.batch, self.tokens, heads, self.config.head_dim));
        let norm = |rows: Tensor, weight: &Option<Tensor>| match weight {
            None => Ok(rows),
            Some(weight) => self.operations.norm(&rows, weight, self.config.norm_eps),
        };
        let heads_first = |rows: Tensor| rows.transpose(1, 2)?.contiguous();
        let rotate = |heads: Tensor| self.operations.rotate(&heads, positions, self.config.rope.layout);
        let queries = heads_first(norm(by_head(queries, self.config.heads)?, &layer.query_norm)?)?;
        let keys = heads_first(norm(by_head(keys, self.config.kv_heads)?, &layer.key_norm)?)?;
        let values = heads_first(by_head(values, self.config.kv_heads)?)?;
        Ok((rotate(queries)?, rotate(keys)?, values))
    }

    /// Attends with all queries of a group as rows of one product, so that keys and values are not copied for each.
    fn attend(&self, queries: Tensor, keys: &Tensor, values: &Tensor, positions: &Positions) -> Result<Tensor> {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let (batch, tokens, length) = (self.batch, self.tokens, keys.dim(2)?);
        let rows = heads / kv_heads * tokens;
        let scores = {
            let _stage = stage_mark!(self.marks, Ops, "scores");
            on_threads(|| {
                let queries = (queries * (1.0 / (head_dim as f64).sqrt()))?;
                let queries = queries.reshape((batch, kv_heads, rows, head_dim))?;
                let scores = queries.matmul(&keys.t()?)?.reshape((batch, heads, tokens, length))?;
                match &positions.mask {
                    None => Ok(scores),
                    Some(mask) => scores.broadcast_add(mask),
                }
            })?
        };
        let weights = {
            let _stage = stage_mark!(self.marks, Ops, "softmax");
            on_threads(|| self.operations.softmax(&scores))?
        };
        drop(scores);
        let _stage = stage_mark!(self.marks, Ops, "weighted");
        on_threads(|| {
            let weights = weights.reshape((batch, kv_heads, rows, length))?;
            let mixed = weights.matmul(values)?.reshape((batch, heads, tokens, head_dim))?;
            mixed.transpose(1, 2)?.reshape((batch * tokens, heads * head_dim))
        })
    }

    fn ffn(&self, layer: &Layer, stream: Tensor) -> Result<Tensor> {
        let _stage = stage_mark!(self.marks, Layer, "ffn");
        let normed = self.norm(&stream, &layer.ffn_norm)?;
        let (gate, up) = {
            let _stage = stage_mark!(self.marks, Ops, "gate_up");
            on_threads(|| Ok((layer.gate.forward(&normed)?, layer.up.forward(&normed)?)))?
        };
        let gated = {
            let _stage = stage_mark!(self.marks, Ops, "swiglu");
            on_threads(|| gate.silu()? * up)?
        };
        let _stage = stage_mark!(self.marks, Ops, "down");
        on_threads(|| stream + layer.down.forward(&gated)?)
    }

    fn head(&self, stream: Tensor) -> Result<Tensor> {
        let rows = match self.is_last_only {
            false => stream,
            true => {
                let by_sequence = stream.reshape((self.batch, self.tokens, self.config.hidden))?;
                by_sequence.narrow(1, self.tokens - 1, 1)?.reshape((self.batch, self.config.hidden))?
            }
        };
        let normed = self.norm(&rows, &self.model.norm)?;
        on_threads(|| self.model.head.forward(&normed))
    }
}

/// Does something on candle's own threads; on one of them it is a plain call.
fn on_threads<T: Send>(work: impl FnOnce() -> Result<T> + Send) -> Result<T> {
    Device::Cpu.with_context(work)
}
