//! The weights of a model as passes want them: what is multiplied with the same input is one matrix.

use std::collections::HashMap;

use half::{bf16, f16};
use laptime_probe::stage;

use super::{cache::zeros, crew::Crew, number::Number, vectors::vectorized};
use crate::{Config, Dtype, ModelError, Role, TensorData, TensorSpec, weights::TensorSource};

/// Numbers that one thread makes or reads at a time.
const PART: usize = 1 << 15;

/// What is multiplied with the same input, and the biases.
pub const QKV: [&str; 3] = ["self_attn.q_proj.weight", "self_attn.k_proj.weight", "self_attn.v_proj.weight"];
pub const QKV_BIAS: [&str; 3] = ["self_attn.q_proj.bias", "self_attn.k_proj.bias", "self_attn.v_proj.bias"];
pub const GATE_UP: [&str; 2] = ["mlp.gate_proj.weight", "mlp.up_proj.weight"];
pub const GATE_UP_BIAS: [&str; 2] = ["mlp.gate_proj.bias", "mlp.up_proj.bias"];

/// The weights of a model.
pub struct Model<T> {
    pub embedding: Vec<T>,
    /// The head, unless it is the embedding.
    pub own_head: Option<Vec<T>>,
    pub layers: Vec<Layer<T>>,
    pub norm: Vec<f32>,
}

/// The layers of a model that stay in memory, without its ends.
pub struct Body<T> {
    /// Layers before these: they do not stay.
    pub first: usize,
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

/// Where the numbers of tensors come from, and who fetches them.
#[derive(Clone, Copy)]
pub struct Source<'a> {
    /// None where all numbers are 0.
    pub weights: Option<&'a dyn TensorSource>,
    pub crew: &'a Crew,
}

impl<T: Number> Model<T> {
    /// Puts the weights of a model together.
    pub fn load(config: &Config, source: Source<'_>) -> Result<Self, ModelError> {
        let _stage = match source.weights {
            Some(_) => stage!("weights"),
            None => stage!("allocate"),
        };
        let Body { layers, norm, .. } = Body::load(config, source)?;
        Ok(Self {
            embedding: source.stacked(&[&config.embedding_tensor()])?,
            own_head: config.head_tensor().map(|spec| source.stacked(&[&spec])).transpose()?,
            layers,
            norm,
        })
    }

    /// The matrix that makes logits.
    pub fn head(&self) -> &[T] {
        self.own_head.as_deref().unwrap_or(&self.embedding)
    }
}

impl<T: Number> Body<T> {
    /// Puts the weights of all layers together.
    pub fn load(config: &Config, source: Source<'_>) -> Result<Self, ModelError> {
        Self::load_behind(config, 0, source)
    }

    /// Puts the weights of the layers behind the first ones together.
    pub fn load_behind(config: &Config, first: usize, source: Source<'_>) -> Result<Self, ModelError> {
        Ok(Self {
            first,
            layers: (first..config.layers).map(|at| Layer::load(config, at, source)).collect::<Result<_, _>>()?,
            norm: source.rounded::<T>(&[&config.final_norm_tensor()])?,
        })
    }
}

