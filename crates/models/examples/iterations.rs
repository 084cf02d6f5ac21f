//! Times iterations of a pass on the CPU: one for each line of standard input, in milliseconds.
//!
//! `iterations MODEL BATCH TOKENS naive|dense f32|bf16|f16 forward|prefill|step THREADS`
//!
//! `scripts/compare-pytorch-cpu` runs it next to PyTorch.

#![allow(clippy::print_stdout)]

use std::{env, error::Error, io::stdin, time::Instant};

use laptime_models::{Attention, CacheCapacity, Config, Options, Tokens, Weights, cpu};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, batch, tokens, attention, dtype, pass, threads] = arguments.as_slice() else {
        return Err("MODEL BATCH TOKENS naive|dense f32|bf16|f16 forward|prefill|step THREADS".into());
    };
    let begun = Instant::now();
    let config = Config::from_preset(model)?;
    let (batch, tokens): (usize, usize) = (batch.parse()?, tokens.parse()?);
    let attention = if attention == "naive" { Attention::Naive } else { Attention::Dense };
    let options = Options { attention, batch, ..Options::new(dtype.parse()?, CacheCapacity::Growing) };
    let ids = (0..batch * tokens).map(|at| (at * 7919 % config.vocab) as u32).collect();
    let tokens = Tokens { ids, batch };
    let mut decoder = cpu::decoder(config.clone(), &Weights::synthetic(&config, 1), options, threads.parse()?)?;
    if pass == "step" {
        decoder.prefill(&tokens)?;
        println!("first token after {:.1} ms", begun.elapsed().as_secs_f64() * 1e3);
    }
    for line in stdin().lines() {
        line?;
        let length = decoder.length();
        let begun = Instant::now();
        match pass.as_str() {
            "forward" => decoder.forward(&tokens)?,
            "prefill" => decoder.prefill(&tokens)?,
            _ => decoder.step()?,
        }
        println!("{:.4}", begun.elapsed().as_secs_f64() * 1e3);
        decoder.truncate(length)?;
    }
    Ok(())
}
