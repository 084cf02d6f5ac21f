//! The trainer on the CPU: it learns with every model, and refuses invalid requests.

use crate::common::{FIXTURES, fixture};
use laptime_models::{
    Attention, CacheCapacity, Config, Dtype, GraphMode, Marks, Options, Tokens, TrainOptions, Trainer, Weights, cpu,
    random_batch,
};

const BOTH: [Attention; 2] = [Attention::Naive, Attention::Dense];

/// One of each kind: norms by head and a tied head; biases; stretched wavelengths; biases of the feed-forward part.
const MODELS: [&str; 4] = ["tiny", "tiny-qwen2", "tiny-llama", "nano"];

/// A preset, or the model of a fixture.
fn config(model: &str) -> Config {
    if FIXTURES.contains(&model) { fixture(model).config } else { Config::from_preset(model).unwrap() }
}

/// A trainer with random tokens and their targets.
fn trainer(model: &str, options: TrainOptions, threads: usize) -> (Box<dyn Trainer>, Tokens, Vec<u32>) {
    let config = config(model);
    let (tokens, targets) = random_batch(&config, options.batch, options.tokens, 11).unwrap();
    let weights = Weights::synthetic(&config, 3);
    (cpu::trainer(config, &weights, options, threads).unwrap(), tokens, targets)
}

/// The largest distance of numbers, relative to the largest of those expected.
fn relative(found: &[f32], expected: &[f32]) -> f32 {
    let largest = expected.iter().fold(0.0, |most: f32, number| most.max(number.abs()));
    crate::common::distance(found, expected) / largest
}

#[test]
fn bf16_gradients_are_close_to_f32_ones() {
    for model in MODELS {
        for attention in BOTH {
            let options = TrainOptions { attention, ..TrainOptions::new(Dtype::F32, 2, 70) };
            let halves = TrainOptions { dtype: Dtype::Bf16, ..options.clone() };
            let [mut exact, mut halves] = [options, halves].map(|options| {
                let (mut trainer, tokens, targets) = trainer(model, options, 2);
                trainer.forward(&tokens, &targets).unwrap();
                trainer.backward().unwrap();
                trainer
            });
            assert!((exact.loss().unwrap() - halves.loss().unwrap()).abs() < 0.03);
            for tensor in exact.config().tensors() {
                let off = relative(&halves.gradient(&tensor).unwrap(), &exact.gradient(&tensor).unwrap());
                assert!(off < 0.12, "{model}, {attention:?}: `{}` is off by {off}", tensor.name);
            }
        }
    }
}

#[test]
fn the_loss_matches_the_logits_of_the_decoder() {
    let (mut trainer, tokens, targets) = trainer("tiny", TrainOptions::new(Dtype::F32, 2, 40), 2);
    trainer.forward(&tokens, &targets).unwrap();
    let config = trainer.config().clone();
    let options = Options {
        dtype: Dtype::F32,
        attention: Attention::Naive,
        kept: None,
        batch: 2,
        capacity: CacheCapacity::Growing,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    };
    let mut decoder = cpu::decoder(config.clone(), &Weights::synthetic(&config, 3), options, 2).unwrap();
    decoder.forward(&tokens).unwrap();
    let row_loss = |(row, target): (&[f32], &u32)| {
        let sum: f64 = row.iter().map(|logit| f64::from(*logit).exp()).sum();
        sum.ln() - f64::from(row[*target as usize])
    };
    let loss = decoder.logits().unwrap().chunks(config.vocab).zip(&targets).map(row_loss).sum::<f64>() / 80.0;
    assert!((f64::from(trainer.loss().unwrap()) - loss).abs() < 1e-5);
}

/// The losses of steps on one batch.
fn losses(model: &str, options: TrainOptions, steps: usize) -> Vec<f32> {
    let (mut trainer, tokens, targets) = trainer(model, options, 2);
    let mut step = |_| {
        trainer.forward(&tokens, &targets).unwrap();
        trainer.backward().unwrap();
        trainer.update().unwrap();
        trainer.loss().unwrap()
    };
    (0..steps).map(&mut step).collect()
}

