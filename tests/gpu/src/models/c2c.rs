//! Fusers on a GPU: numerics, refusals and speed.

use std::{collections::BTreeMap, path::PathBuf, slice};

use laptime_cuda::{Device, Graph};
use laptime_models::fuser::{
    Alignment, C2c, FuseMode, FuseOptions, FuseOrder, FuserConfig, FuserWeights, Fusing, Prompt, Response, Section,
    SharerMask,
};
use laptime_models::gpu::{GpuModel, fuser, needed_fuser_bytes};
use laptime_models::{
    Attention, CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, Options, Tokens, Weights, cpu,
};
use serde::Deserialize;

use crate::models::{fixture::distance, speed::median};
use crate::{Answer, Bench, Failed, expect};

/// Tolerance of fused caches and first logits, relative to the largest value.
const NEAR: [(Dtype, f32); 3] = [(Dtype::F32, 1e-5), (Dtype::F16, 0.01), (Dtype::Bf16, 0.06)];

const ORDERS: [FuseOrder; 2] = [FuseOrder::Batched, FuseOrder::ByLayer];

/// The expected results of the fixture `c2c`.
#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    cases: BTreeMap<String, Case>,
}

/// The expected results with some sharers.
#[derive(Deserialize)]
struct Case {
    sharers: Vec<String>,
    /// Keys and values of every layer without the last token, if they are compared.
    cache: Vec<[Vec<f32>; 2]>,
    /// Those of the last token of the prompt.
    logits: Vec<f32>,
    greedy: Vec<u32>,
}

impl Expected {
    fn open(bench: &Bench) -> Result<Self, Failed> {
        let file = bench.fixtures.join("c2c/expected.json");
        let wrong = |error: &dyn std::fmt::Display| Failed::Wrong(format!("{}: {error}", file.display()));
        let text = std::fs::read_to_string(&file).map_err(|error| wrong(&error))?;
        serde_json::from_str(&text).map_err(|error| wrong(&error))
    }

    fn prompt(&self, sharers: usize) -> Result<Prompt, Failed> {
        Ok(Prompt::shared(self.ids.clone(), sharers, SharerMask::all(sharers))?)
    }
}

fn options(config: &Config, dtype: Dtype, capacity: CacheCapacity) -> Options {
    let attention = config.attention_type;
    Options {
        dtype,
        attention,
        kept: None,
        batch: 1,
        capacity,
        graph: GraphMode::Auto,
        marks: Marks::default(),
        offload: None,
    }
}

fn decoder<'a>(device: &'a Device, folder: PathBuf, dtype: Dtype) -> Result<Box<dyn Decoder + 'a>, Failed> {
    let config = Config::from_folder(&folder)?;
    let model = GpuModel::load(device, &config, &Weights::open(&folder, &config)?, dtype, None)?;
    Ok(model.decoder(device, None, options(&config, dtype, CacheCapacity::Growing))?)
}

/// The fixture `qwen3` with sharers, which may be on another stream.
fn c2c<'a>(bench: &'a Bench, sharing: &'a Device, sharers: &[String], options: FuseOptions) -> Result<C2c<'a>, Failed> {
    let (dtype, folder) = (options.dtype, |name: &str| bench.fixtures.join(name));
    let receiver = Config::from_folder(&folder("qwen3"))?;
    let mut fusers = Vec::new();
    for name in sharers {
        let config = Config::from_folder(&folder(&format!("c2c/{name}")))?;
        fusers.push(FuserWeights::open(&folder(&format!("c2c/{name}_Fuser")), &receiver, &config)?);
    }
    let of_fusers = fusers.iter().map(|(config, weights)| (config.clone(), weights)).collect();
    let heard = sharers.iter().map(|name| decoder(sharing, folder(&format!("c2c/{name}")), dtype));
    Ok(C2c {
        receiver: decoder(&bench.device, folder("qwen3"), dtype)?,
        sharers: heard.collect::<Result<_, Failed>>()?,
        fuser: fuser(&bench.device, of_fusers, options)?,
    })
}

/// The largest error relative to the largest expected value.
fn off(found: &[f32], expected: &[f32]) -> Result<f32, Failed> {
    Ok(distance(found, expected)? / expected.iter().fold(1e-12, |most: f32, number| most.max(number.abs())))
}

/// The error of the receiver's cache.
fn cache_off(c2c: &mut C2c<'_>, case: &Case) -> Result<f32, Failed> {
    let mut most = 0.0_f32;
    for (layer, [keys, values]) in case.cache.iter().enumerate() {
        let found = c2c.receiver.read_positions(layer, 0..10)?;
        most = most.max(off(&found.keys, keys)?).max(off(&found.values, values)?);
    }
    Ok(most)
}

fn fuse_options(name: &str, dtype: Dtype, order: FuseOrder) -> FuseOptions {
    let mode = if name == "parallel" { FuseMode::Parallel } else { FuseMode::Sequential };
    FuseOptions { mode, order, ..FuseOptions::new(dtype) }
}

fn response(name: &str) -> Response {
    if name == "response" { Response::Fused(SharerMask::FIRST) } else { Response::Plain }
}

