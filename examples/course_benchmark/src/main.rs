//! The benchmark of CS336 assignment 2 as a program of your own:
//! `laptime-example-course-benchmark [MODEL] [BATCH] [CONTEXT]`.

#![allow(clippy::print_stdout, reason = "the example is a program")]

use std::{env, thread::available_parallelism};

use laptime::Benchmark;
use laptime_models::{Config, Dtype, TrainOptions, Weights, cpu, random_batch};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let model = arguments.first().map_or("small", String::as_str);
    let number = |at: usize, usual: usize| arguments.get(at).map_or(Ok(usual), |text| text.parse());
    let (batch, context) = (number(1, 4)?, number(2, 128)?);
    run(model, batch, context)
}

/// Times forward, and forward with backward: ten iterations each, after five that do not count.
fn run(model: &str, batch: usize, context: usize) -> anyhow::Result<()> {
    let config = Config::from_preset(model)?;
    let (tokens, targets) = random_batch(&config, batch, context, 0)?;
    let options = TrainOptions::new(Dtype::F32, batch, context);
    let threads = available_parallelism()?.get();
    let mut trainer = cpu::trainer(config.clone(), &Weights::synthetic(&config, 0), options, threads)?;

    let benchmark = Benchmark::new().warmup(5).iterations(10);
    let forward = benchmark.run(|| trainer.forward(&tokens, &targets))?;
    let both = benchmark.run(|| trainer.forward(&tokens, &targets).and_then(|()| trainer.backward()))?;

    println!("{model}: {} parameters, batch {batch}, context {context}, {threads} threads", config.parameters());
    println!("forward            {forward}");
    println!("forward, backward  {both}, loss {:.4}", trainer.loss()?);
    Ok(())
}
