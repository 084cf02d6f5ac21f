//! The speed of offloaded layers: times of the host, synchronised at both ends, and of events.

use std::time::Instant;

use laptime_cuda::{Device, Moment, Region};
use laptime_models::{Config, Dtype, LayerVisit, Offload, Replay, StreamMode, Tokens, Weights, gpu::GpuModel};

use crate::models::offload::{offload, options};
use crate::{Answer, Bench, Failed, expect, harness::median};

/// Layers that are streamed.
const STREAMED: usize = 8;
/// Tokens of a prompt.
const PROMPT: u32 = 64;

/// A token without offloading at most, in milliseconds.
const MOST_RESIDENT_MS: f64 = 6.0;
/// The least share of the pinned bandwidth, and the most a token may take of the least time that it could.
const LEAST_SHARE: f64 = 0.95;
const MOST_OF_LEAST: f64 = 1.06;

/// What was measured of one way.
struct Measured {
    token_ms: f64,
    copy_ms: f64,
    wait_ms: f64,
    release_ms: f64,
    ahead: usize,
    visits: usize,
}

pub fn speed(bench: &Bench) -> Answer {
    let config = Config::from_preset("Qwen2.5-7B")?;
    let weights = Weights::synthetic(&config, 1);
    let copies = bench.device.with_new_stream()?;
    let (words, resident_ms) = resident(bench, &config, &weights)?;
    let mut told = vec![words];
    expect(resident_ms <= MOST_RESIDENT_MS, || told.join("\n"))?;
    let stay = config.layers - STREAMED;
    let model = load(bench, &config, &weights, &offload(StreamMode::Wrap, stay), &mut told)?;
    let before = plain_copies(bench, &copies, &model, &config)?;
    let mut fell_short = Vec::new();
    for mode in [StreamMode::Pinned, StreamMode::Prefetch, StreamMode::Wrap] {
        let measured = measure(bench, &copies, &model, offload(mode, stay), 24)?;
        told.push(measured.words(mode.word(), STREAMED));
        if mode == StreamMode::Wrap {
            let after = plain_copies(bench, &copies, &model, &config)?;
            fell_short.extend(judge(&measured, [before, after], resident_ms, &mut told));
        }
    }
    drop(model);
    let model = load(bench, &config, &weights, &offload(StreamMode::Sync, stay), &mut told)?;
    for clear_every in [None, Some(1), None, Some(1)] {
        let offload = Offload { clear_every, ..offload(StreamMode::Sync, stay) };
        let measured = measure(bench, &copies, &model, offload, 3)?;
        let how = if clear_every.is_some() { "sync, the pool trimmed after every copy" } else { "sync" };
        told.push(measured.words(how, STREAMED));
    }
    drop(model);
    let offload = offload(StreamMode::Wrap, 8);
    let model = load(bench, &config, &weights, &offload, &mut told)?;
    told.push(measure(bench, &copies, &model, offload, 8)?.words("wrap, 20 layers", 20));
    expect(fell_short.is_empty(), || format!("{}\n{}", told.join("\n"), fell_short.join("\n")))?;
    Ok(told.join("\n"))
}

fn load(
    bench: &Bench,
    config: &Config,
    weights: &Weights,
    offload: &Offload,
    told: &mut Vec<String>,
) -> Result<GpuModel, Failed> {
    let began = Instant::now();
    let model = GpuModel::load(&bench.device, config, weights, Dtype::Bf16, Some((offload, &Region::pinned)))?;
    let streamed = config.layers - offload.resident;
    told.push(format!("weights with {streamed} layers at home, {}: {:.0} ms", offload.mode, milliseconds(began)));
    Ok(model)
}

fn milliseconds(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e3
}

/// A token where all layers stay, with the graph.
fn resident(bench: &Bench, config: &Config, weights: &Weights) -> Result<(String, f64), Failed> {
    let model = GpuModel::load(&bench.device, config, weights, Dtype::Bf16, None)?;
    let mut decoder = model.decoder(&bench.device, None, options(Dtype::Bf16, 1024, None))?;
    decoder.prefill(&Tokens::one((0..PROMPT).collect()))?;
    let mut tokens = Vec::new();
    for _ in 0..9 {
        bench.device.synchronise()?;
        let began = Instant::now();
        (0..32).try_for_each(|_| decoder.step())?;
        bench.device.synchronise()?;
        tokens.push(milliseconds(began) / 32.0);
    }
    let token = median(tokens.split_off(1));
    let Replay::Graph { nodes } = decoder.replay() else {
        return Err(Failed::Wrong(format!("there is no graph: {:?}", decoder.replay())));
    };
    Ok((format!("all layers stay, graph of {nodes} nodes: token {token:.3} ms"), token))
}

