//! Heads and attention, fused and naive.

use laptime_cuda::nn::{Attention, HeadNorm, HeadSizes, Packed, Pairing, Rotation};
use laptime_cuda::{Batch, Blas, Buffer, Cache, CudaError, Matrices, Sizes};

use super::{Answer, Bench, Failed, Lab, Number, expect, in_each_type};
use crate::reference::nn as reference;

/// Sizes and where the first token is: groups of 1, 2, 4 and 7, heads of many sizes, one and several sequences, tokens that
/// fill no tile, and a cache that is too small for all of them.
pub(super) const CASES: [([u32; 6], u32); 16] = [
    // batch, tokens, heads, kv_heads, head_dim, capacity; start
    ([1, 1, 2, 2, 64, 8], 0),
    ([3, 37, 2, 1, 16, 80], 37),
    ([1, 65, 8, 2, 32, 65], 0),
    ([1, 130, 7, 1, 64, 200], 37),
    ([3, 64, 4, 2, 80, 128], 37),
    ([1, 200, 2, 1, 96, 256], 0),
    ([1, 129, 4, 2, 128, 180], 37),
    ([3, 70, 1, 1, 128, 70], 0),
    ([1, 33, 2, 1, 6, 70], 37),
    ([1, 40, 2, 1, 256, 80], 37),
    ([2, 50, 1, 1, 64, 60], 37),
    // Enough blocks for tiles of 64 queries that are not split, and for tiles of 128.
    ([3, 70, 48, 8, 128, 110], 37),
    ([3, 70, 48, 8, 80, 110], 37),
    ([3, 130, 44, 22, 64, 170], 37),
    ([3, 130, 44, 22, 128, 170], 37),
    ([3, 130, 44, 44, 16, 130], 0),
];

pub(super) fn sizes([batch, tokens, heads, kv_heads, head_dim, capacity]: [u32; 6]) -> HeadSizes {
    HeadSizes { batch, tokens, heads, kv_heads, head_dim, capacity }
}

pub fn heads(bench: &Bench) -> Answer {
    in_each_type!(bench, heads_of)
}

fn heads_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    for (case, start) in CASES {
        for pairing in [Pairing::Halves, Pairing::Pairs] {
            for with_extras in [false, true] {
                one_split(lab, &sizes(case), start, pairing, with_extras)?;
            }
        }
    }
    Ok(())
}

fn one_split<T: Number>(
    lab: &mut Lab<'_, T>,
    sizes: &HeadSizes,
    start: u32,
    pairing: Pairing,
    with_extras: bool,
) -> Result<(), Failed> {
    let device = &lab.bench.device;
    let (width, dim) = (sizes.packed_width() as usize, sizes.head_dim as usize);
    let packed = lab.noise(sizes.rows() as usize * width, 11);
    let (bias, weights) = (lab.noise(width, 12), [lab.noise(dim, 13), lab.noise(dim, 14)]);
    let angles = crate::reference::noise((start + sizes.tokens) as usize * dim / 2, 15);
    let (cosines, sines): (Vec<f32>, Vec<f32>) =
        angles.iter().map(|angle| ((angle * 3.0).cos(), (angle * 3.0).sin())).unzip();
    let norm = with_extras.then_some(([&weights[0][..], &weights[1][..]], 1e-6));
    let split = reference::Split {
        bias: if with_extras { &bias } else { &[] },
        norm,
        cosines: &cosines,
        sines: &sines,
        pairing,
        start: start as usize,
    };
    let expected = reference::split_heads(&packed, sizes, &split, 0.0);
    let cache = vec![0.0; sizes.cache_elements() as usize];
    let (mut k, mut v, mut q) =
        (lab.upload(&cache)?, lab.upload(&cache)?, lab.spoiled(sizes.query_elements() as usize)?);
    let (packed, bias) = (lab.upload(&packed)?, lab.upload(&bias)?);
    let weights = [lab.upload(&weights[0])?, lab.upload(&weights[1])?];
    let (cosines, sines, start_there) = (device.upload(&cosines)?, device.upload(&sines)?, device.upload(&[start])?);
    let input = Packed {
        packed: packed.all(),
        bias: with_extras.then(|| bias.all()),
        norm: with_extras.then(|| HeadNorm { q: weights[0].all(), k: weights[1].all(), epsilon: 1e-6 }),
        rotation: Rotation { cosines: cosines.all(), sines: sines.all(), pairing },
        start: start_there.all(),
    };
    lab.operations.split_heads(device.stream(), &input, &mut q, &mut k, &mut v, sizes)?;
    let what = format!("split_heads {sizes:?} from {start}, {pairing:?}, extras {with_extras}");
    lab.judge(&format!("q of {what}"), &q, &expected.q)?;
    lab.judge(&format!("k of {what}"), &k, &expected.k)?;
    lab.judge(&format!("v of {what}"), &v, &expected.v)
}

