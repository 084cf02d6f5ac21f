//! The kernels of a decode step compared with references on the CPU.

use std::{fmt::Debug, thread};

use half::{bf16, f16};
use laptime_cuda::decode::{Attention, AttentionTuning, Linear, Norm, State, Step, StepRows, StepSizes, Tuning};
use laptime_cuda::nn::{Pairing, Rotation};
use laptime_cuda::{Buffer, Cache, CudaError, Element};

use crate::reference::{decode as cpu, noise, worst_error};
use crate::{Answer, Bench, Failed, expect};

pub const EPSILON: f32 = 1e-6;
pub const BASE: f64 = 10_000.0;

/// A type that steps are tested in, with the largest error that rounding explains.
pub trait Tested: Element + Debug + PartialEq {
    const NAME: &'static str;
    const TOLERANCE: f64;
}

impl Tested for f32 {
    const NAME: &'static str = "f32";
    const TOLERANCE: f64 = 5e-6;
}
impl Tested for bf16 {
    const NAME: &'static str = "bf16";
    const TOLERANCE: f64 = 8e-3;
}
impl Tested for f16 {
    const NAME: &'static str = "f16";
    const TOLERANCE: f64 = 1e-3;
}

/// Values on both sides: numbers of the device's type, and as the CPU computes with them.
pub struct Both<T> {
    pub device: Buffer<T>,
    pub host: Vec<f32>,
}

pub fn narrow<T: Element>(values: &[f32]) -> Vec<T> {
    values.iter().map(|value| T::narrowed(*value)).collect()
}

pub fn widen<T: Element>(values: &[T]) -> Vec<f32> {
    values.iter().map(|value| value.widened()).collect()
}

pub fn both<T: Element>(bench: &Bench, values: &[f32]) -> Result<Both<T>, Failed> {
    let narrow = narrow::<T>(values);
    Ok(Both { device: bench.device.upload(&narrow)?, host: widen(&narrow) })
}

/// Noise around a middle.
pub fn random<T: Element>(bench: &Bench, length: usize, seed: u64, middle: f32, reach: f32) -> Result<Both<T>, Failed> {
    let values: Vec<f32> = noise(length, seed).iter().map(|value| middle + value * reach).collect();
    both(bench, &values)
}

/// Loads every variant that the tests need, on all cores, so that the tests find them in the cache.
pub fn compiles(bench: &Bench) -> Answer {
    let variants = [(16, 1), (64, 2), (80, 3), (128, 8), (256, 1), (64, 9), (64, 17)];
    let loads = [load::<f32>, load::<bf16>, load::<f16>];
    let errors: Vec<String> = thread::scope(|scope| {
        let all = variants.iter().flat_map(|(head_dim, batch)| loads.iter().map(move |load| (load, head_dim, batch)));
        let mut threads: Vec<_> = all.map(|(load, d, batch)| scope.spawn(move || load(bench, *d, *batch))).collect();
        for case in cases().filter(|case| SPREAD_HEADS.contains(&case.head_dim)) {
            let both = move || load_spread::<bf16>(bench, case).and(load_spread::<f16>(bench, case).map(|_| ()));
            threads.push(scope.spawn(move || both().map_err(|error| error.to_string())));
        }
        threads.into_iter().filter_map(|thread| thread.join().unwrap_or(Err("a panic".to_owned())).err()).collect()
    });
    expect(errors.is_empty(), || errors.join("\n"))?;
    Ok(format!("{} variants", variants.len() * loads.len()))
}

fn load<T: Element>(bench: &Bench, head_dim: u32, batch: u32) -> Result<(), String> {
    let sizes = StepSizes { head_dim, ..sizes(batch) };
    let loaded = Step::<T>::load(&bench.device, &Cache::of_user(), sizes);
    loaded.map(|_| ()).map_err(|error| error.to_string())
}

fn sizes(batch: u32) -> StepSizes {
    StepSizes { batch, hidden: 1024, heads: 4, kv_heads: 2, head_dim: 64, ffn: 3072, vocab: 1000, capacity: 64 }
}

pub fn step<T: Element>(bench: &Bench, sizes: StepSizes) -> Result<Step<T>, Failed> {
    Ok(Step::load(&bench.device, &Cache::of_user(), sizes)?)
}

