//! Steps of several sequences, and of one behind a long context: each kernel by itself, in several variants.
//!
//! A variant is timed after a layer of it agreed with the plain kernels.

use std::{fmt::Write as _, sync::Arc, thread};

use half::bf16;
use laptime_cuda::decode::{AttentionTuning, Step, StepSizes, TensorTuning, Tuning};
use laptime_cuda::{Blas, Buffer, Cache, CudaError, Element, EventClock, Graph, Sizes};

use crate::decode_speed::{Decoder, Maker, Model, QWEN3_0_6B, QWEN3_4B};
use crate::{Answer, Bench, Failed, expect, reference::worst_error};

/// Layers that are run: enough that none of their weights stay in the L2 cache.
const LAYERS: usize = 8;
const PRODUCTS: [&str; 5] = ["qkv", "output", "gate_up", "down", "head"];
/// What rounding explains behind a whole layer, relative to the largest value.
const TOLERANCE: f64 = 3e-2;

/// What is tried for one number of sequences behind one context.
struct Trial {
    batch: u32,
    context: u32,
    /// Splits, and warps per block.
    spreads: &'static [(u32, u32)],
    /// Vectors, splits, warps and copies in flight.
    tensor: &'static [(u32, u32, u32, u32)],
    has_blas: bool,
}

const BATCHES: [Trial; 4] = [
    Trial {
        batch: 1,
        context: 512,
        spreads: &[(4, 8), (8, 4), (8, 8), (16, 4)],
        tensor: &[(8, 8, 8, 4)],
        has_blas: false,
    },
    Trial {
        batch: 8,
        context: 512,
        spreads: &[(1, 8), (2, 8), (2, 4), (4, 4), (4, 8), (8, 4)],
        tensor: &[(8, 8, 8, 4), (8, 8, 8, 3), (8, 4, 8, 4), (8, 8, 8, 6), (8, 8, 12, 3)],
        has_blas: false,
    },
    Trial {
        batch: 32,
        context: 512,
        spreads: &[(1, 4), (1, 8), (2, 4), (2, 8)],
        tensor: &[(32, 8, 8, 2), (32, 8, 8, 3), (32, 8, 8, 6), (32, 4, 8, 2)],
        has_blas: true,
    },
    Trial { batch: 128, context: 512, spreads: &[(1, 4), (1, 8), (2, 4)], tensor: &[], has_blas: true },
];

const LONG: Trial = Trial {
    batch: 1,
    context: 32_768,
    spreads: &[(8, 8), (8, 16), (16, 4), (16, 8), (16, 12), (16, 16)],
    tensor: &[],
    has_blas: false,
};

pub fn batches(bench: &Bench) -> Answer {
    let mut words = String::new();
    for (name, model) in [("Qwen3-0.6B", QWEN3_0_6B), ("Qwen3-4B", QWEN3_4B)] {
        for trial in &BATCHES {
            words += &tried(bench, name, &model, trial)?;
        }
    }
    Ok(words)
}

pub fn long(bench: &Bench) -> Answer {
    Ok(tried(bench, "Qwen3-0.6B", &QWEN3_0_6B, &LONG)? + &tried(bench, "Qwen3-4B", &QWEN3_4B, &LONG)?)
}

impl Trial {
    fn sizes(&self, model: &Model) -> StepSizes {
        StepSizes { batch: self.batch, capacity: if self.context > 1024 { 33_000 } else { 1024 }, ..model.sizes }
    }

    /// The kernels without tensor cores.
    fn plain(&self, sizes: &StepSizes) -> Tuning {
        let heads = (sizes.heads / sizes.kv_heads).clamp(1, 4);
        let is_long = self.context > 1024;
        let attention =
            AttentionTuning { heads: if is_long { heads / 2 } else { heads }, splits: 8, ..AttentionTuning::PLAIN };
        let (warps, depth) = if heads > 2 { (12, 6) } else { (16, 5) };
        Tuning { warps, depth, attention, tensor: None }
    }

    fn spreads(&self, sizes: &StepSizes) -> Vec<AttentionTuning> {
        let heads = (sizes.heads / sizes.kv_heads).clamp(1, 8).next_power_of_two();
        let spread = |(splits, warps): &(u32, u32)| AttentionTuning {
            heads,
            splits: *splits,
            warps: *warps,
            on_tensor_cores: true,
        };
        self.spreads.iter().map(spread).collect()
    }

