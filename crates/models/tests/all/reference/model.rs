//! The weights of the reference decoder.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor, Var};
use candle_nn::Linear;
use laptime_models::{Config, TensorSpec, Weights};

/// The tensors of a model by their published names.
pub struct Parameters {
    pub by_name: BTreeMap<String, Tensor>,
}

impl Parameters {
    /// Reads or generates every tensor.
    pub fn load(config: &Config, weights: &Weights, dtype: DType) -> Result<Self> {
        let one = |spec: TensorSpec| {
            let numbers = weights.tensor(&spec).unwrap().to_f32();
            Ok((spec.name, Tensor::from_vec(numbers, spec.shape, &Device::Cpu)?.to_dtype(dtype)?))
        };
        Ok(Self { by_name: config.tensors().into_iter().map(one).collect::<Result<_>>()? })
    }

    /// The same numbers, tracked by autograd.
    pub fn trainable(&self) -> Result<Self> {
        let one = |(name, tensor): (&String, &Tensor)| Ok((name.clone(), Var::from_tensor(tensor)?.into_inner()));
        Ok(Self { by_name: self.by_name.iter().map(one).collect::<Result<_>>()? })
    }

    fn get(&self, name: &str) -> Tensor {
        self.by_name[name].clone()
    }
}

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
    pub fn new(config: &Config, parameters: &Parameters) -> Self {
        let embedding = parameters.get(&config.embedding_tensor().name);
        let head = config.head_tensor().map_or_else(|| embedding.clone(), |spec| parameters.get(&spec.name));
        Self {
            embedding,
            layers: (0..config.layers).map(|at| Layer::new(at, parameters)).collect(),
            norm: parameters.get(&config.final_norm_tensor().name),
            head: Linear::new(head, None),
        }
    }
}

impl Layer {
    fn new(at: usize, parameters: &Parameters) -> Self {
        let name = |part: &str| format!("model.layers.{at}.{part}");
        let norm = |part: &str| parameters.get(&name(&format!("{part}.weight")));
        let optional = |part: &str| parameters.by_name.get(&name(part)).cloned();
        let linear = |part: &str| Linear::new(norm(part), optional(&format!("{part}.bias")));
        Self {
            attention_norm: norm("input_layernorm"),
            query: linear("self_attn.q_proj"),
            key: linear("self_attn.k_proj"),
            value: linear("self_attn.v_proj"),
            query_norm: optional("self_attn.q_norm.weight"),
            key_norm: optional("self_attn.k_norm.weight"),
            output: linear("self_attn.o_proj"),
            ffn_norm: norm("post_attention_layernorm"),
            gate: linear("mlp.gate_proj"),
            up: linear("mlp.up_proj"),
            down: linear("mlp.down_proj"),
        }
    }
}
