//! The gradients of a training step by candle's autograd.

use std::collections::BTreeMap;

use candle_core::{DType, Device, Tensor};
use candle_nn::loss::cross_entropy;

use super::{
    model::Model,
    operations::Operations,
    parameters::Parameters,
    pass::{Pass, Positions},
};
use crate::{Config, Marks, ModelError, Tokens, Weights, rope::RopeTable};

/// What a training step learns before it changes anything.
#[derive(Debug, Clone, PartialEq)]
pub struct Gradients {
    /// The mean cross-entropy over all positions.
    pub loss: f32,
    /// The gradient of the loss for every tensor of the model, row by row. That of a tied head is in the embedding's.
    pub by_name: BTreeMap<String, Vec<f32>>,
}

/// The loss of tokens, each followed by its target, and the gradient for every tensor, in f32.
pub fn gradients(
    config: &Config,
    weights: &Weights,
    tokens: &Tokens,
    targets: &[u32],
) -> Result<Gradients, ModelError> {
    gradients_in(DType::F32, config, weights, tokens, targets)
}

/// As [`gradients`], computed in f64 and rounded at the end.
pub fn gradients_in_f64(
    config: &Config,
    weights: &Weights,
    tokens: &Tokens,
    targets: &[u32],
) -> Result<Gradients, ModelError> {
    gradients_in(DType::F64, config, weights, tokens, targets)
}

fn gradients_in(
    dtype: DType,
    config: &Config,
    weights: &Weights,
    tokens: &Tokens,
    targets: &[u32],
) -> Result<Gradients, ModelError> {
    config.check()?;
    check(config, tokens, targets)?;
    let parameters = Parameters::load(config, weights, dtype)?;
    let (loss, tensors) = backward(config, &parameters, tokens, targets)?;
    let numbers = |(name, tensor): (String, Tensor)| Ok((name, tensor.to_dtype(DType::F32)?.flatten_all()?.to_vec1()?));
    let by_name = tensors.into_iter().map(numbers).collect::<Result<_, ModelError>>()?;
    Ok(Gradients { loss: loss.to_dtype(DType::F32)?.to_scalar()?, by_name })
}

/// Refuses targets that are not one for each token, or beyond the vocabulary.
fn check(config: &Config, tokens: &Tokens, targets: &[u32]) -> Result<(), ModelError> {
    tokens.check(config)?;
    if tokens.length() > config.context {
        let (tokens, what, room) = (tokens.length(), config.name.clone(), config.context);
        return Err(ModelError::TooLong { tokens, what, room });
    }
    if targets.len() != tokens.ids.len() {
        let (targets, tokens) = (targets.len(), tokens.ids.len());
        return Err(ModelError::Refused(format!("{targets} targets are not one for each of {tokens} tokens")));
    }
    Tokens { ids: targets.to_vec(), batch: tokens.batch }.check(config)
}

/// The loss, and the gradient for every tensor by its name.
fn backward(
    config: &Config,
    parameters: &Parameters,
    tokens: &Tokens,
    targets: &[u32],
) -> Result<(Tensor, BTreeMap<String, Tensor>), ModelError> {
    Device::Cpu.with_context(|| {
        let parameters = parameters.trainable()?;
        let loss = loss(config, &parameters, tokens, targets)?;
        let mut store = loss.backward()?;
        let one = |(name, parameter): (&String, &Tensor)| match store.remove(parameter) {
            Some(gradient) => Ok((name.clone(), gradient)),
            None => Err(ModelError::Refused(format!("no gradient reached `{name}`"))),
        };
        let by_name = parameters.by_name.iter().map(one).collect::<Result<_, _>>()?;
        Ok((loss.detach(), by_name))
    })
}

/// The mean cross-entropy of the targets over all positions.
fn loss(config: &Config, parameters: &Parameters, tokens: &Tokens, targets: &[u32]) -> Result<Tensor, ModelError> {
    let model = Model::new(config, parameters)?;
    let dtype = model.embedding.dtype();
    let pass = Pass {
        config,
        marks: &Marks::default(),
        model: &model,
        operations: Operations::Differentiable,
        batch: tokens.batch,
        tokens: tokens.length(),
        is_last_only: false,
    };
    let positions = Positions::new(&mut RopeTable::new(config), dtype, 0, tokens.length())?;
    let logits = pass.run(&tokens.ids, &positions, None)?;
    Ok(cross_entropy(&logits, &Tensor::new(targets, &Device::Cpu)?)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Family, RopeLayout, synthetic::Fill};

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
        let one = |(key, spec): (usize, crate::TensorSpec)| {
            let fill = Fill::Random { key: key as u64 + 1, amplitude: 0.5 };
            let around = if spec.role == crate::Role::Norm { 1.0 } else { 0.0 };
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
                    let at = crate::synthetic::key(turn, &spec.name) as usize % gradient.len();
                    let beside = |by| loss_beside(&config, &parameters, (&spec.name, at), by);
                    let slope = (beside(STEP) - beside(-STEP)) / (2.0 * STEP);
                    let within = 1e-4 * gradient[at].abs().max(1e-5);
                    let (name, found) = (&spec.name, gradient[at]);
                    assert!((slope - found).abs() <= within, "{} {name}[{at}]: {found} and not {slope}", config.name);
                }
            }
        }
    }

    #[test]
    fn gradients_have_the_names_and_sizes_of_the_tensors_in_both_types() {
        let (tokens, targets) = tokens();
        for config in models() {
            let weights = Weights::synthetic(&config, 5);
            let short = gradients(&config, &weights, &tokens, &targets).unwrap();
            let long = gradients_in_f64(&config, &weights, &tokens, &targets).unwrap();
            assert!((short.loss - long.loss).abs() < 1e-5 && short.loss.is_finite());
            assert_eq!(short.by_name.len(), config.tensors().len());
            for spec in config.tensors() {
                let (short, long) = (&short.by_name[&spec.name], &long.by_name[&spec.name]);
                assert_eq!((short.len(), long.len()), (spec.count(), spec.count()));
                let largest = long.iter().fold(0.0, |most: f32, slope| most.max(slope.abs()));
                assert!(largest > 0.0, "{}", spec.name);
                let near = short.iter().zip(long).all(|(short, long)| (short - long).abs() <= 1e-4 * largest);
                assert!(near, "{}", spec.name);
            }
        }
    }

    #[test]
    fn targets_that_make_no_sense_are_refused() {
        let config = Config::from_preset("tiny").unwrap();
        let weights = Weights::synthetic(&config, 1);
        let refusal = |ids: Vec<u32>, targets: &[u32]| {
            gradients(&config, &weights, &Tokens::one(ids), targets).unwrap_err().to_string()
        };
        assert_eq!(refusal(vec![1, 2], &[1]), "1 targets are not one for each of 2 tokens");
        assert_eq!(refusal(vec![1, 2], &[1, 512]), "token 512 is beyond the 512 of `tiny`");
        assert_eq!(refusal(vec![], &[]), "there are no tokens to run");
        assert_eq!(refusal(vec![0; 513], &[0; 513]), "513 tokens do not fit: `tiny` has 512");
    }
}
