//! The tensors of a checkpoint, under their names in `transformers`.

use crate::fp8::{BLOCK, WeightScales, is_quantised};
use crate::{Config, Dtype};

/// The suffix of the scales of a quantised tensor.
pub(crate) const SCALE: &str = "_scale_inv";

/// A tensor of a checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct TensorSpec {
    /// Its name, such as `model.layers.0.self_attn.q_proj.weight`.
    pub name: String,
    /// Its row-major shape. Linear weights are `[out, in]`.
    pub shape: Vec<usize>,
    /// Its role in the model.
    pub role: Role,
}

/// The role of a tensor in its model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Role {
    /// Token embeddings.
    Embedding,
    /// The weight of a norm.
    Norm,
    /// The weight of a norm, stored minus one.
    ZeroCentredNorm,
    /// The weight of a linear layer.
    Linear,
    /// The bias of a linear layer.
    Bias,
    /// The output head.
    Head,
    /// The gate of a fuser, open if positive.
    Gate,
    /// The kernel of a convolution, `[outputs, inputs, kernel]`.
    Conv,
    /// The kernel of a transposed convolution, `[inputs, outputs, kernel]`.
    Lengthen,
    /// The scale of a residual branch.
    Scale,
}

impl TensorSpec {
    /// The number of elements.
    pub fn count(&self) -> usize {
        self.shape.iter().product()
    }

    /// Its bytes, including scales if it is quantised.
    pub(crate) fn bytes(&self, dtype: Dtype, scales: WeightScales) -> u64 {
        let numbers = product(&self.shape);
        match self.shape[..] {
            [rows, width] if is_quantised(dtype, self.role) => {
                numbers.saturating_add(product(&[4, rows, scales.columns(width)]))
            }
            _ => numbers.saturating_mul(dtype.bytes()),
        }
    }

    /// The scales of this tensor in an FP8 checkpoint: one per block.
    pub(crate) fn scale(&self) -> Option<Self> {
        let shape = self.shape.iter().map(|side| side.div_ceil(BLOCK)).collect();
        (self.role == Role::Linear).then(|| Self { name: format!("{}{SCALE}", self.name), shape, role: Role::Scale })
    }
}

impl Config {
    /// Every tensor of its checkpoint, with the scales of quantised ones.
    pub(crate) fn stored_tensors(&self) -> Vec<TensorSpec> {
        let mut tensors = self.tensors();
        if self.weight_scales == WeightScales::Blocks {
            tensors.extend(tensors.iter().filter_map(TensorSpec::scale).collect::<Vec<_>>());
        }
        tensors
    }

    /// Every tensor of its checkpoint, in the order of a pass. A tied head is not listed.
    pub fn tensors(&self) -> Vec<TensorSpec> {
        let mut tensors = vec![self.embedding_tensor()];
        for layer in 0..self.layers {
            tensors.extend(self.layer_tensors(layer));
        }
        tensors.push(self.final_norm_tensor());
        tensors.extend(self.head_tensor());
        tensors
    }

    /// The embedding, which is also a tied head.
    pub fn embedding_tensor(&self) -> TensorSpec {
        tensor("model.embed_tokens.weight".to_owned(), [self.vocab, self.hidden], Role::Embedding)
    }

    /// The norm before the head.
    pub fn final_norm_tensor(&self) -> TensorSpec {
        tensor("model.norm.weight".to_owned(), [self.hidden], self.norm_role())
    }

    fn norm_role(&self) -> Role {
        if self.zero_centred_norms { Role::ZeroCentredNorm } else { Role::Norm }
    }

    /// The head, unless it is tied to the embedding.
    pub fn head_tensor(&self) -> Option<TensorSpec> {
        (!self.tied).then(|| tensor("lm_head.weight".to_owned(), [self.vocab, self.hidden], Role::Head))
    }

    /// The tensors of a layer, in the order of a pass.
    pub fn layer_tensors(&self, layer: usize) -> Vec<TensorSpec> {
        let (prefix, norm) = (format!("model.layers.{layer}."), self.norm_role());
        let mut list = LayerList { prefix, norm, tensors: Vec::with_capacity(14) };
        let (hidden, ffn) = (self.hidden, self.ffn);
        let (q, kv) = (self.heads.saturating_mul(self.head_dim), self.kv_heads.saturating_mul(self.head_dim));
        list.norm("input_layernorm", hidden);
        list.linear("self_attn.q_proj", [q, hidden], self.qkv_bias);
        list.linear("self_attn.k_proj", [kv, hidden], self.qkv_bias);
        list.linear("self_attn.v_proj", [kv, hidden], self.qkv_bias);
        if self.qk_norm {
            list.norm("self_attn.q_norm", self.head_dim);
            list.norm("self_attn.k_norm", self.head_dim);
        }
        list.linear("self_attn.o_proj", [hidden, q], false);
        list.norm("post_attention_layernorm", hidden);
        if self.post_norms {
            list.norm("pre_feedforward_layernorm", hidden);
        }
        list.linear("mlp.gate_proj", [ffn, hidden], self.ffn_bias);
        list.linear("mlp.up_proj", [ffn, hidden], self.ffn_bias);
        list.linear("mlp.down_proj", [hidden, ffn], self.ffn_bias);
        if self.post_norms {
            list.norm("post_feedforward_layernorm", hidden);
        }
        list.tensors
    }
}

struct LayerList {
    prefix: String,
    norm: Role,
    tensors: Vec<TensorSpec>,
}

