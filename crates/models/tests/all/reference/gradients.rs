//! The gradients of a training step by candle's autograd.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Result, Tensor};
use candle_nn::loss::cross_entropy;
use laptime_models::{Config, Tokens, Weights};

use super::{
    model::{Model, Parameters},
    pass::Pass,
};

/// The loss of a training step and its gradients.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// The mean cross-entropy over all positions.
    pub loss: f32,
    /// The gradient of the loss for every tensor of the model, row by row. That of a tied head is in the embedding's.
    pub by_name: BTreeMap<String, Vec<f32>>,
}

/// The loss of tokens, each followed by its target, and the gradient for every tensor. Computed in f64 and rounded at
/// the end.
pub fn gradients(config: &Config, weights: &Weights, tokens: &Tokens, targets: &[u32]) -> Result<Gradients> {
    let parameters = Parameters::load(config, weights, DType::F64)?;
    let (loss, tensors) = backward(config, &parameters, tokens, targets)?;
    let numbers = |(name, tensor): (String, Tensor)| Ok((name, tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?));
    let by_name = tensors.into_iter().map(numbers).collect::<Result<_>>()?;
    Ok(Gradients { loss: loss.to_dtype(DType::F32)?.to_scalar()?, by_name })
}

/// The loss, and the gradient for every tensor by its name.
fn backward(
    config: &Config,
    parameters: &Parameters,
    tokens: &Tokens,
    targets: &[u32],
) -> Result<(Tensor, BTreeMap<String, Tensor>)> {
    let parameters = parameters.trainable()?;
    let loss = loss(config, &parameters, tokens, targets)?;
    let mut store = loss.backward()?;
    let one = |(name, parameter): (&String, &Tensor)| (name.clone(), store.remove(parameter).unwrap());
    Ok((loss.detach(), parameters.by_name.iter().map(one).collect()))
}

/// The mean cross-entropy of the targets over all positions.
fn loss(config: &Config, parameters: &Parameters, tokens: &Tokens, targets: &[u32]) -> Result<Tensor> {
    let model = Model::new(config, parameters);
    let logits = Pass { config, model: &model, tokens }.run()?;
    cross_entropy(&logits, &Tensor::new(targets, &Device::Cpu)?)
}

#[cfg(test)]
mod tests {
    use laptime_models::{Family, Fill, Role, RopeLayout, TensorSpec, synthetic};

    use super::*;

    /// A model of two layers that is small enough to be tried number by number.
    fn small(preset: &str) -> Config {
        let config = Config::from_preset(preset).unwrap();
        let kv_heads = if config.kv_heads < config.heads { 2 } else { 4 };
        let hidden = if config.family == Family::Nano { 24 } else { 12 };
        Config { vocab: 11, hidden, layers: 2, heads: 4, kv_heads, head_dim: 6, ffn: 10, context: 512, ..config }
    }

    /// One of each family: norms by head and a tied head; biases; stretched wavelengths; pairs; biases of the
    /// feed-forward part.
    fn models() -> Vec<Config> {
        ["tiny", "tiny-qwen2", "tiny-llama", "small", "decoder_tiny"].map(small).to_vec()
    }

    fn tokens() -> (Tokens, Vec<u32>) {
        (Tokens { ids: vec![1, 5, 2, 5, 9, 0, 3, 7, 7, 4], batch: 2 }, vec![5, 2, 5, 10, 1, 3, 7, 6, 4, 8])
    }

    /// Numbers in f64 that are no round ones, norms not 1 and biases not small.
    fn parameters(config: &Config) -> Parameters {
        let one = |(key, spec): (usize, TensorSpec)| {
            let fill = Fill::Random { key: key as u64 + 1, amplitude: 0.5 };
            let around = if spec.role == Role::Norm { 1.0 } else { 0.0 };
            let numbers = fill.numbers(spec.count()).into_iter().map(|x| f64::from(x) + around).collect();
            (spec.name, Tensor::from_vec(numbers, spec.shape, &Device::Cpu).unwrap())
        };
        Parameters { by_name: config.tensors().into_iter().enumerate().map(one).collect() }
    }

    fn loss_of(config: &Config, parameters: &Parameters) -> f64 {
        let (tokens, targets) = tokens();
        loss(config, parameters, &tokens, &targets).unwrap().to_scalar().unwrap()
    }

    /// The loss with one number of a tensor moved.
    fn loss_beside(config: &Config, parameters: &Parameters, (name, at): (&str, usize), by: f64) -> f64 {
        let mut by_name = parameters.by_name.clone();
        let tensor = &parameters.by_name[name];
        let mut numbers: Vec<f64> = tensor.flatten_all().unwrap().to_vec1().unwrap();
        numbers[at] += by;
        by_name.insert(name.to_owned(), Tensor::from_vec(numbers, tensor.shape(), &Device::Cpu).unwrap());
        loss_of(config, &Parameters { by_name })
    }

    #[test]
    fn the_models_that_are_tried_are_of_every_kind() {
        let models = models();
        let families: Vec<Family> = models.iter().map(|config| config.family).collect();
        assert_eq!(families, [Family::Qwen3, Family::Qwen2, Family::Llama, Family::Course, Family::Nano]);
        assert!(models.iter().any(|config| config.qk_norm) && models.iter().any(|config| config.qkv_bias));
        assert!(models.iter().any(|config| config.ffn_bias) && models.iter().any(|config| config.tied));
        assert!(models.iter().any(|config| config.rope.layout == RopeLayout::Pairs));
        assert!(models.iter().any(|config| config.rope.scaling.is_some()));
        assert!(models.iter().any(|config| config.kv_heads < config.heads));
    }

    #[test]
    fn the_gradient_of_every_tensor_is_the_slope_of_the_loss() {
        const STEP: f64 = 1e-5;
        let (tokens, targets) = tokens();
        for config in models() {
            let parameters = parameters(&config);
            let (_, gradients) = backward(&config, &parameters, &tokens, &targets).unwrap();
            for spec in config.tensors() {
                let gradient: Vec<f64> = gradients[&spec.name].flatten_all().unwrap().to_vec1().unwrap();
                assert!(gradient.iter().any(|slope| *slope != 0.0), "{}: {}", config.name, spec.name);
                for turn in 0..4 {
                    let at = synthetic::key(turn, &spec.name) as usize % gradient.len();
                    let beside = |by| loss_beside(&config, &parameters, (&spec.name, at), by);
                    let slope = (beside(STEP) - beside(-STEP)) / (2.0 * STEP);
                    let within = 1e-4 * gradient[at].abs().max(1e-5);
                    let (name, found) = (&spec.name, gradient[at]);
                    assert!((slope - found).abs() <= within, "{} {name}[{at}]: {found} and not {slope}", config.name);
                }
            }
        }
    }
}
