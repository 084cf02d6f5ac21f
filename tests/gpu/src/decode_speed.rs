//! The time per token of a whole decoder, and the share of each kernel.

use std::{fmt::Write as _, sync::Arc};

use half::bf16;
use laptime_cuda::decode::{Attention, AttentionTuning, Linear, Norm, State, Step, StepRows, StepSizes, Tuning};
use laptime_cuda::nn::{Pairing, Rotation};
use laptime_cuda::{Buffer, Cache, CudaError, EventClock, Graph, nn::Operations};

use crate::decode_layer::{Activations, Layer};
use crate::{Answer, Bench, Failed, clock::stream_nanos, expect, reference::decode as reference};

const CONTEXT: u32 = 512;

/// The shape of a Qwen3.
pub struct Model {
    pub layers: usize,
    pub sizes: StepSizes,
    /// The time limit per token, in milliseconds.
    pub budget: f64,
}

pub const QWEN3_0_6B: Model = Model {
    layers: 28,
    sizes: StepSizes {
        batch: 1,
        hidden: 1024,
        heads: 16,
        kv_heads: 8,
        head_dim: 128,
        ffn: 3072,
        vocab: 151_936,
        capacity: 33_000,
    },
    budget: 1.4,
};

pub const QWEN3_4B: Model =
    Model { layers: 36, sizes: StepSizes { hidden: 2560, heads: 32, ffn: 9728, ..QWEN3_0_6B.sizes }, budget: 4.0 };

/// The shape of Qwen2.5-7B as a speech model steps it: of its head four rows.
const SPEECH_7B: Model = Model {
    layers: 28,
    sizes: StepSizes { hidden: 3584, heads: 28, kv_heads: 4, ffn: 18_944, vocab: 4, ..QWEN3_0_6B.sizes },
    budget: 6.0,
};

pub struct Weights {
    norms: [Buffer<bf16>; 4],
    pub qkv: Buffer<bf16>,
    pub output: Buffer<bf16>,
    pub gate_up: Buffer<bf16>,
    pub down: Buffer<bf16>,
}

impl Weights {
    fn layer(&self) -> Layer<'_, bf16> {
        let plain = |weight| Linear { weight, bias: None, fp8: None };
        let [attention_norm, ffn_norm, query_norm, key_norm] = &self.norms;
        Layer {
            attention_norm,
            qkv: plain(&self.qkv),
            query_norm: Some(query_norm),
            key_norm: Some(key_norm),
            output: plain(&self.output),
            ffn_norm,
            gate_up: plain(&self.gate_up),
            down: plain(&self.down),
            epsilon: 1e-6,
        }
    }

    fn bytes(&self) -> usize {
        [&self.qkv, &self.output, &self.gate_up, &self.down].iter().map(|buffer| buffer.bytes()).sum()
    }
}

/// A model on the device with all that a step needs.
pub struct Decoder {
    pub sizes: StepSizes,
    pub layers: Vec<Weights>,
    caches: Vec<[Buffer<bf16>; 2]>,
    pub table: Buffer<bf16>,
    last: Buffer<bf16>,
    tables: [Buffer<f32>; 2],
    pub activations: Activations<bf16>,
    pub state: State,
}

pub struct Maker<'a> {
    bench: &'a Bench,
    operations: Operations<bf16>,
}

impl<'a> Maker<'a> {
    pub fn new(bench: &'a Bench) -> Result<Self, Failed> {
        Ok(Self { bench, operations: Operations::load(&bench.device, &Cache::of_user())? })
    }

    /// Random numbers up to this amplitude, different in every buffer.
    pub fn random(&self, count: usize, amplitude: f32) -> Result<Buffer<bf16>, Failed> {
        let mut out = self.bench.device.allocate(count)?;
        let key = out.pointer();
        self.operations.fill_random(self.bench.device.stream(), &mut out, key, amplitude)?;
        Ok(out)
    }

    pub fn matrix(&self, rows: u32, width: u32) -> Result<Buffer<bf16>, Failed> {
        self.random(rows as usize * width as usize, 1.7 / (width as f32).sqrt())
    }

    fn weights(&self, sizes: &StepSizes) -> Result<Weights, Failed> {
        let norm = |length: u32| self.random(length as usize, 1.0);
        Ok(Weights {
            norms: [norm(sizes.hidden)?, norm(sizes.hidden)?, norm(sizes.head_dim)?, norm(sizes.head_dim)?],
            qkv: self.matrix(sizes.qkv(), sizes.hidden)?,
            output: self.matrix(sizes.hidden, sizes.attended())?,
            gate_up: self.matrix(2 * sizes.ffn, sizes.hidden)?,
            down: self.matrix(sizes.hidden, sizes.ffn)?,
        })
    }

