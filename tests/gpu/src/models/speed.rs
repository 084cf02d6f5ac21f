//! How fast the decoder is on a GPU; times of the host, synchronised at both ends, medians.

use std::time::Instant;

use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, Options, PassWork, Tokens, Weights,
    gpu::GpuModel,
};

use crate::{Answer, Bench, Failed, expect, harness};

pub fn small(bench: &Bench) -> Answer {
    preset(bench, "Qwen3-0.6B", Dtype::Bf16)
}

pub fn large(bench: &Bench) -> Answer {
    preset(bench, "Qwen3-4B", Dtype::Bf16)
}

pub fn quantised(bench: &Bench) -> Answer {
    preset(bench, "Qwen3-4B", Dtype::Fp8)
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// FLOP/s and bytes/s that no GPU reaches: faster work was not done.
const FLOPS_S: f64 = 1e16;
const BYTES_S: f64 = 5e13;

/// Refuses a time in which the work cannot have been done.
pub fn check_time(what: &str, milliseconds: f64, work: &PassWork) -> Result<(), Failed> {
    let work = work.total();
    let least = 1e3 * (work.flops as f64 / FLOPS_S).max(work.bytes_read() as f64 / BYTES_S);
    expect(milliseconds >= least, || format!("{what}: {milliseconds:.6} ms, and no GPU does it below {least:.6} ms"))
}

/// Refuses logits that are no numbers.
fn check_logits(what: &str, decoder: &mut dyn Decoder) -> Result<(), Failed> {
    let mut are_finite = true;
    decoder.inspect_logits(&mut |row| are_finite &= row.iter().all(|logit| logit.is_finite()))?;
    expect(are_finite, || format!("{what}: the logits are no finite numbers"))
}

/// The median time of this many calls, after three that do not count.
pub fn median(bench: &Bench, times: usize, mut run: impl FnMut() -> Result<(), Failed>) -> Result<f64, Failed> {
    let mut taken = Vec::new();
    for turn in 0..times + 3 {
        bench.device.synchronise()?;
        let began = Instant::now();
        run()?;
        bench.device.synchronise()?;
        if turn >= 3 {
            taken.push(milliseconds(began));
        }
    }
    Ok(harness::median(taken))
}

fn preset(bench: &Bench, name: &str, dtype: Dtype) -> Answer {
    let config = Config::from_preset(name)?;
    let weights = Weights::synthetic(&config, 1);
    let began = Instant::now();
    let model = GpuModel::load(&bench.device, &config, &weights, dtype, None)?;
    let mut told = vec![format!("weights in {:.0} ms", milliseconds(began))];
    let prompt = Tokens::one((0..512).collect());
    let mut said: Vec<Vec<u32>> = Vec::new();
    for graph in [GraphMode::On, GraphMode::Off] {
        let options = Options {
            dtype,
            attention: Attention::Dense,
            kept: None,
            batch: 1,
            capacity: CacheCapacity::Static(1024),
            graph,
            marks: Marks::default(),
            offload: None,
        };
        let mut decoder = model.decoder(&bench.device, None, options)?;
        let prefill = median(bench, 20, || {
            decoder.truncate(0)?;
            Ok(decoder.prefill(&prompt)?)
        })?;
        let tokens = median(bench, 10, || {
            decoder.truncate(512)?;
            (0..64).try_for_each(|_| decoder.step())?;
            Ok(())
        })?;
        let of_prompt = config.prefill_work(1, 512, 0, Attention::Dense, dtype);
        check_time("prefill", prefill, &of_prompt)?;
        check_time("token", tokens / 64.0, &config.step_work(1, 512, dtype))?;
        check_logits(name, &mut *decoder)?;
        said.push(greedy(&mut *decoder, &prompt)?);
        told.push(format!("{graph:?}: prefill 512 {prefill:.3} ms, token at 512 {:.4} ms", tokens / 64.0));
    }
    expect(said[0] == said[1], || format!("with a graph it says {:?}, without {:?}", said[0], said[1]))?;
    Ok(told.join("\n"))
}

/// A few tokens after a prompt.
fn greedy(decoder: &mut dyn Decoder, prompt: &Tokens) -> Result<Vec<u32>, Failed> {
    decoder.truncate(0)?;
    decoder.prefill(prompt)?;
    let mut tokens = decoder.sampled()?;
    for _ in 0..8 {
        decoder.step()?;
        tokens.extend(decoder.sampled()?);
    }
    Ok(tokens)
}

pub fn course(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for dtype in [Dtype::F32, Dtype::Bf16] {
        for name in ["small", "large", "2.7B"] {
            let config = Config::from_preset(name)?;
            let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 1), dtype, None)?;
            for attention in [Attention::Naive, Attention::Dense] {
                let options = Options {
                    dtype,
                    attention,
                    kept: None,
                    batch: 4,
                    capacity: CacheCapacity::Static(1),
                    graph: GraphMode::Off,
                    marks: Marks::default(),
                    offload: None,
                };
                let mut decoder = model.decoder(&bench.device, None, options)?;
                let tokens = Tokens { ids: (0..4 * 512).map(|at| at % 10_000).collect(), batch: 4 };
                let forward = median(bench, 10, || Ok(decoder.forward(&tokens)?))?;
                let what = format!("{name} {dtype} {attention:?}");
                check_time(&what, forward, &config.forward_work(4, 512, attention, dtype))?;
                check_logits(&what, &mut *decoder)?;
                told.push(format!("{name} {dtype} {attention:?}: forward 4 x 512 {forward:.3} ms"));
            }
        }
    }
    Ok(told.join("\n"))
}