impl<T: Number> Layer<T> {
    /// Puts the weights of a layer together.
    pub fn load(config: &Config, layer: usize, source: Source<'_>) -> Result<Self, ModelError> {
        let prefix = format!("model.layers.{layer}.");
        let specs = config.layer_tensors(layer);
        let specs: HashMap<&str, &TensorSpec> =
            specs.iter().filter_map(|spec| Some((spec.name.strip_prefix(&prefix)?, spec))).collect();
        let find = |names: &[&str]| -> Option<Vec<&TensorSpec>> {
            names.iter().map(|name| specs.get(name).copied()).collect()
        };
        let matrix = |names: &[&str]| source.stacked(&find(names).unwrap_or_default());
        let maybe = |names: &[&str]| find(names).map(|specs| source.rounded::<T>(&specs)).transpose();
        Ok(Self {
            attention_norm: maybe(&["input_layernorm.weight"])?.unwrap_or_default(),
            qkv: matrix(&QKV)?,
            qkv_bias: maybe(&QKV_BIAS)?,
            query_norm: maybe(&["self_attn.q_norm.weight"])?,
            key_norm: maybe(&["self_attn.k_norm.weight"])?,
            output: matrix(&["self_attn.o_proj.weight"])?,
            ffn_norm: maybe(&["post_attention_layernorm.weight"])?.unwrap_or_default(),
            gate_up: matrix(&GATE_UP)?,
            gate_up_bias: maybe(&GATE_UP_BIAS)?,
            down: matrix(&["mlp.down_proj.weight"])?,
            down_bias: maybe(&["mlp.down_proj.bias"])?,
        })
    }

    /// A layer of zeros, to copy into.
    pub fn blank(config: &Config) -> Result<Self, ModelError> {
        Self::load(config, 0, Source { weights: None, crew: &Crew::new(1)? })
    }

    /// Its numbers as bytes, part by part.
    pub fn parts(&self) -> [&[u8]; 11] {
        fn maybe(part: &Option<Vec<f32>>) -> &[u8] {
            part.as_deref().map(bytemuck::cast_slice).unwrap_or_default()
        }
        [
            bytemuck::cast_slice(&self.attention_norm),
            bytemuck::cast_slice(&self.qkv),
            maybe(&self.qkv_bias),
            maybe(&self.query_norm),
            maybe(&self.key_norm),
            bytemuck::cast_slice(&self.output),
            bytemuck::cast_slice(&self.ffn_norm),
            bytemuck::cast_slice(&self.gate_up),
            maybe(&self.gate_up_bias),
            bytemuck::cast_slice(&self.down),
            maybe(&self.down_bias),
        ]
    }

    /// The same parts, to write.
    pub fn parts_mut(&mut self) -> [&mut [u8]; 11] {
        fn maybe(part: &mut Option<Vec<f32>>) -> &mut [u8] {
            part.as_deref_mut().map(bytemuck::cast_slice_mut).unwrap_or_default()
        }
        [
            bytemuck::cast_slice_mut(&mut self.attention_norm),
            bytemuck::cast_slice_mut(&mut self.qkv),
            maybe(&mut self.qkv_bias),
            maybe(&mut self.query_norm),
            maybe(&mut self.key_norm),
            bytemuck::cast_slice_mut(&mut self.output),
            bytemuck::cast_slice_mut(&mut self.ffn_norm),
            bytemuck::cast_slice_mut(&mut self.gate_up),
            maybe(&mut self.gate_up_bias),
            bytemuck::cast_slice_mut(&mut self.down),
            maybe(&mut self.down_bias),
        ]
    }
}

/// Bytes of a layer in memory: matrices in the number type, what is kept in f32 in that.
pub fn layer_bytes(config: &Config, dtype: Dtype) -> u64 {
    let bytes = |spec: &TensorSpec| {
        let each = if matches!(spec.role, Role::Norm | Role::Bias) { Dtype::F32 } else { dtype }.bytes();
        spec.shape.iter().fold(each, |bytes, side| bytes.saturating_mul(*side as u64))
    };
    config.layer_tensors(0).iter().map(bytes).fold(0, u64::saturating_add)
}

