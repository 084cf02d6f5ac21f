//! One pass on the CPU by ours and by candle, in turns: the median and the least milliseconds of each, and how many
//! times as long candle takes.
//!
//! `engines MODEL BATCH TOKENS f32|bf16|f16 forward|prefill|step TURNS`
//!
//! The threads are those of candle: `RAYON_NUM_THREADS`, or one for each core.

#![allow(clippy::print_stdout)]

use std::{env, error::Error, time::Instant};

use laptime_models::{
    Attention, Config, Decoder, GraphMode, Marks, Options, Room, Tokens, Weights,
    candle::{CandleDecoder, threads},
    cpu::CpuDecoder,
};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let [model, batch, tokens, dtype, pass, turns] = arguments.as_slice() else {
        return Err("MODEL BATCH TOKENS f32|bf16|f16 forward|prefill|step TURNS".into());
    };
    let config = Config::from_preset(model)?;
    let (batch, tokens): (usize, usize) = (batch.parse()?, tokens.parse()?);
    let (attention, room, graph, marks) = (Attention::Naive, Room::Growing, GraphMode::Auto, Marks::default());
    let options = Options { dtype: dtype.parse()?, attention, kept: None, batch, room, graph, marks, offload: None };
    let ids = (0..batch * tokens).map(|at| (at * 7919 % config.vocab) as u32).collect();
    let tokens = Tokens { ids, batch };
    let weights = Weights::synthetic(&config, 1);
    let mut ours = CpuDecoder::new(config.clone(), &weights, options.clone(), threads())?;
    let mut candle = CandleDecoder::new(config, &weights, options, threads())?;
    let (mut first, mut second) = (Vec::new(), Vec::new());
    for _ in 0..turns.parse::<usize>()? {
        first.push(take(&mut ours, &tokens, pass)?);
        second.push(take(&mut candle, &tokens, pass)?);
    }
    for (what, part) in [("median", 0.5), ("least", 0.0)] {
        let (ours, candle) = (quantile(&mut first, part), quantile(&mut second, part));
        println!("{what} on {} threads: ours {ours:.2} ms, candle {candle:.2} ms, {:.2}x", threads(), candle / ours);
    }
    Ok(())
}

/// Milliseconds of a pass; a prefill and a step leave the cache as it was.
fn take(decoder: &mut dyn Decoder, tokens: &Tokens, pass: &str) -> Result<f64, Box<dyn Error>> {
    if pass == "step" && decoder.length() == 0 {
        decoder.prefill(tokens)?;
    }
    let length = decoder.length();
    let begun = Instant::now();
    match pass {
        "forward" => decoder.forward(tokens)?,
        "prefill" => decoder.prefill(tokens)?,
        _ => decoder.step()?,
    }
    let milliseconds = begun.elapsed().as_secs_f64() * 1e3;
    decoder.truncate(length)?;
    Ok(milliseconds)
}

fn quantile(numbers: &mut [f64], part: f64) -> f64 {
    numbers.sort_by(f64::total_cmp);
    numbers.get((numbers.len() as f64 * part) as usize).copied().unwrap_or(f64::NAN)
}
