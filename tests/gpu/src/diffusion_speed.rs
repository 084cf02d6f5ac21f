//! The time of a step of a diffusion head, with several kernel variants.

use std::sync::Arc;

use half::bf16;
use laptime_cuda::decode::{AdaLn, AdaLnSizes, AttentionTuning, Linear, Norm, Tuning};
use laptime_cuda::{Buffer, Cache, EventClock, Graph};

use crate::{Answer, Bench, Failed, clock::stream_nanos, decode_speed::Maker};

/// Ways to build the kernels of a diffusion head, the chosen one first.
const ADAPTED: [(u32, u32); 9] = [(24, 3), (24, 4), (32, 2), (20, 4), (16, 4), (16, 3), (16, 5), (12, 6), (8, 8)];

/// Steps of a diffusion head, layers alone.
pub fn steps(bench: &Bench) -> Answer {
    let mut words = Vec::new();
    for [hidden, ffn] in [[3584, 10_752], [1536, 4608]] {
        let maker = Maker::new(bench)?;
        let layers = (0..4).map(|_| HeadLayer::new(&maker, hidden, ffn)).collect::<Result<Vec<_>, _>>()?;
        let bytes: usize = layers.iter().map(|layer| layer.gate_up.bytes() + layer.down.bytes()).sum();
        for (warps, depth) in ADAPTED {
            let tuning = Tuning { warps, depth, attention: AttentionTuning::PLAIN, tensor: None };
            let sizes = AdaLnSizes { batch: 2, hidden, ffn };
            let adapted = AdaLn::load_tuned(&bench.device, &Cache::of_user(), sizes, tuning)?;
            let micros = of_step(bench, &maker, &adapted, &layers, [hidden, ffn])?;
            let rate = bytes as f64 / micros / 1e6;
            words.push(format!("{hidden}: {warps} warps, {depth} deep: {micros:.1} us per step, {rate:.2} TB/s"));
        }
    }
    Ok(words.join("\n"))
}

struct HeadLayer {
    norm: Buffer<bf16>,
    gate_up: Buffer<bf16>,
    down: Buffer<bf16>,
    adapt: Buffer<bf16>,
}

impl HeadLayer {
    fn new(maker: &Maker<'_>, hidden: u32, ffn: u32) -> Result<Self, Failed> {
        Ok(Self {
            norm: maker.random(hidden as usize, 1.0)?,
            gate_up: maker.matrix(2 * ffn, hidden)?,
            down: maker.matrix(hidden, ffn)?,
            adapt: maker.random(6 * hidden as usize, 0.1)?,
        })
    }
}

/// Microseconds per step, for five steps in a graph.
#[allow(unsafe_code)]
fn of_step(
    bench: &Bench,
    maker: &Maker<'_>,
    adapted: &AdaLn<bf16>,
    layers: &[HeadLayer],
    [hidden, ffn]: [u32; 2],
) -> Result<f64, Failed> {
    const STEPS: usize = 5;
    let (stream, clock) = (bench.device.stream(), EventClock::new(Arc::clone(bench.device.stream()))?);
    let (mut x, mut gated) = (maker.random(2 * hidden as usize, 1.0)?, maker.random(2 * ffn as usize, 1.0)?);
    let plain = |weight| Linear { weight, bias: None, fp8: None };
    let graph = Graph::capture(stream, || {
        for layer in (0..STEPS).flat_map(|_| layers) {
            let norm = Norm { weight: &layer.norm, epsilon: 1e-5 };
            let (adapt, gate_up) = (layer.adapt.all(), plain(&layer.gate_up));
            adapted.gate_up(stream, (&x, &norm), adapt, &gate_up, &mut gated, [ffn, hidden])?;
            adapted.add_gated(stream, &gated, adapt, &plain(&layer.down), &mut x, [hidden, ffn])?;
        }
        Ok(())
    })?;
    // SAFETY: the buffers live until the device is synchronised.
    let replay = || unsafe { graph.launch(stream) };
    replay()?;
    bench.device.synchronise()?;
    let nanos = stream_nanos(bench, &clock, || Ok(replay()?))?;
    bench.device.synchronise()?;
    Ok(nanos / 1e3 / STEPS as f64)
}