impl Source<'_> {
    /// The numbers of several tensors, one after another.
    pub fn stacked<T: Number>(self, specs: &[&TensorSpec]) -> Result<Vec<T>, ModelError> {
        let mut numbers = zeros(specs.iter().map(|spec| spec.count()).sum())?;
        let Some(weights) = self.weights else { return Ok(numbers) };
        let mut rest = numbers.as_mut_slice();
        for spec in specs {
            let (these, others) = rest.split_at_mut(spec.count());
            rest = others;
            let data = weights.tensor(spec)?;
            if data.count() != these.len() {
                let (name, has, wants) = (&spec.name, data.count(), these.len());
                return Err(ModelError::Refused(format!("`{name}` has {has} numbers and not {wants}")));
            }
            self.crew.each(these.len(), these.chunks_mut(PART).enumerate(), |(at, part)| fetch(&data, at * PART, part));
        }
        Ok(numbers)
    }

    /// Some rows of a matrix, without the others.
    pub fn rows<T: Number>(self, spec: &TensorSpec, rows: &[u32]) -> Result<Vec<T>, ModelError> {
        let [count, width] = spec.shape[..] else {
            return Err(ModelError::Refused(format!("`{}` is no matrix", spec.name)));
        };
        let mut numbers = zeros(rows.len() * width)?;
        let Some(weights) = self.weights else { return Ok(numbers) };
        let data = weights.tensor(spec)?;
        if data.count() != spec.count() || rows.iter().any(|row| *row as usize >= count) {
            return Err(ModelError::Refused(format!("`{}` has not got the rows {rows:?}", spec.name)));
        }
        for (row, to) in rows.iter().zip(numbers.chunks_mut(width)) {
            fetch(&data, *row as usize * width, to);
        }
        Ok(numbers)
    }

    /// The numbers of several tensors in f32, as the type rounds them.
    pub fn rounded<T: Number>(self, specs: &[&TensorSpec]) -> Result<Vec<f32>, ModelError> {
        Ok(self.stacked::<T>(specs)?.into_iter().map(T::wide).collect())
    }
}

/// Makes or reads the numbers of a tensor from an index on.
fn fetch<T: Number>(data: &TensorData<'_>, from: usize, to: &mut [T]) {
    match data {
        TensorData::Filled { fill, .. } => {
            let fill = *fill;
            vectorized(
                #[inline(always)]
                || {
                    for (at, to) in to.iter_mut().enumerate() {
                        *to = T::narrow(fill.at((from + at) as u64));
                    }
                },
            );
        }
        TensorData::Stored { dtype, bytes } => {
            let bytes = &bytes[from * dtype.bytes() as usize..];
            match dtype {
                Dtype::F32 => read(bytes, to, f32::from_le_bytes),
                Dtype::Bf16 => read(bytes, to, |bytes| bf16::from_le_bytes(bytes).to_f32()),
                Dtype::F16 => read(bytes, to, |bytes| f16::from_le_bytes(bytes).to_f32()),
            }
        }
    }
}

fn read<T: Number, const WIDTH: usize>(bytes: &[u8], to: &mut [T], number: impl Fn([u8; WIDTH]) -> f32) {
    let (bytes, _) = bytes.as_chunks();
    to.iter_mut().zip(bytes).for_each(|(to, bytes)| *to = T::narrow(number(*bytes)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Weights;

    #[test]
    fn the_parts_of_a_layer_are_all_its_bytes() {
        let crew = Crew::new(1).unwrap();
        for preset in ["tiny", "tiny-qwen2", "tiny-llama", "decoder_tiny"] {
            let config = Config::from_preset(preset).unwrap();
            let weights = Weights::synthetic(&config, 1);
            let source = Source { weights: Some(&weights), crew: &crew };
            let mut layer = Layer::<bf16>::load(&config, 1, source).unwrap();
            let bytes: u64 = layer.parts().iter().map(|part| part.len() as u64).sum();
            assert_eq!(bytes, layer_bytes(&config, Dtype::Bf16), "{preset}");
            let mut other = Layer::<bf16>::blank(&config).unwrap();
            other.parts_mut().into_iter().zip(layer.parts()).for_each(|(to, from)| to.copy_from_slice(from));
            assert_eq!(layer.parts_mut().map(|part| part.to_vec()), other.parts().map(<[u8]>::to_vec), "{preset}");
            assert!(config.layers < 2 || other.qkv == layer.qkv);
        }
    }
}
