//! One pass of tokens through the layers, of operations that gradients pass through.

use candle_core::{D, DType, Device, Module, Result, Tensor};
use candle_nn::{ops, rotary_emb};
use laptime_models::{Config, RopeLayout, RopeTable, Tokens};

use super::model::{Layer, Model};

/// A pass of tokens through a model, without a cache.
pub struct Pass<'a> {
    pub config: &'a Config,
    pub model: &'a Model,
    pub tokens: &'a Tokens,
}

/// RoPE tables with a row for each token, and a causal mask that is added to scores.
struct Positions {
    cosines: Tensor,
    sines: Tensor,
    mask: Tensor,
}

impl Positions {
    fn new(config: &Config, dtype: DType, tokens: usize) -> Result<Self> {
        let mut table = RopeTable::new(config);
        table.reach(tokens);
        let (cosines, sines): (Vec<&[f32]>, Vec<&[f32]>) = (0..tokens).map(|position| table.at(position)).unzip();
        let allowed = |query: usize, key: usize| if key <= query { 0.0 } else { f32::NEG_INFINITY };
        let mask = (0..tokens).flat_map(|query| (0..tokens).map(move |key| allowed(query, key))).collect();
        let rows = |numbers: Vec<f32>| {
            let width = numbers.len() / tokens;
            Tensor::from_vec(numbers, (tokens, width), &Device::Cpu)?.to_dtype(dtype)
        };
        Ok(Self { cosines: rows(cosines.concat())?, sines: rows(sines.concat())?, mask: rows(mask)? })
    }
}

impl Pass<'_> {
    /// The logits of every position, a row each.
    pub fn run(&self) -> Result<Tensor> {
        let ids = Tensor::new(self.tokens.ids.as_slice(), &Device::Cpu)?;
        let mut hidden = self.model.embedding.index_select(&ids, 0)?;
        let positions = Positions::new(self.config, hidden.dtype(), self.tokens.length())?;
        for layer in &self.model.layers {
            hidden = self.attention(layer, hidden, &positions)?;
            hidden = self.ffn(layer, hidden)?;
        }
        self.model.head.forward(&self.norm(&hidden, &self.model.norm)?)
    }

    fn norm(&self, x: &Tensor, weight: &Tensor) -> Result<Tensor> {
        ops::rms_norm_slow(x, weight, self.config.norm_eps as f32)
    }

    /// Puts the heads of rows first, `[batch, heads, tokens, head_dim]`, after a norm by head.
    fn heads(&self, rows: Tensor, heads: usize, norm: Option<&Tensor>) -> Result<Tensor> {
        let rows = rows.reshape((self.tokens.batch, self.tokens.length(), heads, self.config.head_dim))?;
        let rows = norm.map_or_else(|| Ok(rows.clone()), |weight| self.norm(&rows, weight))?;
        rows.transpose(1, 2)?.contiguous()
    }

    fn rope(&self, heads: &Tensor, positions: &Positions) -> Result<Tensor> {
        match self.config.rope.layout {
            RopeLayout::Halves => rotary_emb::rope_slow(heads, &positions.cosines, &positions.sines),
            RopeLayout::Pairs => rotary_emb::rope_i_slow(heads, &positions.cosines, &positions.sines),
        }
    }

    fn attention(&self, layer: &Layer, hidden: Tensor, positions: &Positions) -> Result<Tensor> {
        let Config { heads, kv_heads, head_dim, .. } = *self.config;
        let (batch, tokens) = (self.tokens.batch, self.tokens.length());
        let normed = self.norm(&hidden, &layer.attention_norm)?;
        let queries = self.heads(layer.query.forward(&normed)?, heads, layer.query_norm.as_ref())?;
        let keys = self.heads(layer.key.forward(&normed)?, kv_heads, layer.key_norm.as_ref())?;
        let values = self.heads(layer.value.forward(&normed)?, kv_heads, None)?;
        let queries = (self.rope(&queries, positions)? * (1.0 / (head_dim as f64).sqrt()))?;
        let keys = self.rope(&keys, positions)?;
        // The queries of a group are the rows of one product.
        let rows = heads / kv_heads * tokens;
        let scores = queries.reshape((batch, kv_heads, rows, head_dim))?.matmul(&keys.t()?)?;
        let scores = scores.reshape((batch, heads, tokens, tokens))?.broadcast_add(&positions.mask)?;
        let weights = ops::softmax(&scores, D::Minus1)?.reshape((batch, kv_heads, rows, tokens))?;
        let mixed = weights.matmul(&values)?.reshape((batch, heads, tokens, head_dim))?;
        let mixed = mixed.transpose(1, 2)?.reshape((batch * tokens, heads * head_dim))?;
        hidden + layer.output.forward(&mixed)?
    }

    fn ffn(&self, layer: &Layer, hidden: Tensor) -> Result<Tensor> {
        let normed = self.norm(&hidden, &layer.ffn_norm)?;
        let gated = (layer.gate.forward(&normed)?.silu()? * layer.up.forward(&normed)?)?;
        hidden + layer.down.forward(&gated)?
    }
}
