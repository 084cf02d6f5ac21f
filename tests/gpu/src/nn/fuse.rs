//! The operations of cache-to-cache (C2C) fusion: each compared with the CPU, and its time.
#![allow(unsafe_code)]

use half::bf16;
use laptime_cuda::nn::{Additions, CacheSection, CacheTable, Fuse, FuseSizes};
use laptime_cuda::{Batch, Blas, Buffer, Cache, CudaError, Matrices};

use super::speed::{Table, Work, operations, peak, random_buffer};
use super::{Answer, Bench, Failed, Lab, Number, expect, in_each_type};
use crate::reference::nn::{self as reference, fuse::Added};

/// Heads and their widths of the sharer and of the receiver, and how much is fused.
const CASES: [([u32; 2], [u32; 2], FuseSizes); 6] = [
    ([8, 128], [8, 128], FuseSizes { paths: 5, batch: 1, length: 33 }),
    ([8, 128], [2, 64], FuseSizes { paths: 3, batch: 2, length: 7 }),
    ([3, 5], [2, 16], FuseSizes { paths: 2, batch: 2, length: 9 }),
    ([1, 8], [5, 7], FuseSizes { paths: 1, batch: 1, length: 1 }),
    ([2, 24], [3, 40], FuseSizes { paths: 4, batch: 1, length: 130 }),
    ([4, 1], [1, 1], FuseSizes { paths: 7, batch: 3, length: 3 }),
];

/// Caches of a section, one per path, on both sides.
struct Caches<T> {
    section: CacheSection,
    here: Vec<Vec<f32>>,
    there: Vec<Buffer<T>>,
    table: CacheTable,
}

impl<T: Number> Caches<T> {
    fn new(lab: &Lab<'_, T>, [heads, head_dim]: [u32; 2], start: u32, sizes: &FuseSizes) -> Result<Self, Failed> {
        let section = CacheSection { heads, head_dim, capacity: start + sizes.length + 2, start };
        let numbers = (sizes.batch * heads * section.capacity * head_dim) as usize;
        let seeds = 0..u64::from(sizes.paths);
        let here: Vec<Vec<f32>> = seeds.map(|seed| lab.noise(numbers, 100 * u64::from(heads) + seed)).collect();
        let there = here.iter().map(|cache| lab.upload(cache)).collect::<Result<_, CudaError>>()?;
        Self::of(lab, section, here, there)
    }

    /// Caches of which the host knows nothing.
    fn on_device(lab: &Lab<'_, T>, sizes: &FuseSizes) -> Result<Self, Failed> {
        let section = CacheSection { heads: HEADS, head_dim: WIDTH / HEADS, capacity: sizes.length, start: 0 };
        let numbers = u64::from(sizes.rows()) * u64::from(WIDTH);
        let there = (0..sizes.paths).map(|_| random_buffer(lab, numbers)).collect::<Result<_, CudaError>>()?;
        Self::of(lab, section, Vec::new(), there)
    }

    fn of(lab: &Lab<'_, T>, section: CacheSection, here: Vec<Vec<f32>>, there: Vec<Buffer<T>>) -> Result<Self, Failed> {
        let mut table = CacheTable::new(&lab.bench.device, there.len())?;
        table.set(lab.bench.device.stream(), there.iter().map(|cache| cache.all().pointer()).collect())?;
        Ok(Self { section, here, there, table })
    }
}

pub fn joins(bench: &Bench) -> Answer {
    in_each_type!(bench, joins_of)
}

