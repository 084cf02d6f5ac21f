//! The speed of the operations: times inside a graph, with data in the L2 cache if it fits.

use std::{fmt::Write as _, sync::Arc};

use half::bf16;
use laptime_cuda::nn::{Attention, HeadNorm, HeadSizes, Packed, Pairing, Rotation};
use laptime_cuda::{Blas, Buffer, Cache, CudaError, EventClock, Graph, Sizes};

use super::{Answer, Bench, Failed, Lab, Number, attention::naive_products, expect};
use crate::clock::stream_nanos;

/// Bytes per second of a copy on the device, reads plus writes.
const BANDWIDTH: f64 = 4.2e12;
const TIMES: usize = 20;

#[allow(unsafe_code)]
pub fn replay(graph: &Graph, bench: &Bench) -> Result<(), CudaError> {
    // SAFETY: every test keeps what it captured until the device is synchronised.
    unsafe { graph.launch(bench.device.stream()) }
}

/// Microseconds of a step, as one of twenty in a graph.
fn micros(bench: &Bench, mut step: impl FnMut() -> Result<(), CudaError>) -> Result<f64, Failed> {
    let clock = EventClock::new(Arc::clone(bench.device.stream()))?;
    step()?;
    let graph = Graph::capture(bench.device.stream(), || (0..TIMES).try_for_each(|_| step()))?;
    graph.upload(bench.device.stream())?;
    Ok(stream_nanos(bench, &clock, || Ok(replay(&graph, bench)?))? / 1e3 / TIMES as f64)
}

/// The limits of a step.
#[derive(Clone, Copy)]
pub(super) enum Work {
    /// Bytes read and written.
    Bytes(f64),
    /// Floating-point operations, and the peak per second.
    Operations(f64, f64),
}

/// A table of times and of shares of the limit.
pub(super) struct Table<'a> {
    bench: &'a Bench,
    pub(super) words: String,
}

impl<'a> Table<'a> {
    pub(super) fn new(bench: &'a Bench) -> Self {
        Self { bench, words: format!("{:<46} {:>9} {:>9}  of limit", "", "us", "") }
    }

    pub(super) fn row(
        &mut self,
        what: &str,
        work: Work,
        step: impl FnMut() -> Result<(), CudaError>,
    ) -> Result<f64, Failed> {
        let taken = micros(self.bench, step)?;
        let (rate, share) = match work {
            Work::Bytes(bytes) => (format!("{:.2} TB/s", bytes / taken / 1e6), bytes / taken * 1e6 / BANDWIDTH),
            Work::Operations(count, peak) => (format!("{:.0} TF/s", count / taken / 1e6), count / taken * 1e6 / peak),
        };
        let _ = write!(self.words, "\n{what:<46} {taken:>9.2} {rate:>9}  {:>5.0} %", share * 100.0);
        Ok(taken)
    }

    pub(super) fn answer(self) -> Answer {
        expect(!self.words.is_empty(), String::new)?;
        Ok(self.words)
    }
}

pub(super) fn peak<T>() -> f64 {
    if size_of::<T>() == 4 { 49e12 } else { 750e12 }
}

/// A buffer of small random numbers.
pub(super) fn random_buffer<T: Number>(lab: &Lab<'_, T>, count: u64) -> Result<Buffer<T>, CudaError> {
    let mut buffer = lab.bench.device.allocate(count as usize)?;
    lab.operations.fill_random(lab.bench.device.stream(), &mut buffer, count, 1.0)?;
    Ok(buffer)
}

pub fn rows(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    rows_of::<bf16>(bench, &mut table)?;
    rows_of::<f32>(bench, &mut table)?;
    table.answer()
}