pub fn products(bench: &Bench) -> Answer {
    let few = [1, 3, 8];
    let more = [2, 9, 16, 17, 33];
    let worst = [
        products_of::<f32>(bench, &few)?,
        products_of::<bf16>(bench, &[&few[..], &more[..]].concat())?,
        products_of::<f16>(bench, &[&few[..], &more[..]].concat())?,
    ];
    Ok(format!(
        "up to {} vectors; worst error f32 {:.0e}, bf16 {:.0e}, f16 {:.0e}",
        more[more.len() - 1],
        worst[0],
        worst[1],
        worst[2]
    ))
}

fn products_of<T: Tested>(bench: &Bench, batches: &[u32]) -> Result<f64, Failed> {
    let large = [[4096, 1024], [1024, 3072]];
    let small = [[1, 8], [7, 264], [1001, 520], [33, 101], [640, 2050], [50, 72], [2050, 64]];
    // Eight vectors of f32 that are wider than those of the model do not fit the shared memory.
    let wide = [[129, 4104]];
    let mut worst = 0_f64;
    for &batch in batches {
        let step = step::<T>(bench, sizes(batch))?;
        let large = large.iter().filter(|_| batch <= 8);
        let wide = wide.iter().filter(|_| size_of::<T>() == 2);
        for [rows, width] in large.chain(&small).chain(wide).copied() {
            for has_bias in [false, true] {
                let error = product(bench, &step, batch as usize, [rows, width], has_bias)?;
                expect(error < T::TOLERANCE, || {
                    format!("{} batch {batch} [{rows}, {width}] bias {has_bias}: worst error {error:.1e}", T::NAME)
                })?;
                worst = worst.max(error);
            }
        }
    }
    Ok(worst)
}

/// The worst error of the three kinds of product.
fn product<T: Tested>(
    bench: &Bench,
    step: &Step<T>,
    batch: usize,
    [rows, width]: [usize; 2],
    has_bias: bool,
) -> Result<f64, Failed> {
    let stream = bench.device.stream();
    let x = random::<T>(bench, batch * width, 1, 0.1, 1.0)?;
    let norm = random::<T>(bench, width, 2, 1.0, 0.3)?;
    let weight = random::<T>(bench, 2 * rows * width, 3, 0.0, 1.0 / (width as f32).sqrt())?;
    let bias = random::<T>(bench, 2 * rows, 4, 0.0, 0.5)?;
    let before = random::<T>(bench, batch * rows, 5, 0.0, 1.0)?;
    let linear = Linear { weight: &weight.device, bias: has_bias.then_some(&bias.device), fp8: None };
    let norms = Norm { weight: &norm.device, epsilon: EPSILON };
    let poison = vec![T::narrowed(f32::NAN); batch * rows];
    let (mut plain, mut gated) = (bench.device.upload(&poison)?, bench.device.upload(&poison)?);
    let mut added = bench.device.upload(&narrow::<T>(&before.host))?;
    let shape = [rows as u32, width as u32];
    step.norm_linear(stream, &x.device, &norms, &linear, &mut plain, shape)?;
    step.norm_gate_up(stream, &x.device, &norms, &linear, &mut gated, shape)?;
    step.linear_add(stream, &x.device, &linear, &mut added, shape)?;

    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    let (once, twice) = (&weight.host[..rows * width], &weight.host[..]);
    for (vector, before) in x.host.chunks_exact(width).zip(before.host.chunks_exact(rows)) {
        let normed = cpu::norm::<T>(vector, &norm.host, EPSILON);
        let (one, both) = (has_bias.then_some(&bias.host[..rows]), has_bias.then_some(&bias.host[..]));
        expected[0].extend(cpu::norm_linear::<T>(&normed, once, one));
        expected[1].extend(cpu::norm_gate_up::<T>(&normed, twice, both));
        expected[2].extend(cpu::linear_add::<T>(vector, once, one, before));
    }
    let found = [plain.read()?, gated.read()?, added.read()?];
    Ok(found.iter().zip(&expected).map(|(found, expected)| worst_error(&widen(found), expected)).fold(0.0, f64::max))
}

/// One case of attention.
#[derive(Debug, Clone, Copy)]
struct Case {
    batch: usize,
    kv_heads: usize,
    group: usize,
    head_dim: usize,
    position: usize,
    has_norm: bool,
    in_pairs: bool,
    window: Option<usize>,
}

