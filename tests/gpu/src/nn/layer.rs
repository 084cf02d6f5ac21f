//! A small decoder of one layer made of all operations, done at once and replayed as a graph.

use laptime_cuda::nn::{Attention, HeadNorm, HeadSizes, Packed, Pairing, Rotation};
use laptime_cuda::{Blas, Buffer, Cache, CudaError, Graph, Sizes};

use super::{Answer, Bench, Failed, Lab, Number, expect, in_each_type, speed::replay};
use crate::reference::{matmul, nn as reference, transpose};

const SIZES: HeadSizes = HeadSizes { batch: 2, tokens: 19, heads: 4, kv_heads: 2, head_dim: 32, capacity: 64 };
const HIDDEN: u32 = 96;
const FFN: u32 = 160;
const VOCABULARY: u32 = 251;
const EPSILON: f32 = 1e-6;

/// Positions at which the step is done: the second is written between two replays.
const STARTS: [u32; 2] = [0, 19];

pub fn captured(bench: &Bench) -> Answer {
    in_each_type!(bench, captured_of)
}

/// Weights on the host, in the order of [`shapes`].
struct Host {
    weights: Vec<Vec<f32>>,
    cosines: Vec<f32>,
    sines: Vec<f32>,
    tokens: Vec<u32>,
}

/// Table, norm, qkv, head norms, output, gate and up, down: rows and columns.
fn shapes() -> [[u32; 2]; 8] {
    let width = SIZES.packed_width() as u32;
    let heads = SIZES.heads * SIZES.head_dim;
    let head = [1, SIZES.head_dim];
    [[VOCABULARY, HIDDEN], [1, HIDDEN], [width, HIDDEN], head, head, [HIDDEN, heads], [2 * FFN, HIDDEN], [HIDDEN, FFN]]
}

fn rows() -> u32 {
    SIZES.batch * SIZES.tokens
}

impl Host {
    fn new<T: Number>(lab: &Lab<'_, T>) -> Self {
        let made = |(seed, [rows, columns]): (usize, [u32; 2])| {
            let values = lab.noise((rows * columns) as usize, 41 + seed as u64);
            values.iter().map(|value| T::narrowed(value * 0.25).widened()).collect()
        };
        let angles = crate::reference::noise((SIZES.capacity * SIZES.head_dim / 2) as usize, 60);
        let (cosines, sines) = angles.iter().map(|angle| ((angle * 3.0).cos(), (angle * 3.0).sin())).unzip();
        let tokens = (0..rows()).map(|at| at * 37 % VOCABULARY).collect();
        Self { weights: shapes().into_iter().enumerate().map(made).collect(), cosines, sines, tokens }
    }

    /// The hidden states after the layer, with the caches as they were left by the step before.
    fn step(&self, caches: &mut [Vec<f32>; 2], start: usize) -> Vec<f32> {
        let [table, norm, qkv, q_norm, k_norm, output, gate_up, down] = &self.weights[..] else { return Vec::new() };
        let linear = |x: &[f32], weight: &[f32], [n, k]: [u32; 2]| {
            let (m, n, k) = (rows() as usize, n as usize, k as usize);
            matmul(x, &transpose(weight, [n, k]), [m, n, k])
        };
        let added = |x: &[f32], y: &[f32]| x.iter().zip(y).map(|(a, b)| a + b).collect::<Vec<f32>>();
        let shapes = shapes();
        let x = reference::embed(&self.tokens, table, HIDDEN as usize);
        let packed = linear(&reference::rms_norm(&x, norm, EPSILON), qkv, shapes[2]);
        let (cosines, sines) = (&self.cosines, &self.sines);
        let weights = Some(([&q_norm[..], &k_norm[..]], EPSILON));
        let split = reference::Split { bias: &[], norm: weights, cosines, sines, pairing: Pairing::Halves, start };
        let heads = reference::split_heads(&packed, &SIZES, &split, 0.0);
        // What this step did not write is zero in it.
        let kept =
            |old: &[f32], new: &[f32]| old.iter().zip(new).map(|(a, b)| if *b == 0.0 { *a } else { *b }).collect();
        *caches = [kept(&caches[0], &heads.k), kept(&caches[1], &heads.v)];
        let attended = reference::attention([&heads.q, &caches[0], &caches[1]], &SIZES, start, 0.2);
        let x = added(&x, &linear(&attended, output, shapes[5]));
        let gates = linear(&reference::rms_norm(&x, norm, EPSILON), gate_up, shapes[6]);
        added(&x, &linear(&reference::swiglu(&gates, FFN as usize), down, shapes[7]))
    }
}

/// The same on the device.
struct DeviceLayer<T> {
    blas: Blas,
    attention: Attention<T>,
    weights: Vec<Buffer<T>>,
    cosines: Buffer<f32>,
    sines: Buffer<f32>,
    tokens: Buffer<u32>,
    start: Buffer<u32>,
    x: Buffer<T>,
    normed: Buffer<T>,
    packed: Buffer<T>,
    q: Buffer<T>,
    caches: [Buffer<T>; 2],
    attended: Buffer<T>,
    gates: Buffer<T>,
    gated: Buffer<T>,
    last: Buffer<T>,
    logits: Buffer<T>,
    chosen: Buffer<u32>,
}