pub fn fixtures(bench: &Bench) -> Answer {
    let expected = Expected::open(bench)?;
    let mut lines = Vec::new();
    for (dtype, near) in NEAR {
        let mut most = 0.0_f32;
        for ((name, case), order) in expected.cases.iter().flat_map(|case| ORDERS.map(|order| (case, order))) {
            let mut c2c = c2c(bench, &bench.device, &case.sharers, fuse_options(name, dtype, order))?;
            let prompt = expected.prompt(case.sharers.len())?;
            c2c.read(&prompt, response(name))?;
            let (cache, logits) = (cache_off(&mut c2c, case)?, off(&c2c.receiver.logits()?, &case.logits)?);
            expect(cache <= near && logits <= near, || {
                format!("{name} {dtype} {order:?}: the cache is {cache:.1e} apart, logits {logits:.1e}")
            })?;
            most = most.max(cache).max(logits);
            if dtype == Dtype::F32 {
                let tokens = c2c.generate(&prompt, case.greedy.len(), response(name))?.tokens;
                expect(tokens == case.greedy, || format!("{name} {order:?}: {tokens:?} and not {:?}", case.greedy))?;
            }
        }
        lines.push(format!("{dtype} {most:.0e}"));
    }
    Ok(format!("{} of {} cases in either order", lines.join(", "), expected.cases.len()))
}

pub fn two_streams(bench: &Bench) -> Answer {
    let expected = Expected::open(bench)?;
    let sharing = Device::open(bench.device.facts().index)?;
    let case = expected.cases.get("long").ok_or_else(|| Failed::Wrong("there is no case `long`".to_owned()))?;
    for _ in 0..20 {
        let mut c2c = c2c(bench, &sharing, &case.sharers, FuseOptions::new(Dtype::F32))?;
        let prompt = expected.prompt(1)?;
        c2c.read(&prompt, Response::Plain)?;
        let apart = cache_off(&mut c2c, case)?;
        expect(apart <= NEAR[0].1, || format!("the cache is {apart:.1e} apart"))?;
        // The sharer continues while the fuse may still read its cache.
        c2c.clear()?;
        c2c.share(&prompt, Response::Plain)?;
    }
    Ok("sharers on another stream are waited for".to_owned())
}

/// A part of a prompt that the sharer has at other positions, with synthetic weights.
pub fn against_cpu(bench: &Bench) -> Answer {
    let mut lines = Vec::new();
    for (sharer, receiver) in [("tiny-qwen2", "tiny"), ("tiny-llama", "tiny-qwen2")] {
        let [theirs, ours] = [Config::from_preset(sharer)?, Config::from_preset(receiver)?];
        let config = FuserConfig::new(&ours, &theirs, Alignment::KNearest);
        let weights = FuserWeights::synthetic(7);
        let ids = (0..37).map(|at| at * 7 % 100).collect::<Vec<u32>>();
        let section = Section { positions: 3..36, sharer_starts: vec![2], mask: SharerMask::FIRST };
        for (dtype, near) in NEAR {
            let [mut here, mut heard_here] = [cpu(&ours, dtype)?, cpu(&theirs, dtype)?];
            let [mut there, mut heard_there] = [gpu(bench, &ours, dtype)?, gpu(bench, &theirs, dtype)?];
            let mut on_cpu = cpu::fuser(vec![(config.clone(), &weights)], FuseOptions::new(dtype), 4)?;
            let mut on_gpu = fuser(&bench.device, vec![(config.clone(), &weights)], FuseOptions::new(dtype))?;
            let tokens = Tokens::one(ids.clone());
            for decoder in [&mut *here as &mut dyn Decoder, &mut *heard_here, &mut *there, &mut *heard_there] {
                decoder.prefill(&tokens)?;
            }
            let fused = on_cpu.fuse(&mut *here, &mut [&mut *heard_here], &section)?;
            let also = on_gpu.fuse(&mut *there, &mut [&mut *heard_there], &section)?;
            expect(fused == also, || format!("{also:?} and not {fused:?}"))?;
            let mut most = 0.0_f32;
            for layer in 0..ours.layers {
                let (found, expected) = (there.read_cache(layer)?, here.read_cache(layer)?);
                most = most.max(off(&found.keys, &expected.keys)?).max(off(&found.values, &expected.values)?);
            }
            // The caches before the section were computed on both devices too.
            let near = if dtype == Dtype::F32 { 2.0 * near } else { near };
            expect(most <= near, || format!("{sharer} to {receiver} {dtype}: {most:.1e} apart"))?;
            lines.push(format!("{receiver} {dtype} {most:.0e}"));
        }
    }
    Ok(lines.join(", "))
}

fn cpu(config: &Config, dtype: Dtype) -> Result<Box<dyn Decoder>, Failed> {
    let weights = Weights::synthetic(config, 5);
    Ok(cpu::decoder(config.clone(), &weights, options(config, dtype, CacheCapacity::Growing), 4)?)
}

