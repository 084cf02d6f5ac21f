//! Times iterations of a training pass on the CPU: one for each line of standard input, in milliseconds.
//!
//! `train_iterations MODEL BATCH TOKENS naive|dense f32|bf16 forward|backward|forward_backward|step THREADS`
//!
//! `scripts/compare-pytorch-cpu` runs it next to PyTorch.

#![allow(clippy::print_stdout)]

use std::{env, error::Error, io::stdin, time::Instant};

use laptime_models::{Attention, Config, TrainOptions, Weights, cpu, random_batch};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, batch, tokens, attention, dtype, pass, threads] = arguments.as_slice() else {
        return Err("MODEL BATCH TOKENS naive|dense f32|bf16 forward|backward|forward_backward|step THREADS".into());
    };
    let config = Config::from_preset(model)?;
    let (batch, tokens): (usize, usize) = (batch.parse()?, tokens.parse()?);
    let attention = if attention == "naive" { Attention::Naive } else { Attention::Dense };
    let options = TrainOptions { attention, ..TrainOptions::new(dtype.parse()?, batch, tokens) };
    let (tokens, targets) = random_batch(&config, batch, tokens, 1)?;
    let mut trainer = cpu::trainer(config.clone(), &Weights::synthetic(&config, 1), options, threads.parse()?)?;
    for line in stdin().lines() {
        line?;
        let mut begun = Instant::now();
        trainer.forward(&tokens, &targets)?;
        if pass == "backward" {
            begun = Instant::now();
        }
        if pass != "forward" {
            trainer.backward()?;
        }
        if pass == "step" {
            trainer.update()?;
        }
        println!("{:.4}", begun.elapsed().as_secs_f64() * 1e3);
    }
    Ok(())
}
