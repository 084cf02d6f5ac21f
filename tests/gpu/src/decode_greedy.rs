//! A small decoder that selects its tokens on the device, compared with the CPU.

use laptime_cuda::decode::{Linear, Norm, State, Step, StepSizes};
use laptime_cuda::nn::{Pairing, Rotation};
use laptime_cuda::{Buffer, Element, Graph};

use crate::decode::{BASE, Both, EPSILON, random, step};
use crate::decode_layer::{Activations, Layer};
use crate::{Answer, Bench, Failed, expect, reference::decode as cpu};

/// The weights of a layer on both sides.
struct Weights<T> {
    norms: [Both<T>; 2],
    head_norms: [Both<T>; 2],
    qkv: Both<T>,
    bias: Both<T>,
    output: Both<T>,
    gate_up: Both<T>,
    down: Both<T>,
}

impl<T: Element> Weights<T> {
    fn random(bench: &Bench, sizes: &StepSizes, seed: u64) -> Result<Self, Failed> {
        let norm = |length: u32, more| random(bench, length as usize, seed + more, 1.0, 0.3);
        let matrix = |rows: u32, width: u32, more| {
            random(bench, (rows * width) as usize, seed + more, 0.0, 1.5 / (width as f32).sqrt())
        };
        Ok(Self {
            norms: [norm(sizes.hidden, 0)?, norm(sizes.hidden, 1)?],
            head_norms: [norm(sizes.head_dim, 2)?, norm(sizes.head_dim, 3)?],
            qkv: matrix(sizes.qkv(), sizes.hidden, 4)?,
            bias: random(bench, sizes.qkv() as usize, seed + 5, 0.0, 0.2)?,
            output: matrix(sizes.hidden, sizes.attended(), 6)?,
            gate_up: matrix(2 * sizes.ffn, sizes.hidden, 7)?,
            down: matrix(sizes.hidden, sizes.ffn, 8)?,
        })
    }

    fn layer(&self) -> Layer<'_, T> {
        let plain = |weight| Linear { weight, bias: None, fp8: None };
        Layer {
            attention_norm: &self.norms[0].device,
            qkv: Linear { weight: &self.qkv.device, bias: Some(&self.bias.device), fp8: None },
            query_norm: Some(&self.head_norms[0].device),
            key_norm: Some(&self.head_norms[1].device),
            output: plain(&self.output.device),
            ffn_norm: &self.norms[1].device,
            gate_up: plain(&self.gate_up.device),
            down: plain(&self.down.device),
            epsilon: EPSILON,
        }
    }

    /// The same layer for one sequence on the CPU; `cache` holds the keys and values of each head so far.
    fn on_cpu(&self, sizes: &StepSizes, x: &mut Vec<f32>, cache: &mut [[Vec<f32>; 2]], turns: [&[f32]; 2]) {
        let (heads, kv_heads) = (sizes.heads as usize, sizes.kv_heads as usize);
        let normed = cpu::norm::<T>(x, &self.norms[0].host, EPSILON);
        let qkv = cpu::norm_linear::<T>(&normed, &self.qkv.host, Some(&self.bias.host));
        let all: Vec<&[f32]> = qkv.chunks_exact(sizes.head_dim as usize).collect();
        let prepared = |head: &[f32], norm: &Both<T>| cpu::prepared::<T>(head, Some(&norm.host), EPSILON, turns, false);
        for (index, [keys, values]) in cache.iter_mut().enumerate() {
            keys.extend(prepared(all[heads + index], &self.head_norms[1]));
            values.extend(all[heads + kv_heads + index]);
        }
        let attended = all[..heads].iter().enumerate().flat_map(|(index, head)| {
            let [keys, values] = &cache[index / (heads / kv_heads)];
            cpu::attend::<T>(&prepared(head, &self.head_norms[0]), keys, values)
        });
        *x = cpu::linear_add::<T>(&attended.collect::<Vec<_>>(), &self.output.host, None, x);
        let normed = cpu::norm::<T>(x, &self.norms[1].host, EPSILON);
        let gated = cpu::norm_gate_up::<T>(&normed, &self.gate_up.host, None);
        *x = cpu::linear_add::<T>(&gated, &self.down.host, None, x);
    }
}

const REPLAYS: usize = 20;