    /// Variants whose vectors fit in shared memory.
    fn tensor_tunings(&self, sizes: &StepSizes) -> Vec<TensorTuning> {
        let tuning = |(vectors, splits, warps, depth): &(u32, u32, u32, u32)| TensorTuning {
            vectors: *vectors,
            splits: *splits,
            warps: *warps,
            depth: *depth,
        };
        let fits =
            |tensor: &TensorTuning| tensor.vectors * sizes.hidden * 2 + tensor.warps * tensor.depth * 2048 < 215 << 10;
        self.tensor.iter().map(tuning).filter(fits).collect()
    }
}

/// Compiles all variants on all cores.
fn compile(bench: &Bench, sizes: StepSizes, tunings: &[Tuning]) {
    thread::scope(|scope| {
        for tuning in tunings {
            // An error is reported when the variant is loaded.
            scope.spawn(|| drop(Step::<bf16>::load_tuned(&bench.device, &Cache::of_user(), sizes, *tuning)));
        }
    });
}

struct Run<'a> {
    bench: &'a Bench,
    clock: EventClock,
    decoder: Decoder,
    context: u32,
    input: Vec<bf16>,
    expected: Vec<Vec<f32>>,
}

fn tried(bench: &Bench, name: &str, model: &Model, trial: &Trial) -> Answer {
    let sizes = trial.sizes(model);
    let (plain, chosen) = (trial.plain(&sizes), Tuning::of::<bf16>(&bench.device, &sizes)?);
    let spreads: Vec<Tuning> =
        trial.spreads(&sizes).into_iter().map(|attention| Tuning { attention, ..plain }).collect();
    let tensor: Vec<Tuning> =
        trial.tensor_tunings(&sizes).into_iter().map(|tensor| Tuning { tensor: Some(tensor), ..plain }).collect();
    compile(bench, sizes, &[vec![plain, chosen], spreads.clone(), tensor.clone()].concat());

    let maker = Maker::new(bench)?;
    let decoder = maker.decoder(&Model { layers: LAYERS, sizes, ..*model })?;
    let input = maker.random(sizes.batch as usize * sizes.hidden as usize, 1.0)?.read()?;
    let clock = EventClock::new(Arc::clone(bench.device.stream()))?;
    let mut run = Run { bench, clock, decoder, context: trial.context, input, expected: Vec::new() };
    let step = run.load(plain)?;
    run.expected = run.outputs(&step)?;
    let mut words = format!("{name}, {} sequences behind {} positions, us:", trial.batch, trial.context);
    let _ = write!(words, "\n  plain: {}{}", run.kinds(&step, &["attention"])?, run.kinds(&step, &PRODUCTS)?);
    for tuning in spreads {
        let AttentionTuning { splits, warps, .. } = tuning.attention;
        let _ = write!(words, "\n  {splits} splits, {warps} warps:{}", run.checked(tuning, &["attention"])?);
    }
    for tuning in tensor {
        let _ = write!(words, "\n  {:?}:{}", tuning.tensor, run.checked(tuning, &PRODUCTS)?);
    }
    if trial.has_blas {
        let _ = write!(words, "\n  cuBLAS:{}", run.blas()?);
    }
    for (name, tuning) in [("plain", plain), ("chosen", chosen)] {
        let _ = write!(words, "\n  {name}: {}", run.step(model.layers, tuning)?);
    }
    Ok(words + "\n")
}