fn rows_of<T: Number>(bench: &Bench, table: &mut Table<'_>) -> Result<(), Failed> {
    let lab = Lab::<T>::new(bench)?;
    let (stream, size) = (bench.device.stream(), size_of::<T>() as f64);
    for [rows, width] in [[1_u32, 1024], [512, 1024], [2048, 2560], [65_536, 2560]] {
        let count = u64::from(rows) * u64::from(width);
        let (x, weight, mut out) =
            (random_buffer(&lab, 2 * count)?, random_buffer(&lab, width.into())?, random_buffer(&lab, count)?);
        let bytes = count as f64 * size;
        table.row(&format!("{} rms_norm {rows} x {width}", T::NAME), Work::Bytes(2.0 * bytes), || {
            lab.operations.rms_norm(stream, x.slice(0..count as usize)?, &weight, &mut out, [rows, width], 1e-6)
        })?;
        table.row(&format!("{} swiglu {rows} x {width}", T::NAME), Work::Bytes(3.0 * bytes), || {
            lab.operations.swiglu(stream, &x, None, &mut out, [rows, width])
        })?;
    }
    let (batch, tokens) = (1, 512);
    for (batch, tokens) in [(batch, tokens), (64, tokens)] {
        let sizes = HeadSizes { batch, tokens, heads: 16, kv_heads: 8, head_dim: 128, capacity: tokens };
        split_row(&lab, table, &sizes, "split_heads 16+8 x 128", true)?;
    }
    let sizes = HeadSizes { batch: 48, tokens: 512, heads: 1, kv_heads: 1, head_dim: 64, capacity: 512 };
    let start = bench.device.upload(&[0_u32])?;
    let count = 48 * 512 * 512_u64;
    let mut scores = random_buffer(&lab, count)?;
    // Half of the scores are not read.
    table.row(&format!("{} softmax_causal 48 x 512 x 512", T::NAME), Work::Bytes(1.5 * count as f64 * size), || {
        lab.operations.softmax_causal(stream, &mut scores, &start, &sizes, (512, None), 0.125)
    })?;
    let logits = random_buffer(&lab, 151_936)?;
    let mut index = bench.device.upload(&[0_u32])?;
    table.row(&format!("{} argmax 151936", T::NAME), Work::Bytes(151_936.0 * size), || {
        lab.operations.argmax(stream, &logits, &mut index, [1, 151_936])
    })?;
    drop(scores);
    let mut large: Buffer<T> = bench.device.allocate((8 << 30) / size_of::<T>())?;
    table.row(&format!("{} fill_random 8 GiB", T::NAME), Work::Bytes((8_u64 << 30) as f64), || {
        lab.operations.fill_random(stream, &mut large, 1, 0.02)
    })?;
    Ok(())
}

