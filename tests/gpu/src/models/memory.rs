//! Compares predicted with used device memory: at most 5 % more, and never less.

use std::slice;

use laptime_models::fuser::{Alignment, FuseOptions, FuserConfig, FuserWeights, Section, SharerMask};
use laptime_models::gpu::{self, GpuModel, needed_bytes, needed_fuser_bytes, train_needed_bytes};
use laptime_models::{
    Attention, CacheCapacity, Config, Dtype, ModelError, Options, Tokens, TrainOptions, Weights, random_batch,
};

use crate::{Answer, Bench, Failed, expect};

/// Runs something, and compares the peak of the device with the prediction.
pub fn compare(bench: &Bench, what: &str, needed: u64, run: impl FnOnce() -> Result<(), Failed>) -> Answer {
    bench.device.give_back_memory()?;
    let before = bench.device.used_memory()?;
    bench.device.reset_peak()?;
    run()?;
    let used = bench.device.peak_memory()?.bytes().saturating_sub(before);
    let ratio = needed as f64 / used as f64;
    let words = format!("{what}: {:.1} MB of {:.1} MB ({ratio:.3})", used as f64 / 1e6, needed as f64 / 1e6);
    expect((1.0..=1.05).contains(&ratio), || words.clone())?;
    Ok(words)
}

pub fn decoders(bench: &Bench) -> Answer {
    let mut lines = Vec::new();
    for (name, dtype, attention, tokens, is_forward) in [
        ("Qwen3-0.6B", Dtype::Bf16, Attention::Dense, 512, false),
        ("Qwen3-0.6B", Dtype::Bf16, Attention::Dense, 2048, true),
        ("decoder_small", Dtype::F32, Attention::Naive, 512, true),
        ("gemma-3-1b", Dtype::Bf16, Attention::Dense, 512, false),
    ] {
        let config = Config::from_preset(name)?;
        // Without a cache, a forward pass keeps the keys and values of one layer at a time.
        let capacity = if is_forward { CacheCapacity::Growing } else { CacheCapacity::Static(tokens + 8) };
        let options = Options { attention, ..Options::new(dtype, capacity) };
        let needed = needed_bytes(&config, &options, tokens, is_forward);
        let words = compare(bench, &format!("{name} {dtype} forward={is_forward}"), needed, || {
            let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 1), dtype, None)?;
            let mut decoder = model.decoder(&bench.device, None, options)?;
            let prompt = Tokens::one((0..tokens as u32).collect());
            if is_forward {
                decoder.forward(&prompt)?;
            } else {
                decoder.prefill(&prompt)?;
                (0..3).try_for_each(|_| decoder.step())?;
            }
            Ok(bench.device.synchronise()?)
        })?;
        lines.push(words);
    }
    Ok(lines.join("\n"))
}

pub fn training(bench: &Bench) -> Answer {
    let mut lines = Vec::new();
    for (name, dtype, attention) in [
        ("small", Dtype::F32, Attention::Naive),
        ("small", Dtype::Bf16, Attention::Dense),
        ("large", Dtype::Bf16, Attention::Naive),
    ] {
        let config = Config::from_preset(name)?;
        let options = TrainOptions { attention, ..TrainOptions::new(dtype, 4, 512) };
        let (tokens, targets) = random_batch(&config, 4, 512, 1)?;
        let needed = train_needed_bytes(&config, &options);
        let words = compare(bench, &format!("{name} {dtype} {attention:?}"), needed, || {
            let mut trainer = gpu::trainer(&bench.device, &config, &Weights::synthetic(&config, 1), options)?;
            trainer.forward(&tokens, &targets)?;
            trainer.backward()?;
            trainer.update()?;
            Ok(bench.device.synchronise()?)
        })?;
        lines.push(words);
    }
    Ok(lines.join("\n"))
}

/// The caches are there before; the fuser comes on top.
pub fn fusers(bench: &Bench) -> Answer {
    let tokens = 512;
    let [ours, theirs] = [Config::from_preset("Qwen3-0.6B")?, Config::from_preset("Qwen3-4B")?];
    let config = FuserConfig::new(&ours, &theirs, Alignment::LastAligned);
    let decoder = |config: &Config| {
        let model = GpuModel::load(&bench.device, config, &Weights::synthetic(config, 1), Dtype::Bf16, None)?;
        let mut decoder =
            model.decoder(&bench.device, None, Options::new(Dtype::Bf16, CacheCapacity::Static(tokens)))?;
        decoder.prefill(&Tokens::one((0..tokens as u32).collect()))?;
        Ok::<_, ModelError>(decoder)
    };
    let (mut receiver, mut sharer) = (decoder(&ours)?, decoder(&theirs)?);
    let options = FuseOptions::new(Dtype::Bf16);
    let needed = needed_fuser_bytes(slice::from_ref(&config), &options, [1, tokens]);
    compare(bench, "Qwen3-4B to Qwen3-0.6B", needed, || {
        let mut fuser = gpu::fuser(&bench.device, vec![(config.clone(), &FuserWeights::synthetic(1))], options)?;
        let section = Section { positions: 0..tokens, sharer_starts: vec![0], mask: SharerMask::FIRST };
        fuser.fuse(&mut *receiver, &mut [&mut *sharer], &section)?;
        Ok(bench.device.synchronise()?)
    })
}