fn gpu<'a>(bench: &'a Bench, config: &Config, dtype: Dtype) -> Result<Box<dyn Decoder + 'a>, Failed> {
    let model = GpuModel::load(&bench.device, config, &Weights::synthetic(config, 5), dtype, None)?;
    Ok(model.decoder(&bench.device, None, options(config, dtype, CacheCapacity::Growing))?)
}

pub fn refused(bench: &Bench) -> Answer {
    let config = Config::from_preset("tiny")?;
    let of_fuser = FuserConfig::new(&config, &config, Alignment::LastAligned);
    let weights = FuserWeights::synthetic(7);
    let mut fuser = fuser(&bench.device, vec![(of_fuser, &weights)], FuseOptions::new(Dtype::Bf16))?;
    let section = Section { positions: 0..4, sharer_starts: vec![0], mask: SharerMask::FIRST };
    let tokens = Tokens::one(vec![1, 2, 3, 4]);
    let (mut on_gpu, mut on_cpu, mut other) =
        (gpu(bench, &config, Dtype::Bf16)?, cpu(&config, Dtype::Bf16)?, gpu(bench, &config, Dtype::F32)?);
    for decoder in [&mut *on_gpu as &mut dyn Decoder, &mut *on_cpu, &mut *other] {
        decoder.prefill(&tokens)?;
    }
    let on_host = fuser.fuse(&mut *on_gpu, &mut [&mut *on_cpu], &section).err().map(|error| error.to_string());
    let wanted = "`tiny` cannot be fused on the GPU: its cache is in the memory of the host";
    expect(on_host.as_deref() == Some(wanted), || format!("{on_host:?}"))?;
    let typed = fuser.fuse(&mut *on_gpu, &mut [&mut *other], &section).err().map(|error| error.to_string());
    expect(typed.as_ref().is_some_and(|text| text.contains("its numbers are")), || format!("{typed:?}"))?;
    Ok("decoders of the host and of another type".to_owned())
}

/// A fuse of Qwen3-4B to Qwen3-0.6B, launched and as a graph. A graph proves that it neither allocates nor syncs.
pub fn speed(bench: &Bench) -> Answer {
    let [ours, theirs] = [Config::from_preset("Qwen3-0.6B")?, Config::from_preset("Qwen3-4B")?];
    let config = FuserConfig::new(&ours, &theirs, Alignment::LastAligned);
    let weights = FuserWeights::synthetic(1);
    let (gates, mut lines) = (weights.gates(&config)?, Vec::new());
    let [mut receiver, mut sharer] = [caches(bench, &ours)?, caches(bench, &theirs)?];
    for order in ORDERS {
        let options = FuseOptions { order, ..FuseOptions::new(Dtype::Bf16) };
        let mut fuser = fuser(&bench.device, vec![(config.clone(), &weights)], options.clone())?;
        for tokens in [32, 512, 2048] {
            let section = Section { positions: 0..tokens, sharer_starts: vec![0], mask: SharerMask::FIRST };
            let launched = median(bench, 20, || {
                fuser.fuse(&mut *receiver, &mut [&mut *sharer], &section)?;
                Ok(())
            })?;
            let replayed = replayed(bench, &mut *fuser, [&mut *receiver, &mut *sharer], &section)?;
            let work = config.fuse_work(&gates, 1, tokens, Dtype::Bf16);
            let limit = (work.flops as f64 / 750e12).max(work.bytes_read() as f64 / 4.2e12) * 1e3;
            let needed = needed_fuser_bytes(slice::from_ref(&config), &options, [1, tokens]) as f64 / 1e9;
            lines.push(format!(
                "{order:?} {tokens} tokens: launched {launched:.3} ms, replayed {replayed:.3} ms, limit {limit:.3} ms, {needed:.2} GB"
            ));
        }
    }
    Ok(lines.join("\n"))
}

/// A decoder in bf16 with a cache of 2048 positions.
fn caches<'a>(bench: &'a Bench, config: &Config) -> Result<Box<dyn Decoder + 'a>, Failed> {
    let model = GpuModel::load(&bench.device, config, &Weights::synthetic(config, 1), Dtype::Bf16, None)?;
    let options = Options { attention: Attention::Dense, ..options(config, Dtype::Bf16, CacheCapacity::Static(2048)) };
    let mut decoder = model.decoder(&bench.device, None, options)?;
    decoder.prefill(&Tokens::one((0..2048).collect()))?;
    Ok(decoder)
}

/// Milliseconds of a fuse replayed as a graph.
#[allow(unsafe_code)]
fn replayed(
    bench: &Bench,
    fuser: &mut dyn Fusing,
    [receiver, sharer]: [&mut dyn Decoder; 2],
    section: &Section,
) -> Result<f64, Failed> {
    let stream = bench.device.stream();
    let mut failed = None;
    let graph = Graph::capture(stream, || {
        failed = fuser.fuse(receiver, &mut [sharer], section).err();
        Ok(())
    });
    // The error of the fuse is more helpful than that of the capture.
    if let Some(error) = failed {
        return Err(error.into());
    }
    let graph = graph?;
    graph.upload(stream)?;
    median(bench, 20, || {
        // SAFETY: fuser and caches live until the median has synchronised the device.
        unsafe { graph.launch(stream)? };
        Ok(())
    })
}
