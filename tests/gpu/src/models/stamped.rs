//! The stages inside a captured step or prompt: those of single launches, and hardly any cost.

use std::sync::Arc;

use laptime_cuda::EventClock;
use laptime_models::gpu::GpuModel;
use laptime_models::{CacheCapacity, Config, Decoder, Dtype, GraphMode, Marks, Options, Replay, Tokens, Weights};
use laptime_probe::{DeviceClock, Lane, stage};
use laptime_trace::{GraphReplay, GraphReplays, Trace, TrackKind, run::Depth};

use crate::models::{speed::median, trees::recorded_trace};
use crate::{Answer, Bench, Failed, expect};

/// Tokens of a prompt.
const PROMPT: usize = 9;

/// What is captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pass {
    Step,
    Prompt,
}

/// The positions of the small models' caches.
const ROOM: usize = 512;

/// How much slower a step may be while the stages inside it are stamped.
const MOST_COST: f64 = 0.05;

/// How far the stages of a step may be from the time of a step without stamps.
const MOST_APART: f64 = 0.05;

fn lane(bench: &Bench) -> Result<Lane, Failed> {
    let clock: Arc<dyn DeviceClock> = Arc::new(EventClock::new(Arc::clone(bench.device.stream()))?);
    Ok(Lane::device("cuda:0", clock))
}

fn options(capacity: usize, dtype: Dtype, batch: usize, graph: GraphMode, marks: Marks) -> Options {
    Options { batch, graph, marks, ..Options::new(dtype, CacheCapacity::Static(capacity)) }
}

pub fn alike(bench: &Bench) -> Answer {
    let mut told = Vec::new();
    // Fused kernels, those for two sequences, cuBLAS products, post-norms, and a sliding window.
    for (name, batches) in [("tiny", &[1, 2, 12][..]), ("tiny-gemma3", &[1])] {
        let config = Config::from_preset(name)?;
        let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 1), Dtype::F32, None)?;
        for &batch in batches {
            let passes = [Pass::Step, Pass::Prompt];
            for (pass, depth) in passes.into_iter().flat_map(|pass| [(pass, Depth::Layer), (pass, Depth::Ops)]) {
                let of = |graph| outline(bench, &model, (pass, batch), depth, graph);
                let (launched, replayed) = (of(GraphMode::Off)?, of(GraphMode::On)?);
                let what = format!("{name}, {pass:?}, {batch} sequences, {depth:?}");
                expect(launched.len() > 2 * config.layers, || format!("{what}: the launches have {launched:?}"))?;
                expect(launched == replayed, || format!("{what}: {replayed:?}, launched {launched:?}"))?;
                told.push(format!("{what}: {} stages", replayed.len()));
            }
        }
    }
    Ok(told.join("\n"))
}

/// The stages of a pass on the device, in order: how deep each is, its name, and its layer.
fn outline(
    bench: &Bench,
    model: &GpuModel,
    (pass, batch): (Pass, usize),
    depth: Depth,
    graph: GraphMode,
) -> Result<Vec<(usize, String, String)>, Failed> {
    let lane = lane(bench)?;
    let marks = Marks { depth, lane: Some(lane.clone()), ..Marks::default() };
    let mut decoder = model.decoder(&bench.device, None, options(ROOM, Dtype::F32, batch, graph, marks))?;
    let prompt = Tokens { ids: vec![1; PROMPT * batch], batch };
    decoder.prefill(&prompt)?;
    let run = |decoder: &mut dyn Decoder| match pass {
        Pass::Step => decoder.step(),
        Pass::Prompt => decoder.prefill(&prompt),
    };
    // The first of each is launched, and the second is captured.
    run(&mut *decoder)?;
    run(&mut *decoder)?;
    let trace = recorded_trace::<Failed>(|| {
        let replay = match pass {
            Pass::Step => decoder.next_replay()?,
            Pass::Prompt => decoder.next_prefill_replay(PROMPT)?,
        };
        expect(replay.is_some() == (graph == GraphMode::On), || {
            format!("{graph:?}: the replay has number {replay:?}")
        })?;
        let stage = stage!("pass", on = Some(&lane), replay = replay);
        run(&mut *decoder)?;
        drop(stage);
        Ok(bench.device.synchronise()?)
    })?;
    drop(decoder);
    let trace = trace.with_replays(&bench.device.take_replays()).map_err(|error| Failed::Wrong(error.to_string()))?;
    Ok(on_device(&trace))
}