pub fn fused(bench: &Bench) -> Answer {
    in_each_type!(bench, fused_of)
}

fn fused_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let device = &lab.bench.device;
    for (case, start) in CASES {
        let sizes = sizes(case);
        let attention = Attention::<T>::load(device, &Cache::of_user(), sizes.head_dim, None)?;
        let inputs = Inputs::new(lab, &sizes, start)?;
        let count = sizes.query_elements() as usize;
        let (scale, what) = (1.5 / (sizes.head_dim as f32).sqrt(), format!("attention {sizes:?} from {start}"));
        let [q, k, v] = &inputs.host;
        let expected = reference::attention([q, k, v], &sizes, start as usize, scale);
        let mut out = lab.spoiled(count)?;
        attention.attend(device.stream(), inputs.there(), &inputs.start, (out.all_mut(), None), &sizes, scale)?;
        lab.judge(&what, &out, &expected)?;
        // At an address that is no multiple of 16.
        let mut shifted = lab.spoiled(count + 1)?;
        let part = shifted.slice_mut(1..count + 1)?;
        attention.attend(device.stream(), inputs.there(), &inputs.start, (part, None), &sizes, scale)?;
        let found: Vec<f32> = shifted.slice(1..count + 1)?.read()?.into_iter().map(T::widened).collect();
        lab.judge_values(&format!("shifted {what}"), &found, &expected)?;
        // Windows of less than a tile and of more. A query behind the cache's end would see no key.
        let is_tried = [6, 64, 256].contains(&sizes.head_dim) && start + sizes.tokens <= sizes.capacity;
        for window in [20_u32, 90].into_iter().filter(|_| is_tried) {
            let windowed = Attention::<T>::load(device, &Cache::of_user(), sizes.head_dim, Some(window))?;
            let expected = reference::attention_windowed([q, k, v], &sizes, start as usize, scale, window as usize);
            windowed.attend(device.stream(), inputs.there(), &inputs.start, (out.all_mut(), None), &sizes, scale)?;
            lab.judge(&format!("{what}, window {window}"), &out, &expected)?;
        }
    }
    Ok(())
}

/// Queries, keys and values, here and on the device, where what is beyond the positions in use is no number.
pub(super) struct Inputs<T> {
    pub(super) host: [Vec<f32>; 3],
    pub(super) device: [Buffer<T>; 3],
    pub(super) start: Buffer<u32>,
}

impl<T: Number> Inputs<T> {
    pub(super) fn new(lab: &Lab<'_, T>, sizes: &HeadSizes, start: u32) -> Result<Self, CudaError> {
        let scaled = |count: u64, seed| lab.noise(count as usize, seed).iter().map(|value| value * 2.0).collect();
        let host: [Vec<f32>; 3] = [
            scaled(sizes.query_elements(), 21),
            scaled(sizes.cache_elements(), 22),
            scaled(sizes.cache_elements(), 23),
        ];
        let head = sizes.head_dim as usize;
        let used = (start + sizes.tokens).min(sizes.capacity) as usize * head;
        let spoiled = |values: &[f32]| {
            let mut values = values.to_vec();
            values.chunks_exact_mut(sizes.capacity as usize * head).for_each(|rows| rows[used..].fill(f32::NAN));
            lab.upload(&values)
        };
        let device = [lab.upload(&host[0])?, spoiled(&host[1])?, spoiled(&host[2])?];
        Ok(Self { host, device, start: lab.bench.device.upload(&[start])? })
    }

    pub(super) fn there(&self) -> [laptime_cuda::Slice<'_, T>; 3] {
        let [q, k, v] = &self.device;
        [q.all(), k.all(), v.all()]
    }
}

pub fn naive(bench: &Bench) -> Answer {
    let words: Result<String, Failed> = in_each_type!(bench, naive_of);
    let blas = Blas::new(&bench.device)?;
    expect(!blas.is_tf32_allowed()?, || "cuBLAS may round to TF32".to_owned())?;
    Ok(format!("{}; TF32 is off", words?))
}

