//! The weights of a model as passes want them: what is multiplied with the same input is one matrix.

use std::collections::HashMap;

use super::{cache::zeros, number::Number};
use crate::{Config, ModelError, TensorSpec};

/// The weights of a model.
pub struct Model<T> {
    pub embedding: Vec<T>,
    /// The head, unless it is the embedding.
    head: Option<Vec<T>>,
    pub layers: Vec<Layer<T>>,
    pub norm: Vec<f32>,
}

/// The weights of a layer. What is added or multiplied number by number is kept in f32, after it was rounded to the
/// type of the others.
pub struct Layer<T> {
    pub attention_norm: Vec<f32>,
    /// Queries, keys and values, a row for each number.
    pub qkv: Vec<T>,
    pub qkv_bias: Option<Vec<f32>>,
    pub query_norm: Option<Vec<f32>>,
    pub key_norm: Option<Vec<f32>>,
    pub output: Vec<T>,
    pub ffn_norm: Vec<f32>,
    /// Gate, then up.
    pub gate_up: Vec<T>,
    pub gate_up_bias: Option<Vec<f32>>,
    pub down: Vec<T>,
    pub down_bias: Option<Vec<f32>>,
}

/// Where the numbers of a tensor come from.
pub type Source<'a> = &'a mut dyn FnMut(&TensorSpec) -> Result<Vec<f32>, ModelError>;

impl<T: Number> Model<T> {
    /// Puts the weights of a model together.
    pub fn load(config: &Config, source: Source<'_>) -> Result<Self, ModelError> {
        let mut one = |spec: &TensorSpec| stacked(&[spec], source);
        // The largest come first: beside them their own numbers are in memory once more, in f32.
        let embedding = one(&config.embedding_tensor())?;
        let head = config.head_tensor().map(|spec| one(&spec)).transpose()?;
        let layers = (0..config.layers).map(|at| Layer::load(config, at, source)).collect::<Result<_, _>>()?;
        let norm = rounded::<T>(&[&config.final_norm_tensor()], source)?;
        Ok(Self { embedding, head, layers, norm })
    }

    /// The matrix that makes logits.
    pub fn head(&self) -> &[T] {
        self.head.as_deref().unwrap_or(&self.embedding)
    }
}

impl<T: Number> Layer<T> {
    fn load(config: &Config, layer: usize, source: Source<'_>) -> Result<Self, ModelError> {
        let prefix = format!("model.layers.{layer}.");
        let specs = config.layer_tensors(layer);
        let specs: HashMap<&str, &TensorSpec> =
            specs.iter().filter_map(|spec| Some((spec.name.strip_prefix(&prefix)?, spec))).collect();
        let find = |names: &[&str]| -> Option<Vec<&TensorSpec>> { names.iter().map(|name| specs.get(name).copied()).collect() };
        let mut matrix = |names: &[&str]| stacked(&find(names).unwrap_or_default(), source);
        let qkv = matrix(&["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"])?;
        let output = matrix(&["self_attn.o_proj.weight"])?;
        let gate_up = matrix(&["mlp.gate_proj.weight", "mlp.up_proj.weight"])?;
        let down = matrix(&["mlp.down_proj.weight"])?;
        let mut maybe = |names: &[&str]| find(names).map(|specs| rounded::<T>(&specs, source)).transpose();
        Ok(Self {
            attention_norm: maybe(&["input_layernorm.weight"])?.unwrap_or_default(),
            qkv,
            qkv_bias: maybe(&["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"])?,
            query_norm: maybe(&["self_attn.q_norm.weight"])?,
            key_norm: maybe(&["self_attn.k_norm.weight"])?,
            output,
            ffn_norm: maybe(&["post_attention_layernorm.weight"])?.unwrap_or_default(),
            gate_up,
            gate_up_bias: maybe(&["mlp.gate_proj.bias", "mlp.up_proj.bias"])?,
            down,
            down_bias: maybe(&["mlp.down_proj.bias"])?,
        })
    }
}

/// The numbers of several tensors, one after another.
fn stacked<T: Number>(specs: &[&TensorSpec], source: Source<'_>) -> Result<Vec<T>, ModelError> {
    let mut numbers = zeros(specs.iter().map(|spec| spec.count()).sum())?;
    let mut rest = numbers.as_mut_slice();
    for spec in specs {
        let (these, others) = rest.split_at_mut(spec.count());
        rest = others;
        let from = source(spec)?;
        if from.len() != these.len() {
            let reason = format!("`{}` has {} numbers and not {}", spec.name, from.len(), these.len());
            return Err(ModelError::Refused(reason));
        }
        these.iter_mut().zip(from).for_each(|(to, from)| *to = T::narrow(from));
    }
    Ok(numbers)
}

/// The numbers of several tensors in f32, as the type rounds them.
fn rounded<T: Number>(specs: &[&TensorSpec], source: Source<'_>) -> Result<Vec<f32>, ModelError> {
    Ok(stacked::<T>(specs, source)?.into_iter().map(T::wide).collect())
}