impl<T: Number> DeviceLayer<T> {
    fn new(lab: &Lab<'_, T>, host: &Host) -> Result<Self, CudaError> {
        let device = &lab.bench.device;
        let room = |columns: u32| lab.spoiled((rows() * columns) as usize);
        let cache = || lab.upload(&vec![0.0; SIZES.cache_elements() as usize]);
        Ok(Self {
            blas: Blas::new(device)?,
            attention: Attention::load(device, &Cache::of_user(), SIZES.head_dim, None)?,
            weights: host.weights.iter().map(|weight| lab.upload(weight)).collect::<Result<_, _>>()?,
            cosines: device.upload(&host.cosines)?,
            sines: device.upload(&host.sines)?,
            tokens: device.upload(&host.tokens)?,
            start: device.upload(&[0])?,
            x: room(HIDDEN)?,
            normed: room(HIDDEN)?,
            packed: room(SIZES.packed_width() as u32)?,
            q: room(SIZES.heads * SIZES.head_dim)?,
            caches: [cache()?, cache()?],
            attended: room(SIZES.heads * SIZES.head_dim)?,
            gates: room(2 * FFN)?,
            gated: room(FFN)?,
            last: lab.spoiled((SIZES.batch * HIDDEN) as usize)?,
            logits: lab.spoiled((SIZES.batch * VOCABULARY) as usize)?,
            chosen: device.upload(&[0, 0])?,
        })
    }

    /// Puts a step on the stream, from tokens to the tokens that come next.
    fn step(&mut self, lab: &Lab<'_, T>) -> Result<(), CudaError> {
        let (stream, operations, shapes) = (lab.bench.device.stream(), &lab.operations, shapes());
        let linear = |[n, k]: [u32; 2]| Sizes { m: rows(), n, k, b_is_transposed: true };
        let Self { blas, weights, x, normed, packed, q, caches: [k, v], attended, gates, gated, .. } = self;
        let norm = [rows(), HIDDEN];
        operations.embed(stream, &self.tokens, &weights[0], &mut *x, shapes[0])?;
        operations.rms_norm(stream, &*x, &weights[1], &mut *normed, norm, EPSILON)?;
        blas.multiply([&*normed, &weights[2]], packed, linear(shapes[2]))?;
        let input = Packed {
            packed: packed.all(),
            bias: None,
            norm: Some(HeadNorm { q: weights[3].all(), k: weights[4].all(), epsilon: EPSILON }),
            rotation: Rotation { cosines: self.cosines.all(), sines: self.sines.all(), pairing: Pairing::Halves },
            start: self.start.all(),
        };
        operations.split_heads(stream, &input, &mut *q, &mut *k, &mut *v, &SIZES)?;
        self.attention.attend(
            stream,
            [q.all(), k.all(), v.all()],
            &self.start,
            (attended.all_mut(), None),
            &SIZES,
            0.2,
        )?;
        blas.multiply_add([attended.all(), weights[5].all()], x.all_mut(), linear(shapes[5]))?;
        operations.rms_norm(stream, &*x, &weights[1], &mut *normed, norm, EPSILON)?;
        blas.multiply([&*normed, &weights[6]], gates, linear(shapes[6]))?;
        operations.swiglu(stream, &*gates, None, &mut *gated, [rows(), FFN])?;
        blas.multiply_add([gated.all(), weights[7].all()], x.all_mut(), linear(shapes[7]))?;
        operations.last_rows(stream, &*x, &mut self.last, [SIZES.batch, SIZES.tokens, HIDDEN])?;
        let head = Sizes { m: SIZES.batch, ..linear(shapes[0]) };
        blas.multiply([&self.last, &weights[0]], &mut self.logits, head)?;
        operations.argmax(stream, &self.logits, &mut self.chosen, [SIZES.batch, VOCABULARY])
    }
}

fn captured_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // Every result on the way is rounded, and f32 is added up in another order.
    lab.roundings = 4.0;
    let host = Host::new(lab);
    let mut there = DeviceLayer::new(lab, &host)?;
    there.step(lab)?;
    let graph = Graph::capture(lab.bench.device.stream(), || there.step(lab))?;
    expect(graph.nodes() >= 13, || format!("{} nodes", graph.nodes()))?;
    let mut caches = [vec![0.0; SIZES.cache_elements() as usize], vec![0.0; SIZES.cache_elements() as usize]];
    for start in STARTS {
        there.start.write(&[start])?;
        replay(&graph, lab.bench)?;
        let expected = host.step(&mut caches, start as usize);
        lab.judge(&format!("a replayed layer from {start}"), &there.x, &expected)?;
        lab.judge("its cache of values", &there.caches[1], &caches[1])?;
        let logits: Vec<f32> = there.logits.read()?.into_iter().map(T::widened).collect();
        let (chosen, expected) = (there.chosen.read()?, reference::argmax(&logits, VOCABULARY as usize));
        expect(chosen == expected, || format!("{} chose {chosen:?} and not {expected:?}", T::NAME))?;
    }
    Ok(())
}
