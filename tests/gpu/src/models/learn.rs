//! Whether a model learns on a GPU as it does on the CPU, and how fast.

use laptime_models::gpu::{train_needed_bytes, trainer};
use laptime_models::{AdamW, Attention, Config, Dtype, Marks, TrainOptions, Trainer, Weights, cpu, random_batch};

use crate::models::{fixture::distance, speed::median};
use crate::{Answer, Bench, Failed, expect};

const KINDS: [Attention; 2] = [Attention::Naive, Attention::Dense];

fn options(dtype: Dtype, attention: Attention, batch: usize, tokens: usize) -> TrainOptions {
    TrainOptions { dtype, attention, batch, tokens, marks: Marks::default(), adamw: Some(AdamW::default()) }
}

/// How far gradients may be from the CPU's, as a share of the largest of their tensor.
fn near(dtype: Dtype) -> f32 {
    if dtype == Dtype::F32 { 1e-4 } else { 0.08 }
}

pub fn gradients(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for preset in ["tiny", "tiny-qwen2", "tiny-llama", "decoder_tiny"] {
        let config = Config::from_preset(preset)?;
        let weights = Weights::synthetic(&config, 5);
        let (tokens, targets) = random_batch(&config, 2, 33, 1)?;
        for (dtype, kind) in [Dtype::F32, Dtype::Bf16].into_iter().flat_map(|dtype| KINDS.map(|kind| (dtype, kind))) {
            let mut ours = trainer(&bench.device, &config, &weights, options(dtype, kind, 2, 33))?;
            let exact = options(Dtype::F32, Attention::Naive, 2, 33);
            let mut theirs = cpu::trainer(config.clone(), &weights, exact, 8)?;
            ours.forward(&tokens, &targets)?;
            theirs.forward(&tokens, &targets)?;
            let (loss, expected) = (ours.loss()?, theirs.loss()?);
            expect((loss - expected).abs() <= near(dtype) * expected, || {
                format!("{preset} {dtype} {kind:?}: loss {loss} and not {expected}")
            })?;
            ours.backward()?;
            theirs.backward()?;
            let mut furthest = 0.0_f32;
            for tensor in config.tensors() {
                let expected = theirs.gradient(&tensor)?;
                let largest = expected.iter().fold(1e-12_f32, |most, value| most.max(value.abs()));
                let apart = distance(&ours.gradient(&tensor)?, &expected)? / largest;
                expect(apart <= near(dtype), || {
                    format!("{preset} {dtype} {kind:?}: {} is {apart:.1e} of its largest apart", tensor.name)
                })?;
                furthest = furthest.max(apart);
            }
            told.push(format!("{preset} {dtype} {kind:?} {furthest:.0e}"));
        }
    }
    Ok(told.join(", "))
}

pub fn steps(bench: &Bench) -> Answer {
    let config = Config::from_preset("tiny")?;
    let weights = Weights::synthetic(&config, 5);
    let (tokens, targets) = random_batch(&config, 2, 32, 1)?;
    let options = options(Dtype::F32, Attention::Naive, 2, 32);
    let mut ours = trainer(&bench.device, &config, &weights, options.clone())?;
    let mut theirs = cpu::trainer(config.clone(), &weights, options, 8)?;
    let mut losses = Vec::new();
    for step in 0..20 {
        let trainers: [&mut dyn Trainer; 2] = [&mut *ours, &mut *theirs];
        let mut pair = Vec::new();
        for trainer in trainers {
            trainer.forward(&tokens, &targets)?;
            trainer.backward()?;
            pair.push(trainer.loss()?);
            trainer.update()?;
        }
        expect((pair[0] - pair[1]).abs() <= 1e-3 * pair[1], || format!("step {step}: {} and {}", pair[0], pair[1]))?;
        losses.push(pair[0]);
    }
    let (first, last) = (losses[0], losses[losses.len() - 1]);
    expect(last < 0.8 * first, || format!("the loss went from {first} to {last}"))?;
    expect(ours.backward().is_err(), || "there was a backward without a forward".to_owned())?;
    Ok(format!("the loss of 20 steps went from {first:.3} to {last:.3}, as on the CPU"))
}

pub fn speed(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for name in ["small", "large", "2.7B"] {
            told.push(course(bench, name, dtype, Attention::Naive)?);
        }
        told.push(course(bench, "large", dtype, Attention::Dense)?);
    }
    Ok(told.join("\n"))
}

fn course(bench: &Bench, name: &str, dtype: Dtype, attention: Attention) -> Result<String, Failed> {
    let config = Config::from_preset(name)?;
    let (tokens, targets) = random_batch(&config, 4, 512, 1)?;
    bench.device.give_back_memory()?;
    bench.device.reset_peak()?;
    let weights = Weights::synthetic(&config, 1);
    let options = options(dtype, attention, 4, 512);
    let mut trainer = trainer(&bench.device, &config, &weights, options.clone())?;
    let both = median(bench, 5, || {
        trainer.forward(&tokens, &targets)?;
        Ok(trainer.backward()?)
    })?;
    let step = median(bench, 5, || {
        trainer.forward(&tokens, &targets)?;
        trainer.backward()?;
        Ok(trainer.update()?)
    })?;
    let (peak, predicted) = (bench.device.peak_memory()?.bytes(), train_needed_bytes(&config, &options));
    let [measured, counted] = [peak, predicted].map(|bytes| activations(bytes, &config, &options));
    let told = format!(
        "{name} {dtype} {attention:?}: forward and backward {both:.2} ms, step {step:.2} ms, peak {} MiB, of them {} MiB \
         activations ({} predicted)",
        peak >> 20,
        measured >> 20,
        counted >> 20
    );
    let is_near = measured.abs_diff(counted) * 10 <= measured;
    expect(is_near, || format!("{told}: more than a tenth apart"))?;
    Ok(told)
}

/// What of a trainer's memory is neither parameters nor of their size.
fn activations(bytes: u64, config: &Config, options: &TrainOptions) -> u64 {
    let need = config.train_need(options);
    bytes.saturating_sub(need.weights + need.gradients + need.optimizer)
}
