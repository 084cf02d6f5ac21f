//! The trainer on the CPU: its gradients are those of autograd, and its steps those of the reference.

use crate::common::{Fixture, TRAINED, fixture};
use crate::reference::{adamw, gradients::gradients};
use laptime_models::{AdamW, Attention, Dtype, Tokens, TrainOptions, Trainer, cpu, random_batch};

const BOTH: [Attention; 2] = [Attention::Naive, Attention::Dense];

/// The prompts of a fixture, with the next token of each as its target.
fn batch(fixture: &Fixture) -> (Tokens, Vec<u32>) {
    let rows = fixture.expected.ids.iter().zip(&fixture.expected.greedy);
    let targets = rows.flat_map(|(ids, greedy)| ids[1..].iter().chain(&greedy[..1]).copied()).collect();
    (fixture.tokens(), targets)
}

/// The largest distance of numbers, relative to the largest of those expected.
fn relative(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0, |most: f32, number| most.max(number.abs()));
    crate::common::distance(found, expected) / largest
}

#[test]
fn gradients_match_autograd_in_every_family() {
    for name in TRAINED {
        let fixture = fixture(name);
        let (tokens, targets) = batch(&fixture);
        let (config, weights) = (&fixture.config, &fixture.weights);
        let expected = gradients(config, weights, &tokens, &targets).unwrap();
        assert_eq!(expected.by_name.len(), config.tensors().len(), "{name}: no parameter is without a gradient");
        for attention in BOTH {
            let options = TrainOptions { attention, ..TrainOptions::new(Dtype::F32, tokens.batch, tokens.length()) };
            let mut trainer = cpu::trainer(config.clone(), weights, options, 2).unwrap();
            trainer.forward(&tokens, &targets).unwrap();
            trainer.backward().unwrap();
            assert!((trainer.loss().unwrap() - expected.loss).abs() < 1e-5 * expected.loss, "{name}");
            for tensor in config.tensors() {
                let gradient = trainer.gradient(&tensor).unwrap();
                assert!(gradient.iter().any(|number| *number != 0.0), "{name}: `{}` has no gradient", tensor.name);
                let off = relative(&gradient, &expected.by_name[&tensor.name]);
                assert!(off < 1e-4, "{name}, {attention:?}: `{}` is off by {off}", tensor.name);
            }
        }
    }
}

#[test]
fn steps_match_the_reference() {
    let settings = AdamW { lr: 0.02, betas: (0.8, 0.95), eps: 1e-6, weight_decay: 0.1 };
    for optimizer in [AdamW::default(), settings] {
        let reference = adamw::AdamW {
            learning_rate: optimizer.lr,
            first_beta: optimizer.betas.0,
            second_beta: optimizer.betas.1,
            eps: optimizer.eps,
            weight_decay: optimizer.weight_decay,
        };
        let Fixture { config, weights, .. } = fixture("nano");
        let (tokens, targets) = random_batch(&config, 1, 16, 11).unwrap();
        let options = TrainOptions { adamw: Some(optimizer), ..TrainOptions::new(Dtype::F32, 1, 16) };
        let mut trainer = cpu::trainer(config, &weights, options, 2).unwrap();
        let tensors = trainer.config().tensors();
        let read = |trainer: &mut dyn Trainer| -> Vec<Vec<f32>> {
            tensors.iter().map(|tensor| trainer.parameter(tensor).unwrap()).collect()
        };
        let mut expected = read(&mut *trainer);
        let mut moments: Vec<_> = tensors.iter().map(|tensor| adamw::Moments::new(tensor.count())).collect();
        for step in 1..=3 {
            trainer.forward(&tokens, &targets).unwrap();
            trainer.backward().unwrap();
            for ((tensor, numbers), moments) in tensors.iter().zip(&mut expected).zip(&mut moments) {
                adamw::adamw_step(&reference, numbers, &trainer.gradient(tensor).unwrap(), moments);
            }
            trainer.update().unwrap();
            assert_eq!(trainer.updates(), step);
            for ((found, expected), tensor) in read(&mut *trainer).iter().zip(&expected).zip(&tensors) {
                let off = crate::common::distance(found, expected);
                assert!(off < 1e-6, "step {step}: `{}` is off by {off}", tensor.name);
            }
        }
    }
}