    pub fn decoder(&self, model: &Model) -> Result<Decoder, Failed> {
        let (sizes, device) = (model.sizes, &self.bench.device);
        let cache = || self.random(sizes.cache() as usize, 1.0);
        let [cosines, sines] = reference::rotation(sizes.capacity as usize, sizes.head_dim as usize, 1e6);
        Ok(Decoder {
            sizes,
            layers: (0..model.layers).map(|_| self.weights(&sizes)).collect::<Result<_, _>>()?,
            caches: (0..model.layers).map(|_| Ok([cache()?, cache()?])).collect::<Result<_, Failed>>()?,
            table: self.matrix(sizes.vocab, sizes.hidden)?,
            last: self.random(sizes.hidden as usize, 1.0)?,
            tables: [device.upload(&cosines)?, device.upload(&sines)?],
            activations: Activations::new(device, &sizes)?,
            state: State::new(device, sizes.batch, 256)?,
        })
    }
}

/// The kinds of kernels: five of each layer, three of a step.
const KINDS: [&str; 8] = ["qkv", "attention", "output", "gate_up", "down", "embed", "head", "argmax"];

impl Decoder {
    /// Bytes that a step must read.
    fn bytes(&self) -> f64 {
        let cache = self.sizes.cache() / u64::from(self.sizes.capacity) * u64::from(CONTEXT) * 4;
        let layers: usize = self.layers.iter().map(Weights::bytes).sum();
        (layers + self.table.bytes()) as f64 + cache as f64 * self.layers.len() as f64
    }

    pub fn whole(&mut self, bench: &Bench, step: &Step<bf16>) -> Result<Graph, CudaError> {
        let stream = bench.device.stream();
        let Self { layers, caches, table, last, tables, activations, state, .. } = self;
        let rotation = Rotation { cosines: tables[0].all(), sines: tables[1].all(), pairing: Pairing::Halves };
        Graph::capture(stream, || {
            step.embed(stream, state, table, &mut activations.x)?;
            for (layer, [keys, values]) in layers.iter().zip(caches) {
                layer.layer().run(stream, step, rotation, state, [keys, values], activations)?;
            }
            let (norm, head) = (Norm { weight: last, epsilon: 1e-6 }, Linear { weight: table, bias: None, fp8: None });
            activations.finish(stream, step, &norm, &head, state)
        })
    }

    /// One layer, from `x` to `x`.
    pub fn layer(&mut self, bench: &Bench, step: &Step<bf16>) -> Result<(), CudaError> {
        self.run_layers(bench, step, 1)
    }

    fn run_layers(&mut self, bench: &Bench, step: &Step<bf16>, count: usize) -> Result<(), CudaError> {
        let Self { layers, caches, tables, activations, state, .. } = self;
        let rotation = Rotation { cosines: tables[0].all(), sines: tables[1].all(), pairing: Pairing::Halves };
        for (layer, [keys, values]) in layers.iter().zip(caches).take(count) {
            layer.layer().run(bench.device.stream(), step, rotation, state, [keys, values], activations)?;
        }
        Ok(())
    }

    /// A graph of the layers alone.
    pub fn part(&mut self, bench: &Bench, step: &Step<bf16>) -> Result<Graph, CudaError> {
        let count = self.layers.len();
        Graph::capture(bench.device.stream(), || self.run_layers(bench, step, count))
    }

    /// A graph of one kind of kernel alone, once for each layer.
    pub fn kind(&mut self, bench: &Bench, step: &Step<bf16>, kind: &str) -> Result<Graph, CudaError> {
        let stream = bench.device.stream();
        let Self { sizes, layers, caches, table, last, tables, activations, state } = self;
        let rotation = Rotation { cosines: tables[0].all(), sines: tables[1].all(), pairing: Pairing::Halves };
        let Activations { x, qkv, attended, gated, logits } = activations;
        Graph::capture(stream, || {
            for (layer, [keys, values]) in layers.iter().map(Weights::layer).zip(caches) {
                let norm = Norm { weight: layer.attention_norm, epsilon: 1e-6 };
                match kind {
                    "qkv" => step.norm_linear(stream, x, &norm, &layer.qkv, qkv, [sizes.qkv(), sizes.hidden])?,
                    "attention" => {
                        let (query_norm, key_norm) = (layer.query_norm, layer.key_norm);
                        let attention = Attention { query_norm, key_norm, epsilon: 1e-6, rotation, is_windowed: false };
                        step.attention(stream, qkv, &attention, StepRows::All(state), [keys, values], attended)?;
                    }
                    "output" => {
                        step.linear_add(stream, attended, &layer.output, x, [sizes.hidden, sizes.attended()])?;
                    }
                    "gate_up" => {
                        step.norm_gate_up(stream, x, &norm, &layer.gate_up, gated, [sizes.ffn, sizes.hidden])?
                    }
                    "down" => step.linear_add(stream, gated, &layer.down, x, [sizes.hidden, sizes.ffn])?,
                    "embed" => step.embed(stream, state, table, x)?,
                    "argmax" => step.argmax(stream, logits, state)?,
                    _ => {
                        let norm = Norm { weight: last, epsilon: 1e-6 };
                        let head = Linear { weight: table, bias: None, fp8: None };
                        step.norm_linear(stream, x, &norm, &head, logits, [sizes.vocab, sizes.hidden])?;
                    }
                }
            }
            Ok(())
        })
    }

