//! What there is one of for each parameter: weights, gradients, moments.

use super::super::{
    model::{GATE_UP, GATE_UP_BIAS, Layer, Model, QKV, QKV_BIAS},
    number::Number,
};
use crate::{Config, ModelError, TensorSpec};

/// Some of the numbers of a model. What is added or multiplied number by number is kept in f32.
pub enum Part<'a, T> {
    Matrix(&'a mut [T]),
    Vector(&'a mut [f32]),
}

impl<T: Number> Model<T> {
    /// All numbers of a model, in an order of its own.
    pub fn parts(&mut self) -> Vec<Part<'_, T>> {
        let mut parts = vec![Part::Matrix(&mut self.embedding), Part::Vector(&mut self.norm)];
        parts.extend(self.own_head.as_deref_mut().map(Part::Matrix));
        for layer in &mut self.layers {
            let Layer { attention_norm, qkv, qkv_bias, query_norm, key_norm, .. } = layer;
            let Layer { output, ffn_norm, gate_up, gate_up_bias, down, down_bias, .. } = layer;
            parts.extend([qkv, output, gate_up, down].map(|matrix| Part::Matrix(matrix)));
            parts.extend([attention_norm, ffn_norm].map(|vector| Part::Vector(vector)));
            let others = [qkv_bias, query_norm, key_norm, gate_up_bias, down_bias];
            parts.extend(others.into_iter().flatten().map(|vector| Part::Vector(vector)));
        }
        parts
    }

    /// The numbers of a tensor of the checkpoint.
    pub fn numbers(&self, config: &Config, spec: &TensorSpec) -> Result<Vec<f32>, ModelError> {
        self.find(config, spec).ok_or_else(|| ModelError::Refused(format!("`{}` has no `{}`", config.name, spec.name)))
    }

    fn find(&self, config: &Config, spec: &TensorSpec) -> Option<Vec<f32>> {
        let wide = |numbers: &[T]| numbers.iter().map(|number| number.wide()).collect();
        match spec.name.as_str() {
            "model.embed_tokens.weight" => return Some(wide(&self.embedding)),
            "model.norm.weight" => return Some(self.norm.clone()),
            "lm_head.weight" => return self.own_head.as_deref().map(wide),
            _ => {}
        }
        let (layer, name) = spec.name.strip_prefix("model.layers.")?.split_once('.')?;
        let layer = self.layers.get(layer.parse::<usize>().ok()?)?;
        let widths = [config.heads, config.kv_heads, config.kv_heads].map(|heads| heads * config.head_dim);
        let matrix = |numbers: &[T], names: &[&str], rows: &[usize]| stacked(numbers, names, rows, name).map(wide);
        let vector = |numbers: &Option<Vec<f32>>, names: &[&str], rows: &[usize]| {
            stacked(numbers.as_deref()?, names, rows, name).map(<[f32]>::to_vec)
        };
        let ffn = [config.ffn; 2];
        matrix(&layer.qkv, &QKV, &widths)
            .or_else(|| vector(&layer.qkv_bias, &QKV_BIAS, &widths))
            .or_else(|| matrix(&layer.gate_up, &GATE_UP, &ffn))
            .or_else(|| vector(&layer.gate_up_bias, &GATE_UP_BIAS, &ffn))
            .or_else(|| layer.find_alone(name))
    }
}

impl<T: Number> Layer<T> {
    /// A tensor that is stored by itself.
    fn find_alone(&self, name: &str) -> Option<Vec<f32>> {
        let wide = |numbers: &[T]| Some(numbers.iter().map(|number| number.wide()).collect());
        match name {
            "input_layernorm.weight" => Some(self.attention_norm.clone()),
            "post_attention_layernorm.weight" => Some(self.ffn_norm.clone()),
            "self_attn.q_norm.weight" => self.query_norm.clone(),
            "self_attn.k_norm.weight" => self.key_norm.clone(),
            "self_attn.o_proj.weight" => wide(&self.output),
            "mlp.down_proj.weight" => wide(&self.down),
            "mlp.down_proj.bias" => self.down_bias.clone(),
            _ => None,
        }
    }
}

/// The numbers of one of several tensors that are stored one after another, by the rows of each.
fn stacked<'a, T>(numbers: &'a [T], names: &[&str], rows: &[usize], name: &str) -> Option<&'a [T]> {
    let at = names.iter().position(|known| *known == name)?;
    let width = numbers.len() / rows.iter().sum::<usize>().max(1);
    let first = rows[..at].iter().sum::<usize>() * width;
    numbers.get(first..first + rows[at] * width)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Weights,
        cpu::{crew::Crew, model::Source},
    };

    #[test]
    fn every_tensor_of_a_checkpoint_is_found_as_it_was_loaded() {
        for name in ["tiny", "tiny-qwen2", "tiny-llama", "decoder_tiny"] {
            let config = Config::from_preset(name).unwrap();
            let weights = Weights::synthetic(&config, 5);
            let crew = Crew::new(1).unwrap();
            let mut model = Model::<f32>::load(&config, Source { weights: Some(&weights), crew: &crew }).unwrap();
            for spec in config.tensors() {
                let expected = weights.tensor(&spec).unwrap().to_f32();
                assert!(model.numbers(&config, &spec).unwrap() == expected, "{name}: {}", spec.name);
            }
            let count = |part| match part {
                Part::Matrix(numbers) => <[f32]>::len(numbers),
                Part::Vector(numbers) => numbers.len(),
            };
            let all: usize = model.parts().into_iter().map(count).sum();
            assert_eq!(all as u64, config.parameters());
            let other =
                TensorSpec { name: "model.layers.9.mlp.down_proj.weight".to_owned(), ..config.embedding_tensor() };
            assert!(model.numbers(&config, &other).is_err());
        }
    }
}