/// The head sizes that tensor cores take.
const SPREAD_HEADS: [usize; 2] = [64, 128];

fn cases() -> impl Iterator<Item = Case> {
    [1, 2, 4, 5, 7, 8, 9].into_iter().enumerate().flat_map(|(index, group)| {
        [16, 64, 80, 128].into_iter().flat_map(move |head_dim| {
            [0, 1, 511, 1000].into_iter().map(move |position| {
                let batch = [1, 3, 8][(index + position) % 3];
                let (has_norm, in_pairs) = ((group + head_dim / 16 + position) % 2 == 0, position % 2 == 1);
                let window = (index % 2 == 1).then_some(50);
                Case { batch, kv_heads: 2, group, head_dim, position, has_norm, in_pairs, window }
            })
        })
    })
}

pub fn attention(bench: &Bench) -> Answer {
    let (mut worst, mut count) = ([0_f64; 3], 0);
    for case in cases() {
        worst[0] = worst[0].max(attend(bench, case, &case.load::<f32>(bench)?)?);
        worst[1] = worst[1].max(attend(bench, case, &case.load::<bf16>(bench)?)?);
        worst[2] = worst[2].max(attend(bench, case, &case.load::<f16>(bench)?)?);
        if SPREAD_HEADS.contains(&case.head_dim) {
            worst[1] = worst[1].max(attend(bench, case, &load_spread::<bf16>(bench, case)?)?);
            worst[2] = worst[2].max(attend(bench, case, &load_spread::<f16>(bench, case)?)?);
        }
        count += 1;
    }
    let widest = Case {
        batch: 1,
        kv_heads: 1,
        group: 8,
        head_dim: 256,
        position: 100,
        has_norm: true,
        in_pairs: false,
        window: None,
    };
    attend(bench, widest, &widest.load::<f32>(bench)?)?;
    let windowed = Case { window: Some(64), ..widest };
    attend(bench, windowed, &windowed.load::<bf16>(bench)?)?;
    Ok(format!(
        "{count} cases of each type; worst error f32 {:.0e}, bf16 {:.0e}, f16 {:.0e}",
        worst[0], worst[1], worst[2]
    ))
}

const CAPACITY: usize = 1024;

impl Case {
    fn sizes(&self) -> StepSizes {
        StepSizes {
            batch: self.batch as u32,
            heads: (self.kv_heads * self.group) as u32,
            kv_heads: self.kv_heads as u32,
            head_dim: self.head_dim as u32,
            capacity: CAPACITY as u32,
            ..sizes(1)
        }
    }

    fn load<T: Element>(&self, bench: &Bench) -> Result<Step<T>, CudaError> {
        self.with_window(bench, Step::load(&bench.device, &Cache::of_user(), self.sizes())?)
    }

    fn with_window<T: Element>(&self, bench: &Bench, step: Step<T>) -> Result<Step<T>, CudaError> {
        match self.window {
            Some(window) => step.with_window(&bench.device, &Cache::of_user(), window as u32),
            None => Ok(step),
        }
    }
}

/// Attention on tensor cores, with another number of blocks for each group.
fn load_spread<T: Element>(bench: &Bench, case: Case) -> Result<Step<T>, CudaError> {
    let (splits, warps) = match case.group {
        1 => (16, 8),
        2 => (8, 4),
        4 => (4, 8),
        5 => (2, 4),
        7 => (1, 8),
        8 => (1, 16),
        _ => (8, 8),
    };
    let splits = if bench.device.facts().capability.0 >= 9 { splits } else { 1 };
    let heads = (case.group as u32).clamp(1, 8).next_power_of_two();
    let attention = AttentionTuning { heads, splits, warps, on_tensor_cores: true };
    let tuning = Tuning { attention, ..Tuning::of::<T>(&bench.device, &case.sizes())? };
    case.with_window(bench, Step::load_tuned(&bench.device, &Cache::of_user(), case.sizes(), tuning)?)
}