fn naive_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let device = &lab.bench.device;
    let blas = Blas::new(device)?;
    // Scores are rounded before the exponential makes their errors larger.
    lab.roundings = 4.0;
    for (case, start) in CASES {
        let sizes = sizes(case);
        let keys = start + sizes.tokens;
        if keys > sizes.capacity {
            continue;
        }
        let inputs = Inputs::new(lab, &sizes, start)?;
        let scale = 1.5 / (sizes.head_dim as f32).sqrt();
        let [q, k, v] = &inputs.host;
        let expected = reference::attention([q, k, v], &sizes, start as usize, scale);
        let mut naive = Naive::new(lab, &sizes, keys)?;
        naive.attend(lab, &blas, &inputs, &sizes, keys, scale)?;
        lab.judge(&format!("naive attention {sizes:?} from {start}"), &naive.out, &expected)?;
    }
    added_product(lab, &blas)
}

/// What naive attention stores on the way.
pub(super) struct Naive<T> {
    scores: Buffer<T>,
    apart: Buffer<T>,
    out: Buffer<T>,
}

impl<T: Number> Naive<T> {
    fn new(lab: &Lab<'_, T>, sizes: &HeadSizes, keys: u32) -> Result<Self, CudaError> {
        let count = sizes.query_elements() as usize;
        let scores = (sizes.rows() * u64::from(sizes.heads) * u64::from(keys)) as usize;
        Ok(Self { scores: lab.spoiled(scores)?, apart: lab.spoiled(count)?, out: lab.spoiled(count)? })
    }

    fn attend(
        &mut self,
        lab: &Lab<'_, T>,
        blas: &Blas,
        inputs: &Inputs<T>,
        sizes: &HeadSizes,
        keys: u32,
        scale: f32,
    ) -> Result<(), CudaError> {
        let [q, k, v] = inputs.there();
        let stream = lab.bench.device.stream();
        let [scores, values] = naive_products(sizes, keys);
        blas.multiply_batch([q, k], self.scores.all_mut(), &scores)?;
        lab.operations.softmax_causal(stream, &mut self.scores, &inputs.start, sizes, (keys, None), scale)?;
        blas.multiply_batch([self.scores.all(), v], self.apart.all_mut(), &values)?;
        lab.operations.merge_heads(stream, &self.apart, &mut self.out, sizes)
    }
}

/// The products of naive attention: scores of queries and keys, and shares of values.
pub(super) fn naive_products(sizes: &HeadSizes, keys: u32) -> [Batch; 2] {
    let (rows, dim) = (sizes.group() * sizes.tokens, sizes.head_dim);
    let cached = u64::from(sizes.capacity) * u64::from(dim);
    let one = Batch {
        count: sizes.batch * sizes.kv_heads,
        m: rows,
        n: keys,
        k: dim,
        a: Matrices::plain(rows, dim),
        b: Matrices::transposed(dim, keys).every(cached),
        c: Matrices::plain(rows, keys),
        scale: 1.0,
        is_added: false,
    };
    let (scores, values) = (Matrices::plain(rows, keys), Matrices::plain(keys, dim).every(cached));
    [one, Batch { n: dim, k: keys, a: scores, b: values, c: Matrices::plain(rows, dim), ..one }]
}

/// A product that is added to what was there, on parts of buffers.
fn added_product<T: Number>(lab: &mut Lab<'_, T>, blas: &Blas) -> Result<(), Failed> {
    let [m, n, k] = [24_usize, 40, 64];
    let (a, b, c) = (lab.noise(m * k, 31), lab.noise(n * k, 32), lab.noise(m * n, 33));
    let b_plain = crate::reference::transpose(&b, [n, k]);
    let product = crate::reference::matmul(&a, &b_plain, [m, n, k]);
    let expected: Vec<f32> = product.iter().zip(&c).map(|(product, c)| product + c).collect();
    // Both factors lie in one buffer, as the weights of a model may.
    let all = lab.upload(&[&a[..], &b[..]].concat())?;
    let mut sum = lab.upload(&c)?;
    let sizes = Sizes { m: m as u32, n: n as u32, k: k as u32, b_is_transposed: true };
    let factors = [all.slice(0..m * k)?, all.slice(m * k..m * k + n * k)?];
    blas.multiply_add(factors, sum.all_mut(), sizes)?;
    lab.judge("a product that is added", &sum, &expected)?;
    let short = blas.multiply_slices([factors[0], factors[0]], sum.all_mut(), sizes);
    expect(short.is_err(), || "a factor that is too small was taken".to_owned())
}
