//! Compares e4m3 weights on a GPU with the same weights dequantised.

use laptime_cuda::Region;
use laptime_models::fp8::WeightScales;
use laptime_models::{
    CacheCapacity, Config, Decoder, Dtype, GraphMode, Options, StreamMode, Tokens, Weights, cpu, gpu::GpuModel,
};

use crate::models::{e4m3, fixture::distance, offload::offload};
use crate::{Answer, Bench, Failed, expect};

/// How near the logits of a step are to those of dequantised weights at least. Those of a prompt are equal bit by bit; the
/// kernels of a step add up in another order, and activations are rounded to bf16 after each.
const NEAR: f64 = 0.999_9;

/// How far logits in bf16 may be from those of the CPU, of the largest.
const CPU_NEAR: f32 = 0.06;

const STEPS: u32 = 6;

/// Logits of a prompt and of steps with given tokens, pass by pass.
fn logits(decoder: &mut dyn Decoder, prompt: &Tokens) -> Result<Vec<Vec<f32>>, Failed> {
    decoder.truncate(0)?;
    decoder.prefill(prompt)?;
    let mut all = vec![decoder.logits()?];
    let vocab = decoder.config().vocab as u32;
    for step in 0..STEPS {
        let ids: Vec<u32> = (0..prompt.batch as u32).map(|row| (step * 7919 + row * 31 + 5) % vocab).collect();
        decoder.set_next(&ids)?;
        decoder.step()?;
        all.push(decoder.logits()?);
    }
    Ok(all)
}

fn prompt(config: &Config, batch: usize) -> Tokens {
    Tokens { ids: (0..batch * 24).map(|at| (at * 7919 + 13) as u32 % config.vocab as u32).collect(), batch }
}

fn options(dtype: Dtype, batch: usize) -> Options {
    Options { batch, graph: GraphMode::Auto, ..Options::new(dtype, CacheCapacity::Static(64)) }
}

fn of_model(bench: &Bench, model: &GpuModel, prompt: &Tokens) -> Result<Vec<Vec<f32>>, Failed> {
    logits(&mut *model.decoder(&bench.device, None, options(model.dtype(), prompt.batch))?, prompt)
}

/// The least cosine of the logits of a sequence in any pass.
fn least_cosine(one: &[Vec<f32>], other: &[Vec<f32>], vocab: usize) -> f64 {
    let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let rows = one.iter().zip(other).flat_map(|(one, other)| one.chunks(vocab).zip(other.chunks(vocab)));
    rows.map(|(a, b)| dot(a, b) / (dot(a, a) * dot(b, b)).sqrt()).fold(1.0, |least, cosine| {
        // NaN is nothing that is near.
        if cosine >= least { least } else { cosine }
    })
}

fn same_bits(one: &[Vec<f32>], other: &[Vec<f32>]) -> bool {
    let bits = |all: &[Vec<f32>]| all.iter().flatten().map(|logit| logit.to_bits()).collect::<Vec<_>>();
    bits(one) == bits(other)
}

pub fn dequantised(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for preset in ["tiny", "tiny-qwen2", "tiny-gemma3", "Qwen3-0.6B"] {
        for weight_scales in [WeightScales::Rows, WeightScales::Blocks] {
            let config = Config { weight_scales, ..Config::from_preset(preset)? };
            // As wide as published, and few layers.
            let config = Config { layers: config.layers.min(4), vocab: config.vocab.min(4096), ..config };
            told.push(of_config(bench, &config)?);
        }
    }
    Ok(told.join("\n"))
}