impl LayerList {
    fn norm(&mut self, part: &str, width: usize) {
        self.tensors.push(tensor(format!("{}{part}.weight", self.prefix), [width], self.norm));
    }

    fn linear(&mut self, part: &str, shape: [usize; 2], bias: bool) {
        self.tensors.push(tensor(format!("{}{part}.weight", self.prefix), shape, Role::Linear));
        if bias {
            self.tensors.push(tensor(format!("{}{part}.bias", self.prefix), [shape[0]], Role::Bias));
        }
    }
}

/// The elements of all tensors, or none if their f32 bytes do not fit 63 bits.
pub(crate) fn checked_count(tensors: &[TensorSpec]) -> Option<u64> {
    let one = |spec: &TensorSpec| spec.shape.iter().try_fold(1_u64, |all, size| all.checked_mul(*size as u64));
    countable(tensors.iter().try_fold(0_u64, |all, spec| all.checked_add(one(spec)?))?)
}

/// A number of elements, or none if their f32 bytes do not fit 63 bits.
pub(crate) fn countable(numbers: u64) -> Option<u64> {
    numbers.checked_mul(4).filter(|bytes| *bytes <= i64::MAX as u64).map(|_| numbers)
}

pub(crate) fn tensor<const N: usize>(name: String, shape: [usize; N], role: Role) -> TensorSpec {
    TensorSpec { name, shape: shape.to_vec(), role }
}

impl Config {
    /// The number of parameters. A tied head counts once.
    pub fn parameters(&self) -> u64 {
        self.checked_parameters().unwrap_or(u64::MAX)
    }

    /// Bytes of its weights in a dtype.
    pub fn weight_bytes(&self, dtype: Dtype) -> u64 {
        let layer = sum(self.layer_tensors(0).iter().map(|tensor| product(&tensor.shape)));
        let others = self.parameters().saturating_sub(layer.saturating_mul(self.layers as u64));
        let layers = self.layer_bytes(dtype).saturating_mul(self.layers as u64);
        others.saturating_mul(dtype.bytes()).saturating_add(layers)
    }

    /// Bytes of the weights of a layer.
    pub(crate) fn layer_bytes(&self, dtype: Dtype) -> u64 {
        sum(self.layer_tensors(0).iter().map(|tensor| tensor.bytes(dtype, self.weight_scales)))
    }

    /// Bytes of the KV cache per token: a key and a value in every layer.
    pub fn kv_bytes_per_token(&self, dtype: Dtype) -> u64 {
        product(&[2, self.layers, self.kv_heads, self.head_dim]).saturating_mul(dtype.bytes())
    }

    /// The number of parameters, or none if their f32 bytes do not fit 63 bits.
    pub(crate) fn checked_parameters(&self) -> Option<u64> {
        let ends = [self.embedding_tensor(), self.final_norm_tensor()].into_iter().chain(self.head_tensor());
        let layers = checked_count(&self.layer_tensors(0))?.checked_mul(self.layers as u64)?;
        countable(layers.checked_add(checked_count(&ends.collect::<Vec<_>>())?)?)
    }
}

/// A saturating product.
pub(crate) fn product(sizes: &[usize]) -> u64 {
    sizes.iter().fold(1, |all: u64, size| all.saturating_mul(*size as u64))
}

/// A saturating sum.
pub(crate) fn sum(parts: impl IntoIterator<Item = u64>) -> u64 {
    parts.into_iter().fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn the_tensors_of_every_preset_add_up_to_its_parameters() {
        for config in Config::presets() {
            let tensors = config.tensors();
            let numbers: u64 = tensors.iter().map(|tensor| tensor.count() as u64).sum();
            assert_eq!(numbers, config.parameters(), "{}", config.name);
            let names: HashSet<&str> = tensors.iter().map(|tensor| tensor.name.as_str()).collect();
            assert_eq!(names.len(), tensors.len(), "{}", config.name);
        }
    }

    #[test]
    fn a_layer_has_the_tensor_names_of_checkpoints() {
        let names = |preset: &str| -> Vec<String> {
            let tensors = Config::from_preset(preset).unwrap().layer_tensors(1);
            tensors.iter().map(|tensor| tensor.name.trim_start_matches("model.layers.1.").to_owned()).collect()
        };
        assert_eq!(
            names("tiny").join(" "),
            "input_layernorm.weight self_attn.q_proj.weight self_attn.k_proj.weight \
            self_attn.v_proj.weight self_attn.q_norm.weight self_attn.k_norm.weight self_attn.o_proj.weight \
            post_attention_layernorm.weight mlp.gate_proj.weight mlp.up_proj.weight mlp.down_proj.weight"
        );
        assert!(names("tiny-qwen2").contains(&"self_attn.v_proj.bias".to_owned()));
        assert!(!names("tiny-qwen2").contains(&"self_attn.o_proj.bias".to_owned()));
        assert!(names("decoder_tiny").contains(&"mlp.down_proj.bias".to_owned()));
        assert_eq!(names("tiny-llama").len(), 9);
        assert_eq!(names("tiny-gemma3").len(), 13);
    }

    #[test]
    fn a_tied_head_is_not_a_tensor() {
        assert!(Config::from_preset("tiny").unwrap().head_tensor().is_none());
        let head = Config::from_preset("small").unwrap().head_tensor().unwrap();
        assert_eq!((head.name.as_str(), head.shape.as_slice()), ("lm_head.weight", [10_000, 768].as_slice()));
    }
}