fn attend<T: Tested>(bench: &Bench, case: Case, step: &Step<T>) -> Result<f64, Failed> {
    let Case { batch, kv_heads, group, head_dim, position, has_norm, in_pairs, window } = case;
    let (heads, capacity) = (kv_heads * group, CAPACITY);
    let qkv = random::<T>(bench, batch * (heads + 2 * kv_heads) * head_dim, 1, 0.0, 2.0)?;
    let norms = [random::<T>(bench, head_dim, 2, 1.0, 0.3)?, random::<T>(bench, head_dim, 3, 1.0, 0.3)?];
    // Positions after the current one must not be read.
    let cache = |seed| {
        let mut values = noise(batch * kv_heads * capacity * head_dim, seed);
        for head in values.chunks_exact_mut(capacity * head_dim) {
            head[position * head_dim..].fill(f32::NAN);
        }
        both::<T>(bench, &values)
    };
    let [mut keys, mut values] = [cache(4)?, cache(5)?];
    let [cosines, sines] = cpu::rotation(capacity, head_dim, BASE);
    let tables = [bench.device.upload(&cosines)?, bench.device.upload(&sines)?];
    let pairing = if in_pairs { Pairing::Pairs } else { Pairing::Halves };
    let rotation = Rotation { cosines: tables[0].all(), sines: tables[1].all(), pairing };
    let mut state = State::new(&bench.device, batch as u32, 1)?;
    state.begin(&vec![0; batch], position as u32)?;
    let mut out = bench.device.upload(&vec![T::narrowed(f32::NAN); batch * heads * head_dim])?;
    let [query_norm, key_norm] = [0, 1].map(|index| has_norm.then_some(&norms[index].device));
    let attention = Attention { query_norm, key_norm, epsilon: EPSILON, rotation, is_windowed: window.is_some() };
    let caches = [&mut keys.device, &mut values.device];
    step.attention(bench.device.stream(), &qkv.device, &attention, StepRows::All(&state), caches, &mut out)?;

    let turns = [&cosines, &sines].map(|table| &table[position * head_dim / 2..(position + 1) * head_dim / 2]);
    let host_norms = [0, 1].map(|index| has_norm.then_some(&norms[index].host[..]));
    let mut expected = Vec::new();
    for (sequence, token) in qkv.host.chunks_exact((heads + 2 * kv_heads) * head_dim).enumerate() {
        let head = |index: usize| &token[index * head_dim..(index + 1) * head_dim];
        let mut seen = Vec::new();
        for kv_head in 0..kv_heads {
            let first = (sequence * kv_heads + kv_head) * capacity * head_dim;
            let (at, end) = (first + position * head_dim, first + (position + 1) * head_dim);
            let key = cpu::prepared::<T>(head(heads + kv_head), host_norms[1], EPSILON, turns, in_pairs);
            keys.host[at..end].copy_from_slice(&key);
            values.host[at..end].copy_from_slice(head(heads + kv_heads + kv_head));
            seen.push(window.map_or(first, |window| first.max(end.saturating_sub(window * head_dim)))..end);
        }
        for index in 0..heads {
            let query = cpu::prepared::<T>(head(index), host_norms[0], EPSILON, turns, in_pairs);
            let range = seen[index / group].clone();
            expected.extend(cpu::attend::<T>(&query, &keys.host[range.clone()], &values.host[range]));
        }
    }
    let error = worst_error(&widen(&out.read()?), &expected);
    expect(error < T::TOLERANCE, || format!("{} {case:?}: worst error {error:.1e}", T::NAME))?;
    for (cache, name) in [(&keys, "keys"), (&values, "values")] {
        let found = widen(&cache.device.read()?);
        let bare =
            |values: &[f32]| values.iter().map(|value| if value.is_nan() { 1e9 } else { *value }).collect::<Vec<_>>();
        // An error is relative to the largest value, which must not come from missing data.
        let differs =
            bare(&found).iter().zip(bare(&cache.host)).map(|(a, b)| f64::from((a - b).abs())).fold(0.0, f64::max);
        expect(differs < T::TOLERANCE * 8.0, || format!("{} {case:?}: {name} differ by {differs:.1e}", T::NAME))?;
    }
    Ok(error)
}