fn of_config(bench: &Bench, config: &Config) -> Answer {
    let what = format!("{} {:?}", config.name, config.weight_scales);
    let synthetic = Weights::synthetic(config, 3);
    let rounded = e4m3::dequantised(config, 3)?;
    let load = |weights: &Weights, dtype| GpuModel::load(&bench.device, config, weights, dtype, None);
    let (made, read) = (load(&synthetic, Dtype::Fp8)?, load(&rounded, Dtype::Fp8)?);
    let (plain, original) = (load(&rounded, Dtype::Bf16)?, load(&synthetic, Dtype::Bf16)?);
    let mut told = Vec::new();
    for batch in [1, 3, 12] {
        let prompt = prompt(config, batch);
        let ours = of_model(bench, &made, &prompt)?;
        let stored = of_model(bench, &read, &prompt)?;
        expect(same_bits(&ours, &stored), || format!("{what}, batch {batch}: the GPU quantises otherwise"))?;
        let expected = of_model(bench, &plain, &prompt)?;
        // A prompt is multiplied with dequantised weights, by the same kernels.
        expect(same_bits(&ours[..1], &expected[..1]), || format!("{what}, batch {batch}: a prompt differs"))?;
        let near = least_cosine(&ours, &expected, config.vocab);
        let from_bf16 = least_cosine(&ours, &of_model(bench, &original, &prompt)?, config.vocab);
        let words = format!("batch {batch}: cosine {near:.7} to dequantised, {from_bf16:.5} to bf16");
        expect(near >= NEAR, || format!("{what}, {words}"))?;
        told.push(words);
    }
    if config.weight_scales == WeightScales::Blocks {
        let (published, prompt) = (e4m3::published(config, 3)?, prompt(config, 2));
        let [codes, plain] = [load(&published, Dtype::Fp8)?, load(&published, Dtype::Bf16)?];
        let [codes, plain] = [of_model(bench, &codes, &prompt)?, of_model(bench, &plain, &prompt)?];
        expect(same_bits(&codes[..1], &plain[..1]), || format!("{what}: published codes give another prompt"))?;
        let near = least_cosine(&codes, &plain, config.vocab);
        expect(near >= NEAR, || format!("{what}: published codes give other steps: cosine {near}"))?;
    }
    Ok(format!("{what}: {}", told.join("; ")))
}

pub fn against_cpu(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    for preset in ["tiny", "tiny-qwen2", "tiny-llama", "tiny-gemma3"] {
        let config = Config::from_preset(preset)?;
        let weights = Weights::synthetic(&config, 4);
        let ours =
            of_model(bench, &GpuModel::load(&bench.device, &config, &weights, Dtype::Fp8, None)?, &prompt(&config, 2))?;
        let mut theirs = cpu::decoder(config.clone(), &weights, options(Dtype::Fp8, 2), 8)?;
        let mut furthest = 0.0_f32;
        for (ours, theirs) in ours.iter().zip(logits(&mut *theirs, &prompt(&config, 2))?) {
            let largest = theirs.iter().fold(1e-6_f32, |most, value| most.max(value.abs()));
            furthest = furthest.max(distance(ours, &theirs)? / largest);
        }
        expect(furthest <= CPU_NEAR, || format!("{preset}: {furthest} of the largest logit apart"))?;
        told.push(format!("{preset} {furthest:.3}"));
    }
    Ok(told.join(", "))
}

pub fn offloaded(bench: &Bench) -> Answer {
    let copies = bench.device.with_new_stream()?;
    for weight_scales in [WeightScales::Rows, WeightScales::Blocks] {
        let config = Config { layers: 6, weight_scales, ..Config::from_preset("tiny-qwen2")? };
        let (weights, prompt) = (Weights::synthetic(&config, 5), prompt(&config, 1));
        let resident = of_model(bench, &GpuModel::load(&bench.device, &config, &weights, Dtype::Fp8, None)?, &prompt)?;
        for (mode, stay) in StreamMode::ALL.into_iter().flat_map(|mode| [5, 3, 0].map(|stay| (mode, stay))) {
            let offload = offload(mode, stay);
            let model =
                GpuModel::load(&bench.device, &config, &weights, Dtype::Fp8, Some((&offload, &Region::pinned)))?;
            let options = Options { offload: Some(offload), ..options(Dtype::Fp8, 1) };
            let mut decoder = model.decoder(&bench.device, Some(&copies), options)?;
            let seen = logits(&mut *decoder, &prompt)?;
            expect(same_bits(&seen, &resident), || {
                format!("{weight_scales:?} {mode}, {stay} of 6 stay: other logits")
            })?;
        }
    }
    Ok("5 modes, 5, 3 and 0 of 6 layers resident".to_owned())
}
