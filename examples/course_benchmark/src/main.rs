//! The course's benchmark as a program of one's own: `laptime-example-course-benchmark [MODEL] [BATCH] [CONTEXT]`.

#![allow(clippy::print_stdout, reason = "the example is a program")]

use std::{env, thread::available_parallelism, time::Instant};

use laptime_models::{Config, Dtype, ModelError, TrainOptions, Trainer, Weights, cpu::CpuTrainer, random_batch};
use laptime_stats::{Sorted, Summary};

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let model = arguments.first().map_or("small", String::as_str);
    let number = |at: usize, usual: usize| arguments.get(at).map_or(Ok(usual), |text| text.parse());
    let (batch, context) = (number(1, 4)?, number(2, 128)?);
    run(model, batch, context)
}

/// The benchmark itself.
fn run(model: &str, batch: usize, context: usize) -> anyhow::Result<()> {
    let config = Config::from_preset(model)?;
    let (tokens, targets) = random_batch(&config, batch, context, 0)?;
    let options = TrainOptions::new(Dtype::F32, batch, context);
    let threads = available_parallelism()?.get();
    let mut trainer = CpuTrainer::new(config.clone(), &Weights::synthetic(&config, 0), options, threads)?;
    let forward = benchmark(|| trainer.forward(&tokens, &targets))?;
    let both = benchmark(|| trainer.forward(&tokens, &targets).and_then(|()| trainer.backward()))?;
    println!("{model}: {} parameters, batch {batch}, context {context}, {threads} threads", config.parameters());
    println!("forward           {:9.3} ms, std {:.3}", forward.mean, forward.std.unwrap_or_default());
    println!(
        "forward, backward {:9.3} ms, std {:.3}, loss {:.4}",
        both.mean,
        both.std.unwrap_or_default(),
        trainer.loss()?
    );
    Ok(())
}

/// Milliseconds of ten steps, after five that are not counted.
fn benchmark(mut step: impl FnMut() -> Result<(), ModelError>) -> anyhow::Result<Summary> {
    let mut timed = || -> anyhow::Result<f64> {
        let begun = Instant::now();
        step()?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    };
    (0..5).try_for_each(|_| timed().map(drop))?;
    let samples = (0..10).map(|_| timed()).collect::<Result<Vec<f64>, _>>()?;
    Summary::of(&Sorted::<f64>::from_unsorted(samples)?, 0).ok_or_else(|| anyhow::anyhow!("nothing was measured"))
}