#[test]
fn the_loss_falls_over_twenty_steps_on_one_batch() {
    for model in MODELS {
        for (dtype, attention) in
            [(Dtype::F32, Attention::Naive), (Dtype::F32, Attention::Dense), (Dtype::Bf16, Attention::Dense)]
        {
            let losses = losses(model, TrainOptions { attention, ..TrainOptions::new(dtype, 2, 24) }, 20);
            assert!(losses[19] < 0.8 * losses[0], "{model}, {dtype}: {losses:?}");
            assert!(losses.windows(2).all(|pair| pair[1] < pair[0] + 0.05), "{model}, {dtype}: {losses:?}");
        }
    }
}

#[test]
fn the_same_steps_give_the_same_numbers() {
    for attention in BOTH {
        let options = TrainOptions { attention, ..TrainOptions::new(Dtype::F32, 3, 50) };
        assert_eq!(losses("tiny-qwen2", options.clone(), 3), losses("tiny-qwen2", options, 3));
    }
}

#[test]
fn backward_overwrites_the_gradients_of_the_previous_batch() {
    for model in MODELS {
        let options = TrainOptions::new(Dtype::F32, 1, 30);
        let (mut fresh, tokens, targets) = trainer(model, options.clone(), 2);
        let (mut used, ..) = trainer(model, options, 2);
        let (others, other_targets) = random_batch(used.config(), 1, 30, 99).unwrap();
        used.forward(&others, &other_targets).unwrap();
        used.backward().unwrap();
        for trainer in [&mut fresh, &mut used] {
            trainer.forward(&tokens, &targets).unwrap();
            trainer.backward().unwrap();
        }
        for tensor in fresh.config().tensors() {
            assert!(fresh.gradient(&tensor).unwrap() == used.gradient(&tensor).unwrap(), "{model}: `{}`", tensor.name);
        }
    }
}

#[test]
fn calls_out_of_order_are_refused_with_the_reason() {
    let (mut trainer, tokens, targets) = trainer("tiny", TrainOptions::new(Dtype::F32, 1, 8), 1);
    let embedding = trainer.config().embedding_tensor();
    let none = "backward needs a forward pass first";
    assert_eq!(trainer.backward().unwrap_err().to_string(), none);
    assert_eq!(trainer.update().unwrap_err().to_string(), "there are no gradients before a backward pass");
    assert_eq!(trainer.loss().unwrap_err().to_string(), "there is no loss before a forward pass");
    trainer.forward(&tokens, &targets).unwrap();
    assert!(trainer.gradient(&embedding).is_err());
    trainer.backward().unwrap();
    assert_eq!(trainer.backward().unwrap_err().to_string(), none);
    trainer.forward(&tokens, &targets).unwrap();
    assert!(trainer.gradient(&embedding).is_ok(), "those of the last backward are still there");
    assert!(trainer.forward(&Tokens::one(vec![1; 9]), &targets).is_err());
    let config = trainer.config().clone();
    let weights = Weights::synthetic(&config, 1);
    let halves = TrainOptions::new(Dtype::F16, 1, 8);
    assert!(cpu::trainer(config, &weights, halves, 1).is_err());
}

#[test]
fn a_family_without_gradients_is_refused_by_name() {
    let config = config("tiny-gemma3");
    let weights = Weights::synthetic(&config, 1);
    let refused = cpu::trainer(config, &weights, TrainOptions::new(Dtype::F32, 1, 8), 1).err().unwrap();
    let expected = "`tiny-gemma3` cannot be trained: the gradients of gemma3 models are not implemented";
    assert_eq!(refused.to_string(), expected);
}

#[test]
fn memory_is_recorded_during_a_step() {
    let options = TrainOptions::new(Dtype::F32, 2, 16);
    let (mut trainer, tokens, targets) = trainer("tiny", options.clone(), 1);
    let need = trainer.config().train_need(&options);
    assert_eq!((trainer.memory().weights, trainer.memory().total()), (need.weights, need.weights));
    trainer.forward(&tokens, &targets).unwrap();
    assert_eq!(trainer.memory().activations, need.activations);
    trainer.backward().unwrap();
    assert_eq!((trainer.memory().activations, trainer.memory().gradients), (0, need.gradients));
    trainer.update().unwrap();
    assert_eq!(trainer.memory().optimizer, need.optimizer);
}