fn joins_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let fuse = Fuse::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    for (of_heard, of_own, sizes) in CASES {
        let (heard, own) = (Caches::new(lab, of_heard, 3, &sizes)?, Caches::new(lab, of_own, 1, &sizes)?);
        let expected = reference::fuse::join((&heard.here, &heard.section), (&own.here, &own.section), &sizes);
        let places =
            [&heard, &own].map(|of| Ok::<_, CudaError>((of.table.paths(0, sizes.paths as usize)?, &of.section)));
        let [of_heard, of_own] = places;
        let mut out = lab.spoiled(expected.len())?;
        // SAFETY: the caches are of these sizes and live until the result was read.
        unsafe { fuse.join(stream, [of_heard?, of_own?], &mut out, &sizes)? };
        lab.judge(&format!("join {:?} {:?} {sizes:?}", heard.section, own.section), &out, &expected)?;
        let more = FuseSizes { paths: sizes.paths + 1, ..sizes };
        let refused = unsafe { fuse.join(stream, [(heard.table.paths(0, 1)?, &heard.section); 2], &mut out, &more) };
        expect(refused.is_err(), || "a path without a cache was taken".to_owned())?;
    }
    Ok(())
}

pub fn norms(bench: &Bench) -> Answer {
    in_each_type!(bench, norms_of)
}

fn norms_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let fuse = Fuse::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    for (paths, rows, width) in [(5, 3, 1024), (2, 33, 64), (3, 7, 77), (1, 1, 1), (2, 2, 20_001), (4, 5, 1000)] {
        let sizes = FuseSizes { paths, batch: 1, length: rows };
        let count = (paths * rows * width) as usize;
        let (x, weight) = (lab.noise(count, 1), lab.noise((paths * width) as usize, 2));
        let bias = lab.noise((paths * width) as usize, 3);
        let norm = |x: &[f32], of: &[f32]| reference::rms_norm(x, of, 1e-6);
        let (weight_there, bias_there) = (lab.upload(&weight)?, lab.upload(&bias)?);
        let (mut there, mut out, mut copy) = (lab.upload(&x)?, lab.spoiled(count)?, lab.spoiled(count)?);
        let what = format!("{paths} x {rows} x {width}");
        fuse.norm(stream, &mut there, [None, Some(weight_there.all())], &mut out, None, (&sizes, width), 1e-6)?;
        lab.judge(&format!("norm {what}"), &out, &of_paths([&x, &weight], paths, norm))?;
        lab.judge(&format!("normed {what}"), &there, &x)?;
        let both = [Some(bias_there.all()), Some(weight_there.all())];
        fuse.norm(stream, &mut there, both, &mut out, Some(copy.all_mut()), (&sizes, width), 1e-6)?;
        let biased = of_paths([&x, &bias], paths, reference::add_bias);
        lab.judge(&format!("biased {what}"), &there, &biased)?;
        lab.judge(&format!("copy {what}"), &copy, &biased)?;
        // What was biased is rounded before it is normed.
        let rounded: Vec<f32> = biased.iter().map(|value| T::narrowed(*value).widened()).collect();
        lab.judge(&format!("biased norm {what}"), &out, &of_paths([&rounded, &weight], paths, norm))?;
        let mut shifted = lab.upload(&[&[0.0], &x[..]].concat())?;
        let weights = [None, Some(weight_there.all())];
        fuse.norm(stream, shifted.slice_mut(1..count + 1)?, weights, &mut out, None, (&sizes, width), 1e-6)?;
        lab.judge(&format!("shifted norm {what}"), &out, &of_paths([&x, &weight], paths, norm))?;
        let refused = fuse.norm(stream, &mut there, [None, None], &mut out, None, (&sizes, width), 1e-6);
        expect(refused.is_err(), || "a norm without a weight was taken".to_owned())?;
    }
    Ok(())
}

/// The result for the rows of each path with its parameters.
fn of_paths([x, of]: [&[f32]; 2], paths: u32, one: impl Fn(&[f32], &[f32]) -> Vec<f32>) -> Vec<f32> {
    let paths = paths as usize;
    x.chunks(x.len() / paths).zip(of.chunks(of.len() / paths)).flat_map(|(x, of)| one(x, of)).collect()
}

pub fn gelu(bench: &Bench) -> Answer {
    in_each_type!(bench, gelu_of)
}