    /// Microseconds per replay with this number of positions.
    #[allow(unsafe_code)]
    pub fn micros(&mut self, bench: &Bench, clock: &EventClock, graph: &Graph, context: u32) -> Result<f64, Failed> {
        let stream = bench.device.stream();
        self.state.begin(&vec![7; self.sizes.batch as usize], context - 1)?;
        // SAFETY: the decoder lives until the device is synchronised.
        let replay = || unsafe { graph.launch(stream) };
        graph.upload(stream)?;
        replay()?;
        bench.device.synchronise()?;
        let nanos = stream_nanos(bench, clock, || Ok(replay()?))?;
        bench.device.synchronise()?;
        Ok(nanos / 1e3)
    }
}

/// Variants of the kernels, to check that ours is the fastest: warps, copies in flight, and heads of a block of attention.
const OTHERS: [(u32, u32, u32); 10] = [
    (16, 5, 1),
    (16, 5, 2),
    (16, 5, 4),
    (16, 6, 2),
    (12, 6, 2),
    (12, 6, 4),
    (8, 9, 4),
    (12, 6, 8),
    (16, 5, 8),
    (24, 3, 4),
];

const CONTEXTS: [u32; 3] = [512, 4096, 32_768];

pub fn small(bench: &Bench) -> Answer {
    speed(bench, &QWEN3_0_6B)
}

pub fn large(bench: &Bench) -> Answer {
    speed(bench, &QWEN3_4B)
}

pub fn speech(bench: &Bench) -> Answer {
    speed(bench, &SPEECH_7B)
}

fn speed(bench: &Bench, model: &Model) -> Answer {
    let clock = EventClock::new(Arc::clone(bench.device.stream()))?;
    let mut decoder = Maker::new(bench)?.decoder(model)?;
    // Chosen as if the cache were for short contexts, which it is not so that long ones can be tried too.
    let chosen = Tuning::of::<bf16>(&bench.device, &StepSizes { capacity: 1024, ..model.sizes })?;
    let load = |tuning| Step::load_tuned(&bench.device, &Cache::of_user(), model.sizes, tuning);
    let mut words = format!("{:.2} GB per token, context {CONTEXT}", decoder.bytes() / 1e9);
    let mut best = f64::INFINITY;
    for step in [load(chosen)?, load(chosen)?.in_order()] {
        let graph = decoder.whole(bench, &step)?;
        let millis = decoder.micros(bench, &clock, &graph, CONTEXT)? / 1e3;
        best = best.min(millis);
        let name = if step.overlaps() { "overlapping" } else { "in order" };
        let (rate, nodes) = (decoder.bytes() / millis / 1e6, graph.nodes());
        let _ = write!(words, "\n{name}: {millis:.3} ms per token, {rate:.0} GB/s, {nodes} kernels; us each:");
        for kind in KINDS {
            let graph = decoder.kind(bench, &step, kind)?;
            let micros = decoder.micros(bench, &clock, &graph, CONTEXT)? / model.layers as f64;
            let _ = write!(words, " {kind} {micros:.2}");
        }
    }
    for (warps, depth, heads) in OTHERS {
        let tuning = Tuning { warps, depth, attention: AttentionTuning { heads, ..chosen.attention }, tensor: None };
        words += &other(bench, &clock, &mut decoder, &load(tuning)?, tuning)?;
    }
    expect(best <= model.budget, || format!("{best:.2} ms per token, {} at most\n{words}", model.budget))?;
    Ok(words)
}

/// The time of a step with other kernel variants, and of its attention over longer contexts.
fn other(
    bench: &Bench,
    clock: &EventClock,
    decoder: &mut Decoder,
    step: &Step<bf16>,
    tuning: Tuning,
) -> Result<String, Failed> {
    let graph = decoder.whole(bench, step)?;
    let millis = decoder.micros(bench, clock, &graph, CONTEXT)? / 1e3;
    let Tuning { warps, depth, attention: AttentionTuning { heads, .. }, .. } = tuning;
    let mut words = format!("\n{warps} warps, {depth} deep, {heads} heads: {millis:.3} ms");
    if (warps, depth) == (16, 5) {
        let graph = decoder.kind(bench, step, "attention")?;
        words += "; us of attention over";
        for context in CONTEXTS {
            let micros = decoder.micros(bench, clock, &graph, context)? / decoder.layers.len() as f64;
            let _ = write!(words, " {context}: {micros:.1}");
        }
    }
    Ok(words)
}