/// Bytes of a layer, and milliseconds to copy it from pinned memory with nothing else running.
fn plain_copies(bench: &Bench, copies: &Device, model: &GpuModel, config: &Config) -> Result<(u64, f64), Failed> {
    let wanted = offload(StreamMode::Wrap, config.layers - STREAMED);
    let decoder = model.decoder(&bench.device, Some(copies), options(Dtype::Bf16, 8, Some(wanted)))?;
    let bytes = decoder.offloading().map_or(0, |told| told.layer_bytes);
    let regions = [Region::pinned(&bench.device, bytes as usize)?, Region::pinned(&bench.device, bytes as usize)?];
    let buffer = bench.device.allocate::<u8>(bytes as usize)?;
    bench.device.synchronise()?;
    let mut taken = Vec::new();
    for turn in 0..12 {
        let around = [Moment::new(&bench.device)?, Moment::new(&bench.device)?];
        around[0].put(copies.stream())?;
        copy(&regions[turn % 2], &buffer, copies)?;
        around[1].put(copies.stream())?;
        copies.stream().synchronise()?;
        taken.push(around[1].nanos_since(&around[0])? / 1e6);
    }
    Ok((bytes, median(taken)))
}

// The copy is waited for before either goes.
#[allow(unsafe_code)]
fn copy(region: &Region, buffer: &laptime_cuda::Buffer<u8>, copies: &Device) -> Result<(), Failed> {
    // SAFETY: both live until the stream was waited for, and nobody else uses them.
    unsafe { buffer.begin_write(region.bytes(), copies.stream()) }?;
    Ok(())
}

fn measure(
    bench: &Bench,
    copies: &Device,
    model: &GpuModel,
    offload: Offload,
    tokens: usize,
) -> Result<Measured, Failed> {
    let mut decoder = model.decoder(&bench.device, Some(copies), options(Dtype::Bf16, 1024, Some(offload)))?;
    decoder.prefill(&Tokens::one((0..PROMPT).collect()))?;
    (0..3).try_for_each(|_| decoder.step())?;
    // Copies for the next token continue meanwhile, as they do at the end.
    bench.device.stream().synchronise()?;
    decoder.layer_visits()?;
    let began = Instant::now();
    (0..tokens).try_for_each(|_| decoder.step())?;
    bench.device.stream().synchronise()?;
    let token_ms = milliseconds(began) / tokens as f64;
    let visits = decoder.layer_visits()?;
    let of = |value: fn(&LayerVisit) -> f64| median(visits.iter().map(|visit| value(visit) / 1e6).collect());
    Ok(Measured {
        token_ms,
        copy_ms: of(|visit| visit.copy_ns),
        wait_ms: of(|visit| visit.wait_ns),
        release_ms: of(|visit| visit.release_ns),
        ahead: visits.iter().filter(|visit| visit.is_ahead).count(),
        visits: visits.len(),
    })
}

impl Measured {
    fn words(&self, how: &str, streamed: usize) -> String {
        let Self { token_ms, copy_ms, wait_ms, release_ms, ahead, visits } = self;
        format!(
            "{how}: token {token_ms:.2} ms; of {streamed} layers each: copy {copy_ms:.3} ms, wait {wait_ms:.3} ms, \
             release {release_ms:.3} ms; {ahead} of {visits} asked for ahead"
        )
    }
}

/// What fell short of the bars.
fn judge(wrap: &Measured, plain: [(u64, f64); 2], resident_ms: f64, told: &mut Vec<String>) -> Vec<String> {
    let bytes = plain[0].0 as f64;
    let rates = plain.map(|(bytes, taken)| bytes as f64 / taken / 1e6);
    let best = rates[0].max(rates[1]);
    let (in_copies, in_token) = (bytes / wrap.copy_ms / 1e6, STREAMED as f64 * bytes / wrap.token_ms / 1e6);
    let least = (STREAMED as f64 * wrap.copy_ms).max(resident_ms);
    let plain_least = (STREAMED as f64 * bytes / best / 1e6).max(resident_ms);
    let (of_least, of_plain) = (wrap.token_ms / least, wrap.token_ms / plain_least);
    told.push(format!(
        "a layer is {:.1} MB; a plain pinned copy goes at {:.2} GB/s before and {:.2} GB/s after; layers at {in_copies:.2} GB/s \
         ({:.1} % of the better), whole tokens at {in_token:.2} GB/s ({:.1} %); a token is {of_least:.3} of its least by \
         its own copies ({least:.2} ms), {of_plain:.3} by plain ones ({plain_least:.2} ms)",
        bytes / 1e6,
        rates[0],
        rates[1],
        100.0 * in_copies / best,
        100.0 * in_token / best,
    ));
    let mut short = Vec::new();
    if in_token < LEAST_SHARE * best {
        short.push(format!("less than {LEAST_SHARE} of the pinned bandwidth"));
    }
    if of_least > MOST_OF_LEAST || of_plain > MOST_OF_LEAST {
        short.push(format!("a token takes more than {MOST_OF_LEAST} of the least"));
    }
    short
}