/// A decoder of three layers, captured and replayed, overlapping and in order, compared with the same on the CPU.
pub fn greedy(bench: &Bench) -> Answer {
    let sizes =
        StepSizes { batch: 3, hidden: 96, heads: 6, kv_heads: 2, head_dim: 16, ffn: 200, vocab: 1000, capacity: 64 };
    let layers: Vec<Weights<f32>> =
        (0..3).map(|layer| Weights::random(bench, &sizes, 100 * layer + 1)).collect::<Result<_, _>>()?;
    let table = random::<f32>(bench, (sizes.vocab * sizes.hidden) as usize, 7, 0.0, 1.0)?;
    // A separate head: a head tied to the embedding would repeat its input token.
    let head = random::<f32>(bench, (sizes.vocab * sizes.hidden) as usize, 9, 0.0, 1.0)?;
    let last = random::<f32>(bench, sizes.hidden as usize, 8, 1.0, 0.3)?;
    let firsts = [5, 17, 999];
    let expected = greedily_on_cpu(&sizes, &layers, [&table.host, &head.host, &last.host], &firsts);
    for overlaps in [true, false] {
        let step = step::<f32>(bench, sizes)?;
        let step = if overlaps { step } else { step.in_order() };
        let chosen = greedily(bench, &step, &layers, [&table.device, &head.device, &last.device], &firsts)?;
        expect(chosen == expected, || format!("overlapping {overlaps}: {chosen:?} and not {expected:?}"))?;
    }
    let distinct = expected.iter().collect::<std::collections::BTreeSet<_>>().len();
    Ok(format!("{REPLAYS} replays of three sequences, {distinct} distinct tokens"))
}

#[allow(unsafe_code)]
fn greedily(
    bench: &Bench,
    step: &Step<f32>,
    layers: &[Weights<f32>],
    [table, head, last]: [&Buffer<f32>; 3],
    firsts: &[u32],
) -> Result<Vec<u32>, Failed> {
    let (sizes, stream) = (step.sizes(), bench.device.stream());
    let [cosines, sines] = cpu::rotation(sizes.capacity as usize, sizes.head_dim as usize, BASE);
    let tables = [bench.device.upload(&cosines)?, bench.device.upload(&sines)?];
    let rotation = Rotation { cosines: tables[0].all(), sines: tables[1].all(), pairing: Pairing::Halves };
    let mut activations = Activations::new(&bench.device, &sizes)?;
    let mut state = State::new(&bench.device, sizes.batch, REPLAYS as u32)?;
    let cache = || bench.device.allocate::<f32>(sizes.cache() as usize);
    let mut caches = layers.iter().map(|_| Ok([cache()?, cache()?])).collect::<Result<Vec<_>, Failed>>()?;
    let graph = Graph::capture(stream, || {
        step.embed(stream, &state, table, &mut activations.x)?;
        for (layer, [keys, values]) in layers.iter().zip(&mut caches) {
            layer.layer().run(stream, step, rotation, &state, [keys, values], &mut activations)?;
        }
        let (norm, head) = (Norm { weight: last, epsilon: EPSILON }, Linear { weight: head, bias: None, fp8: None });
        activations.finish(stream, step, &norm, &head, &mut state)
    })?;
    state.begin(firsts, 0)?;
    for _ in 0..REPLAYS {
        // SAFETY: all that was captured lives until the tokens are read, which waits.
        unsafe { graph.launch(stream)? };
    }
    Ok(crate::decode::chosen(&state)?)
}

fn greedily_on_cpu(
    sizes: &StepSizes,
    layers: &[Weights<f32>],
    [table, head, last]: [&[f32]; 3],
    firsts: &[u32],
) -> Vec<u32> {
    let (hidden, half) = (sizes.hidden as usize, sizes.head_dim as usize / 2);
    let [cosines, sines] = cpu::rotation(REPLAYS, sizes.head_dim as usize, BASE);
    let mut tokens = firsts.to_vec();
    let empty = || vec![[Vec::new(), Vec::new()]; sizes.kv_heads as usize];
    let mut caches: Vec<Vec<_>> = firsts.iter().map(|_| layers.iter().map(|_| empty()).collect()).collect();
    let mut chosen = Vec::new();
    for position in 0..REPLAYS {
        let turns = [&cosines, &sines].map(|values| &values[position * half..(position + 1) * half]);
        for (token, cache) in tokens.iter_mut().zip(&mut caches) {
            let mut x = table[*token as usize * hidden..(*token as usize + 1) * hidden].to_vec();
            for (layer, cache) in layers.iter().zip(cache) {
                layer.on_cpu(sizes, &mut x, cache, turns);
            }
            let normed = cpu::norm::<f32>(&x, last, EPSILON);
            *token = cpu::argmax(&cpu::norm_linear::<f32>(&normed, head, None));
        }
        chosen.extend(&tokens);
    }
    chosen
}