fn on_device(trace: &Trace) -> Vec<(usize, String, String)> {
    let device = trace.spans().filter(|span| trace.track(span.track).kind == TrackKind::Stream);
    let outline = device.map(|span| {
        let above = std::iter::successors(span.parent, |parent| trace.span(*parent).parent);
        let layer = span.fields.iter().find(|(name, _)| *name == "layer");
        (above.count(), span.name.to_owned(), layer.map_or_else(String::new, |(_, value)| value.to_string()))
    });
    outline.collect()
}

pub fn cost(bench: &Bench) -> Answer {
    const STEPS: usize = 64;
    let config = Config::from_preset("Qwen3-0.6B")?;
    let model = GpuModel::load(&bench.device, &config, &Weights::synthetic(&config, 1), Dtype::Bf16, None)?;
    let mut told = Vec::new();
    for depth in [Depth::Layer, Depth::Ops] {
        let marks = Marks { depth, ..Marks::default() };
        let mut decoder = model.decoder(&bench.device, None, options(1024, Dtype::Bf16, 1, GraphMode::On, marks))?;
        decoder.prefill(&Tokens::one((0..512).collect()))?;
        let plain = steps(bench, &mut *decoder, STEPS)?;
        let mut stamped = 0.0;
        recorded_trace::<Failed>(|| {
            stamped = steps(bench, &mut *decoder, STEPS)?;
            Ok(())
        })?;
        let nodes = decoder.replay();
        expect(matches!(nodes, Replay::Graph { .. }), || format!("{depth:?}: {nodes:?}"))?;
        drop(decoder);
        let (whole, layers) = stage_times(&bench.device.take_replays())?;
        let (cost, apart) = (stamped / plain - 1.0, whole / plain - 1.0);
        let words = format!(
            "{depth:?}: a token takes {plain:.4} ms, with stamps {stamped:.4} ms ({:+.1} %); its stages {whole:.4} ms, \
             of which layers {layers:.4} ms",
            100.0 * cost
        );
        expect(cost < MOST_COST, || words.clone())?;
        expect(apart.abs() < MOST_APART && layers > 0.5 * whole && layers < whole, || words.clone())?;
        told.push(words);
    }
    Ok(told.join("\n"))
}

/// Milliseconds of a step, of which each asks for its number, so that it has stamps while something records.
fn steps(bench: &Bench, decoder: &mut dyn Decoder, count: usize) -> Result<f64, Failed> {
    let taken = median(bench, 10, || {
        decoder.truncate(512)?;
        for _ in 0..count {
            decoder.next_replay()?;
            decoder.step()?;
        }
        Ok(())
    })?;
    Ok(taken / count as f64)
}

/// Milliseconds of the stages of a replay and of the layers among them, medians over the replays.
fn stage_times(replays: &GraphReplays) -> Result<(f64, f64), Failed> {
    expect(!replays.replays.is_empty(), || "no replay was read".to_owned())?;
    let whole = |replay: &GraphReplay| {
        let begin = replay.times.iter().map(|time| time.start_ns).min().unwrap_or(0);
        let end = replay.times.iter().map(|time| time.end_ns).max().unwrap_or(0);
        end.saturating_sub(begin) as f64 / 1e6
    };
    let layers = |replay: &GraphReplay| {
        let stages = replay.stages.iter().zip(&replay.times);
        let layers = stages.filter(|(stage, _)| stage.name == "layer" && stage.place.is_some());
        layers.map(|(_, time)| time.end_ns.saturating_sub(time.start_ns) as f64 / 1e6).sum()
    };
    let of = |time: &dyn Fn(&GraphReplay) -> f64| crate::harness::median(replays.replays.iter().map(time).collect());
    Ok((of(&whole), of(&layers)))
}