fn gelu_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let fuse = Fuse::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    for count in [1_usize, 7, 8, 1024, 100_003, 3_000_000] {
        let x: Vec<f32> = lab.noise(count, 5).iter().map(|value| T::narrowed(value * 6.0).widened()).collect();
        let expected = reference::fuse::gelu(&x);
        let mut there = lab.upload(&x)?;
        fuse.gelu(stream, &mut there)?;
        lab.judge(&format!("gelu {count}"), &there, &expected)?;
        let mut shifted = lab.upload(&[&[9.0], &x[..]].concat())?;
        fuse.gelu(stream, shifted.slice_mut(1..count + 1)?)?;
        let found: Vec<f32> = shifted.read()?.into_iter().map(T::widened).collect();
        expect(found[0] == 9.0, || "a number before the slice was changed".to_owned())?;
        lab.judge_values(&format!("shifted gelu {count}"), &found[1..], &expected)?;
    }
    Ok(())
}

pub fn additions(bench: &Bench) -> Answer {
    in_each_type!(bench, additions_of)
}

fn additions_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // The sum, the weight and the value are rounded.
    lab.roundings = 3.0;
    let fuse = Fuse::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    for (_, of_own, sizes) in CASES {
        let own = Caches::new(lab, of_own, 2, &sizes)?;
        let (heads, width, rows) = (own.section.heads as usize, own.section.width() as usize, sizes.rows() as usize);
        let paths = sizes.paths as usize;
        let values = lab.noise(paths * rows * width, 11);
        let (value_bias, weight_bias) = (lab.noise(paths * width, 12), lab.noise(paths * heads, 14));
        let weights: Vec<f32> =
            lab.noise(paths * rows * heads, 13).iter().map(|value| T::narrowed(value * 4.0).widened()).collect();
        let added = Added { values: &values, value_bias: &value_bias, weights: &weights, weight_bias: &weight_bias };
        let expected = reference::fuse::add(&own.here, &own.section, &added, &sizes);
        let there = [&values, &value_bias, &weights, &weight_bias].map(|of| lab.upload(of));
        let [values, value_bias, weights, weight_bias] = there;
        let (values, value_bias, weights, weight_bias) = (values?, value_bias?, weights?, weight_bias?);
        let additions = Additions {
            values: values.all(),
            value_bias: value_bias.all(),
            weights: weights.all(),
            weight_bias: weight_bias.all(),
        };
        // SAFETY: the caches are of these sizes, each another one, and live until they were read.
        unsafe { fuse.add(stream, (own.table.paths(0, paths)?, &own.section), &additions, &sizes)? };
        for (path, (cache, expected)) in own.there.iter().zip(&expected).enumerate() {
            lab.judge(&format!("add {:?} {sizes:?} path {path}", own.section), cache, expected)?;
        }
        let beyond = CacheSection { start: 3 + own.section.start, ..own.section };
        let refused = unsafe { fuse.add(stream, (own.table.paths(0, paths)?, &beyond), &additions, &sizes) };
        expect(refused.is_err(), || "positions beyond the cache were taken".to_owned())?;
    }
    Ok(())
}

/// The parts of a fuse of Qwen3-4B to Qwen3-0.6B: 28 layers, all of 1024.
pub fn speed(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    for length in [32, 512, 2048] {
        speed_of(bench, &mut table, length)?;
    }
    table.answer()
}

const PATHS: u32 = 56;
const WIDTH: u32 = 1024;
const HEADS: u32 = 8;