pub fn ends(bench: &Bench) -> Answer {
    let stream = bench.device.stream();
    for (batch, hidden, vocab) in [(1, 64, 151_936), (3, 33, 1000), (8, 1024, 4099)] {
        let sizes = StepSizes { batch, hidden, vocab, ..sizes(1) };
        let step = step::<bf16>(bench, sizes)?;
        let table = random::<bf16>(bench, (vocab * hidden) as usize, 1, 0.0, 1.0)?;
        let mut x = bench.device.upload(&vec![bf16::NAN; (batch * hidden) as usize])?;
        let mut state = State::new(&bench.device, batch, 2)?;
        let tokens: Vec<u32> = (0..batch).map(|sequence| (sequence * 331 + 7) % vocab).collect();
        state.begin(&tokens, 41)?;
        step.embed(stream, &state, &table.device, &mut x)?;
        let row = |token: &u32| table.host[(token * hidden) as usize..((token + 1) * hidden) as usize].to_vec();
        let expected: Vec<f32> = tokens.iter().flat_map(row).collect();
        expect(widen(&x.read()?) == expected, || format!("{hidden} numbers of {batch} tokens differ"))?;

        let mut all = Vec::new();
        for round in 0..3 {
            let mut values = noise((batch * vocab) as usize, 9 + round);
            for (index, row) in values.chunks_exact_mut(vocab as usize).enumerate() {
                let place = (index * 97 + 13) % row.len();
                let filling = if round == 1 { f32::NAN } else { row[place] };
                row[place..].fill(filling);
                row[0] = if round == 2 { f32::NAN } else { row[0] };
            }
            let logits = both::<bf16>(bench, &values)?;
            step.argmax(stream, &logits.device, &mut state)?;
            let expected: Vec<u32> = logits.host.chunks_exact(vocab as usize).map(cpu::argmax).collect();
            let found = state.token.read()?;
            expect(found == expected, || format!("round {round}: {found:?} and not {expected:?}"))?;
            all.extend(expected);
        }
        all.truncate(2 * batch as usize);
        let (position, chosen) = (state.position.read()?, chosen(&state)?);
        expect(position == [44], || format!("position {position:?}"))?;
        expect(chosen == all, || format!("{chosen:?} were kept and not {all:?}"))?;
    }
    Ok("three vocabularies, two tokens kept of three".to_owned())
}

pub fn refused(bench: &Bench) -> Answer {
    let (step, stream) = (step::<f32>(bench, sizes(1))?, bench.device.stream());
    let small = bench.device.upload(&[0_f32; 8])?;
    let mut out = bench.device.upload(&[0_f32; 8])?;
    let (norm, linear) = (Norm { weight: &small, epsilon: EPSILON }, Linear { weight: &small, bias: None, fp8: None });
    let error = step.norm_linear(stream, &small, &norm, &linear, &mut out, [8, 8]).err();
    let words = error.ok_or_else(|| Failed::Wrong("weights that are too few were taken".to_owned()))?.to_string();
    let state = State::new(&bench.device, 2, 1)?;
    let embedded = step.embed(stream, &state, &small, &mut out);
    expect(embedded.is_err(), || "a state of two sequences was taken for one".to_owned())?;
    // A position beyond the capacity of the cache.
    let sizes = StepSizes { heads: 1, kv_heads: 1, head_dim: 16, capacity: 4, ..sizes(1) };
    let step = self::step::<f32>(bench, sizes)?;
    let mut state = State::new(&bench.device, 1, 1)?;
    state.begin(&[0], 4)?;
    let qkv = bench.device.upload(&[1_f32; 48])?;
    let [mut keys, mut values] = [bench.device.upload(&[2_f32; 65])?, bench.device.upload(&[3_f32; 65])?];
    let tables = bench.device.upload(&[1_f32; 80])?;
    let mut attended = bench.device.upload(&[0_f32; 16])?;
    let rotation = Rotation { cosines: tables.all(), sines: tables.all(), pairing: Pairing::Halves };
    let attention = Attention { query_norm: None, key_norm: None, epsilon: EPSILON, rotation, is_windowed: false };
    step.attention(stream, &qkv, &attention, StepRows::All(&state), [&mut keys, &mut values], &mut attended)?;
    expect(attended.read()?.iter().all(|value| value.is_nan()), || "a position without room gave numbers".to_owned())?;
    expect(keys.read()? == [2.0; 65] && values.read()? == [3.0; 65], || "the cache was written".to_owned())?;
    Ok(words)
}

/// The tokens generated since [`State::begin`], step by step, for all sequences.
pub fn chosen(state: &State) -> Result<Vec<u32>, CudaError> {
    let (count, mut chosen) = (state.count.read()?[0] as usize, state.generated.read()?);
    chosen.truncate(count * state.token.length());
    Ok(chosen)
}
