//! The weights of a model as passes want them.

use candle_core::Tensor;
use candle_nn::Linear;

use super::parameters::Parameters;
use crate::{Config, ModelError};

/// The weights of a model.
pub struct Model {
    pub embedding: Tensor,
    pub layers: Vec<Layer>,
    pub norm: Tensor,
    pub head: Linear,
}

/// The weights of a layer.
pub struct Layer {
    pub attention_norm: Tensor,
    pub query: Linear,
    pub key: Linear,
    pub value: Linear,
    pub query_norm: Option<Tensor>,
    pub key_norm: Option<Tensor>,
    pub output: Linear,
    pub ffn_norm: Tensor,
    pub gate: Linear,
    pub up: Linear,
    pub down: Linear,
}

impl Model {
    /// Puts tensors in their places; a tied head is the embedding.
    pub fn new(config: &Config, parameters: &Parameters) -> Result<Self, ModelError> {
        let embedding = parameters.get(&config.embedding_tensor().name)?;
        let head = match config.head_tensor() {
            Some(spec) => parameters.get(&spec.name)?,
            None => embedding.clone(),
        };
        Ok(Self {
            embedding,
            layers: (0..config.layers).map(|at| Layer::new(at, parameters)).collect::<Result<_, _>>()?,
            norm: parameters.get(&config.final_norm_tensor().name)?,
            head: Linear::new(head, None),
        })
    }
}

impl Layer {
    fn new(at: usize, parameters: &Parameters) -> Result<Self, ModelError> {
        let name = |part: &str| format!("model.layers.{at}.{part}");
        let norm = |part: &str| parameters.get(&name(&format!("{part}.weight")));
        let maybe_norm = |part: &str| parameters.find(&name(&format!("{part}.weight")));
        let linear = |part: &str| -> Result<Linear, ModelError> {
            let bias = parameters.find(&name(&format!("{part}.bias")));
            Ok(Linear::new(parameters.get(&name(&format!("{part}.weight")))?, bias))
        };
        Ok(Self {
            attention_norm: norm("input_layernorm")?,
            query: linear("self_attn.q_proj")?,
            key: linear("self_attn.k_proj")?,
            value: linear("self_attn.v_proj")?,
            query_norm: maybe_norm("self_attn.q_norm"),
            key_norm: maybe_norm("self_attn.k_norm"),
            output: linear("self_attn.o_proj")?,
            ffn_norm: norm("post_attention_layernorm")?,
            gate: linear("mlp.gate_proj")?,
            up: linear("mlp.up_proj")?,
            down: linear("mlp.down_proj")?,
        })
    }
}