impl Run<'_> {
    fn load(&self, tuning: Tuning) -> Result<Step<bf16>, CudaError> {
        Step::load_tuned(&self.bench.device, &Cache::of_user(), self.decoder.sizes, tuning)
    }

    /// The results of a layer, from the same hidden states.
    fn outputs(&mut self, step: &Step<bf16>) -> Result<Vec<Vec<f32>>, Failed> {
        let poison = |buffer: &mut Buffer<bf16>| buffer.write(&vec![bf16::NAN; buffer.length()]);
        let activations = &mut self.decoder.activations;
        activations.x.write(&self.input)?;
        poison(&mut activations.qkv)?;
        poison(&mut activations.attended)?;
        poison(&mut activations.gated)?;
        self.decoder.state.begin(&vec![7; self.decoder.sizes.batch as usize], self.context - 1)?;
        self.decoder.layer(self.bench, step)?;
        let activations = &self.decoder.activations;
        let all = [&activations.qkv, &activations.attended, &activations.gated, &activations.x];
        let read = |buffer: &&Buffer<bf16>| Ok(buffer.read()?.into_iter().map(Element::widened).collect());
        all.iter().map(read).collect()
    }

    /// The times of a variant that agrees with the plain kernels.
    fn checked(&mut self, tuning: Tuning, kinds: &[&str]) -> Answer {
        let step = match self.load(tuning) {
            Ok(step) => step,
            Err(error) => return Ok(format!(" {error}")),
        };
        let found = self.outputs(&step)?;
        let names = ["qkv", "attended", "gated", "x"];
        let mut worst = 0.0_f64;
        for ((found, expected), name) in found.iter().zip(&self.expected).zip(names) {
            let error = worst_error(found, expected);
            expect(error < TOLERANCE, || format!("{tuning:?}: `{name}` differs by {error:.1e}"))?;
            worst = worst.max(error);
        }
        Ok(format!("{} (differs by {worst:.0e})", self.kinds(&step, kinds)?))
    }

    fn kinds(&mut self, step: &Step<bf16>, kinds: &[&str]) -> Answer {
        let mut words = String::new();
        for kind in kinds {
            let graph = self.decoder.kind(self.bench, step, kind)?;
            let micros = self.decoder.micros(self.bench, &self.clock, &graph, self.context)? / LAYERS as f64;
            let _ = write!(words, " {kind} {micros:.2}");
        }
        Ok(words)
    }

    /// The same products by cuBLAS, without norms, SwiGLU and additions.
    fn blas(&mut self) -> Answer {
        let blas = Blas::new(&self.bench.device)?;
        let StepSizes { batch: m, hidden, ffn, vocab, .. } = self.decoder.sizes;
        let (qkv, attended) = (self.decoder.sizes.qkv(), self.decoder.sizes.attended());
        let all =
            [("qkv", qkv, hidden), ("output", hidden, attended), ("gate_up", 2 * ffn, hidden), ("down", hidden, ffn)];
        let mut words = String::new();
        for (kind, n, k) in all.into_iter().chain([("head", vocab, hidden)]) {
            let from = self.bench.device.upload(&vec![bf16::ONE; m as usize * k as usize])?;
            let mut out = self.bench.device.upload(&vec![bf16::ZERO; m as usize * n as usize])?;
            let sizes = Sizes { m, n, k, b_is_transposed: true };
            let (layers, table) = (&self.decoder.layers, &self.decoder.table);
            let mut multiply = || {
                layers.iter().try_for_each(|layer| {
                    let weight = match kind {
                        "qkv" => &layer.qkv,
                        "output" => &layer.output,
                        "gate_up" => &layer.gate_up,
                        "down" => &layer.down,
                        _ => table,
                    };
                    blas.multiply_slices([from.all(), weight.all()], out.all_mut(), sizes)
                })
            };
            // The first call loads the kernel.
            multiply()?;
            let graph = Graph::capture(self.bench.device.stream(), multiply)?;
            let micros = self.decoder.micros(self.bench, &self.clock, &graph, self.context)? / LAYERS as f64;
            let _ = write!(words, " {kind} {micros:.2}");
        }
        Ok(words)
    }

    /// The time of a layer among others, and of a step of all layers.
    fn step(&mut self, layers: usize, tuning: Tuning) -> Answer {
        let step = self.load(tuning)?;
        let whole = self.decoder.whole(self.bench, &step)?;
        let whole = self.decoder.micros(self.bench, &self.clock, &whole, self.context)?;
        let part = self.decoder.part(self.bench, &step)?;
        let part = self.decoder.micros(self.bench, &self.clock, &part, self.context)?;
        let each = part / LAYERS as f64;
        let all = (whole + each * (layers - LAYERS) as f64) / 1e3;
        Ok(format!("{each:.2} us per layer, about {all:.3} ms per step of {layers} layers ({tuning:?})"))
    }
}