fn speed_of(bench: &Bench, table: &mut Table<'_>, length: u32) -> Result<(), Failed> {
    let lab = Lab::<bf16>::new(bench)?;
    let fuse = Fuse::<bf16>::load(&bench.device, &Cache::of_user())?;
    let (stream, sizes) = (bench.device.stream(), FuseSizes { paths: PATHS, batch: 1, length });
    let (heard, own) = (Caches::on_device(&lab, &sizes)?, Caches::on_device(&lab, &sizes)?);
    let of_heard = (heard.table.paths(0, PATHS as usize)?, &heard.section);
    let of_own = (own.table.paths(0, PATHS as usize)?, &own.section);
    let count = u64::from(PATHS * length) * u64::from(WIDTH);
    let bytes = 2.0 * count as f64;
    let (mut joined, mut x) = (random_buffer(&lab, 2 * count)?, random_buffer(&lab, count)?);
    let (mut out, mut copy) = (random_buffer(&lab, count)?, random_buffer(&lab, count)?);
    let of_paths = random_buffer(&lab, u64::from(PATHS * WIDTH))?;
    let (weights, weight_bias) =
        (random_buffer(&lab, u64::from(PATHS * length * HEADS))?, random_buffer(&lab, (PATHS * HEADS).into())?);
    let named = |what: &str| format!("bf16 {what} {PATHS} x {length}");
    let mut sum = 0.0;
    sum += table.row(&named("join"), Work::Bytes(4.0 * bytes), || {
        // SAFETY: the caches are of these sizes and live until the device is synchronised.
        unsafe { fuse.join(stream, [of_heard, of_own], &mut joined, &sizes) }
    })?;
    let both = [Some(of_paths.all()), Some(of_paths.all())];
    sum += table.row(&named("norm with bias"), Work::Bytes(3.0 * bytes), || {
        fuse.norm(stream, &mut x, both, &mut out, None, (&sizes, WIDTH), 1e-6)
    })?;
    let weight = [None, Some(of_paths.all())];
    sum += table.row(&named("norm with copy"), Work::Bytes(3.0 * bytes), || {
        fuse.norm(stream, &mut x, weight, &mut out, Some(copy.all_mut()), (&sizes, WIDTH), 1e-6)
    })?;
    sum += table.row(&named("norm"), Work::Bytes(2.0 * bytes), || {
        fuse.norm(stream, &mut x, weight, &mut out, None, (&sizes, WIDTH), 1e-6)
    })?;
    sum += 3.0 * table.row(&named("gelu"), Work::Bytes(2.0 * bytes), || fuse.gelu(stream, &mut out))?;
    let additions = Additions {
        values: copy.all(),
        value_bias: of_paths.all(),
        weights: weights.all(),
        weight_bias: weight_bias.all(),
    };
    sum += table.row(&named("add"), Work::Bytes(3.0 * bytes), || {
        // SAFETY: as above, and each cache is another one.
        unsafe { fuse.add(stream, of_own, &additions, &sizes) }
    })?;
    sum += products(&lab, table, length)?;
    table.words.push_str(&format!("\n{:<46} {sum:>9.2}", named("all of a fuse")));
    Ok(())
}

/// Microseconds of all products of a fuse.
fn products(lab: &Lab<'_, bf16>, table: &mut Table<'_>, length: u32) -> Result<f64, Failed> {
    let (blas, rows, mut sum) = (Blas::new(&lab.bench.device)?, u64::from(PATHS * length), 0.0);
    // Inputs, outputs, and how often there is such a product.
    for (k, n, times) in [(2 * WIDTH, WIDTH, 1.0), (WIDTH, WIDTH, 7.0), (WIDTH, HEADS, 1.0)] {
        let factors =
            [random_buffer(lab, rows * u64::from(k))?, random_buffer(lab, u64::from(PATHS * n) * u64::from(k))?];
        let mut product = random_buffer(lab, rows * u64::from(n))?;
        let (a, b, c) = (Matrices::plain(length, k), Matrices::transposed(k, n), Matrices::plain(length, n));
        let batch = Batch { count: PATHS, m: length, n, k, a, b, c, scale: 1.0, is_added: false };
        let work = Work::Operations(operations(&batch), peak::<bf16>());
        let what = format!("bf16 product {k} to {n} {PATHS} x {length}");
        let taken = table.row(&what, work, || {
            blas.multiply_batch([factors[0].all(), factors[1].all()], product.all_mut(), &batch)
        })?;
        sum += times * taken;
    }
    Ok(sum)
}