fn split_row<T: Number>(
    lab: &Lab<'_, T>,
    table: &mut Table<'_>,
    sizes: &HeadSizes,
    what: &str,
    with_norm: bool,
) -> Result<f64, Failed> {
    let (device, stream) = (&lab.bench.device, lab.bench.device.stream());
    let count = sizes.rows() * sizes.packed_width();
    let (packed, weight) = (random_buffer(lab, count)?, random_buffer(lab, sizes.head_dim.into())?);
    let angles = vec![0.5_f32; (sizes.capacity * sizes.head_dim / 2) as usize];
    let (angles, start) = (device.upload(&angles)?, device.upload(&[0_u32])?);
    let [mut q, mut k, mut v] = [
        random_buffer(lab, sizes.query_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
    ];
    let input = Packed {
        packed: packed.all(),
        bias: None,
        norm: with_norm.then(|| HeadNorm { q: weight.all(), k: weight.all(), epsilon: 1e-6 }),
        rotation: Rotation { cosines: angles.all(), sines: angles.all(), pairing: Pairing::Halves },
        start: start.all(),
    };
    let rows = sizes.rows();
    let bytes = Work::Bytes(2.0 * count as f64 * size_of::<T>() as f64);
    table.row(&format!("{} {what}, {rows} rows", T::NAME), bytes, || {
        lab.operations.split_heads(stream, &input, &mut q, &mut k, &mut v, sizes)
    })
}

pub fn attention(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    for [heads, kv_heads, tokens, head_dim] in [
        [16, 8, 512, 128],
        [32, 8, 512, 128],
        [16, 16, 4096, 64],
        [16, 16, 8192, 64],
        [16, 16, 16_384, 64],
        [16, 8, 4096, 128],
    ] {
        let sizes = HeadSizes { batch: 1, tokens, heads, kv_heads, head_dim, capacity: tokens };
        fused_row(&Lab::<bf16>::new(bench)?, &mut table, &sizes)?;
    }
    for [heads, tokens, head_dim] in [[16, 512, 128], [16, 4096, 64]] {
        let sizes = HeadSizes { batch: 1, tokens, heads, kv_heads: heads, head_dim, capacity: tokens };
        fused_row(&Lab::<f32>::new(bench)?, &mut table, &sizes)?;
    }
    table.answer()
}

/// Operations of causal attention: half of those of all scores.
pub(super) fn attention_operations(sizes: &HeadSizes) -> f64 {
    2.0 * sizes.query_elements() as f64 * f64::from(sizes.tokens)
}

fn fused_row<T: Number>(lab: &Lab<'_, T>, table: &mut Table<'_>, sizes: &HeadSizes) -> Result<f64, Failed> {
    let attention = Attention::<T>::load(&lab.bench.device, &Cache::of_user(), sizes.head_dim, None)?;
    let [q, k, v] = [
        random_buffer(lab, sizes.query_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
    ];
    let (mut out, start) = (random_buffer(lab, sizes.query_elements())?, lab.bench.device.upload(&[0_u32])?);
    let HeadSizes { batch, heads, kv_heads, tokens, head_dim, .. } = *sizes;
    let what = format!("{} fused {batch} x {heads}/{kv_heads} x {tokens} x {head_dim}", T::NAME);
    let scale = 1.0 / (head_dim as f32).sqrt();
    table.row(&what, Work::Operations(attention_operations(sizes), peak::<T>()), || {
        attention.attend(
            lab.bench.device.stream(),
            [q.all(), k.all(), v.all()],
            &start,
            (out.all_mut(), None),
            sizes,
            scale,
        )
    })
}

/// A model's sizes: name, batch, tokens, hidden, heads, kv heads, head_dim, ffn.
const MODELS: [(&str, [u32; 7], bool); 4] = [
    ("Qwen3-0.6B", [1, 512, 1024, 16, 8, 128, 3072], true),
    ("small", [4, 512, 768, 12, 12, 64, 3072], false),
    ("large", [4, 512, 1280, 20, 20, 64, 5120], false),
    ("2.7B", [4, 512, 2560, 32, 32, 80, 10_240], false),
];

pub fn models(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    for (name, sizes, is_qwen) in MODELS {
        layer_of::<bf16>(bench, &mut table, name, sizes, is_qwen)?;
        if !is_qwen {
            layer_of::<f32>(bench, &mut table, name, sizes, is_qwen)?;
        }
    }
    table.answer()
}

/// All parts of one layer, and their sums with fused and with naive attention.
fn layer_of<T: Number>(
    bench: &Bench,
    table: &mut Table<'_>,
    name: &str,
    [batch, tokens, hidden, heads, kv_heads, head_dim, ffn]: [u32; 7],
    with_norm: bool,
) -> Result<(), Failed> {
    let lab = Lab::<T>::new(bench)?;
    let (stream, size, blas) = (bench.device.stream(), size_of::<T>() as f64, Blas::new(&bench.device)?);
    let sizes = HeadSizes { batch, tokens, heads, kv_heads, head_dim, capacity: tokens };
    let rows = batch * tokens;
    let mut sum = split_row(&lab, table, &sizes, &format!("{name} split_heads"), with_norm)?;
    let width = sizes.packed_width() as u32;
    for (what, n, k, is_added) in [
        ("qkv", width, hidden, false),
        ("output", hidden, heads * head_dim, true),
        ("gate and up", 2 * ffn, hidden, false),
        ("down", hidden, ffn, true),
    ] {
        let area = |rows: u32, columns: u32| u64::from(rows) * u64::from(columns);
        let (a, b, mut c) = (
            random_buffer(&lab, area(rows, k))?,
            random_buffer(&lab, area(n, k))?,
            random_buffer(&lab, area(rows, n))?,
        );
        let product = Sizes { m: rows, n, k, b_is_transposed: true };
        let work = Work::Operations(2.0 * f64::from(rows) * f64::from(n) * f64::from(k), peak::<T>());
        sum += table.row(&format!("{} {name} {what} {n} x {k}", T::NAME), work, || match is_added {
            true => blas.multiply_add([a.all(), b.all()], c.all_mut(), product),
            false => blas.multiply_slices([a.all(), b.all()], c.all_mut(), product),
        })?;
    }
    let count = u64::from(rows) * u64::from(hidden);
    let (x, weight, mut out) =
        (random_buffer(&lab, count)?, random_buffer(&lab, hidden.into())?, random_buffer(&lab, count)?);
    let bytes = Work::Bytes(2.0 * count as f64 * size);
    sum += 2.0
        * table.row(&format!("{} {name} rms_norm", T::NAME), bytes, || {
            lab.operations.rms_norm(stream, &x, &weight, &mut out, [rows, hidden], 1e-6)
        })?;
    let gates = u64::from(rows) * u64::from(ffn);
    let (gate_up, mut out) = (random_buffer(&lab, 2 * gates)?, random_buffer(&lab, gates)?);
    sum += table.row(&format!("{} {name} swiglu", T::NAME), Work::Bytes(3.0 * gates as f64 * size), || {
        lab.operations.swiglu(stream, &gate_up, None, &mut out, [rows, ffn])
    })?;
    let fused = fused_row(&lab, table, &sizes)?;
    let naive = naive_rows(&lab, table, &sizes, name, &blas)?;
    let (fused, naive) = (sum + fused, sum + naive);
    let _ = write!(table.words, "\n{} {name}: a layer {fused:.0} us fused, {naive:.0} us naive", T::NAME);
    Ok(())
}

fn naive_rows<T: Number>(
    lab: &Lab<'_, T>,
    table: &mut Table<'_>,
    sizes: &HeadSizes,
    name: &str,
    blas: &Blas,
) -> Result<f64, Failed> {
    let (stream, size) = (lab.bench.device.stream(), size_of::<T>() as f64);
    let [q, k, v] = [
        random_buffer(lab, sizes.query_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
        random_buffer(lab, sizes.cache_elements())?,
    ];
    let count = sizes.rows() * u64::from(sizes.heads) * u64::from(sizes.tokens);
    let (mut scores, mut apart) = (random_buffer(lab, count)?, random_buffer(lab, sizes.query_elements())?);
    let (mut out, start) = (random_buffer(lab, sizes.query_elements())?, lab.bench.device.upload(&[0_u32])?);
    let [of_keys, of_values] = naive_products(sizes, sizes.tokens);
    let work = |batch: &laptime_cuda::Batch| Work::Operations(operations(batch), peak::<T>());
    let mut sum = table.row(&format!("{} {name} naive q k", T::NAME), work(&of_keys), || {
        blas.multiply_batch([q.all(), k.all()], scores.all_mut(), &of_keys)
    })?;
    sum += table.row(&format!("{} {name} naive softmax", T::NAME), Work::Bytes(1.5 * count as f64 * size), || {
        lab.operations.softmax_causal(stream, &mut scores, &start, sizes, (sizes.tokens, None), 0.125)
    })?;
    sum += table.row(&format!("{} {name} naive shares v", T::NAME), work(&of_values), || {
        blas.multiply_batch([scores.all(), v.all()], apart.all_mut(), &of_values)
    })?;
    let bytes = Work::Bytes(2.0 * sizes.query_elements() as f64 * size);
    sum += table.row(&format!("{} {name} merge_heads", T::NAME), bytes, || {
        lab.operations.merge_heads(stream, &apart, &mut out, sizes)
    })?;
    Ok(sum)
}

/// Floating-point operations of all products of a batch.
pub fn operations(batch: &laptime_cuda::Batch) -> f64 {
    2.0 * [batch.count, batch.m, batch.n, batch.k].map(f64::from).iter().product::<f64>()
}
