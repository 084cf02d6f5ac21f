//! Gradients of heads and of naive attention.

use laptime_cuda::{
    Batch, Blas, Buffer, Cache, Matrices,
    nn::{Attended, Attention, AttentionGradients, HeadNorm, HeadNormGradients, HeadSizes, Packed, Pairing, Rotation},
};

use super::attention::{CASES, Inputs, naive_products, sizes};
use super::{Answer, Bench, Failed, Lab, Number, backward::loaded, expect, in_each_type};
use crate::reference::nn::{self as reference, backward};

pub fn heads_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, heads_of)
}

fn heads_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // Sums over many heads, some of which cancel.
    lab.roundings = 2.0;
    for (case, start) in CASES {
        for (pairing, with_extras) in [(Pairing::Halves, false), (Pairing::Halves, true), (Pairing::Pairs, true)] {
            one_join(lab, &sizes(case), start, pairing, with_extras)?;
        }
    }
    Ok(())
}

fn one_join<T: Number>(
    lab: &mut Lab<'_, T>,
    sizes: &HeadSizes,
    start: u32,
    pairing: Pairing,
    with_extras: bool,
) -> Result<(), Failed> {
    let (device, gradients) = (&lab.bench.device, loaded(lab)?);
    let (width, dim) = (sizes.packed_width() as usize, sizes.head_dim as usize);
    let packed = lab.noise(sizes.rows() as usize * width, 11);
    let (bias, weights) = (lab.noise(width, 12), [lab.noise(dim, 13), lab.noise(dim, 14)]);
    let angles = crate::reference::noise((start + sizes.tokens) as usize * dim / 2, 15);
    let (cosines, sines): (Vec<f32>, Vec<f32>) =
        angles.iter().map(|angle| ((angle * 3.0).cos(), (angle * 3.0).sin())).unzip();
    let split = reference::Split {
        bias: if with_extras { &bias } else { &[] },
        norm: with_extras.then_some(([&weights[0][..], &weights[1][..]], 1e-6)),
        cosines: &cosines,
        sines: &sines,
        pairing,
        start: start as usize,
    };
    let slopes = reference::Heads {
        q: lab.noise(sizes.query_elements() as usize, 16),
        k: lab.noise(sizes.cache_elements() as usize, 17),
        v: lab.noise(sizes.cache_elements() as usize, 18),
    };
    let (expected, expected_norms) = backward::split_heads(&packed, &slopes, sizes, &split);
    let (dq, dk, dv) = (lab.upload(&slopes.q)?, lab.upload(&slopes.k)?, lab.upload(&slopes.v)?);
    // Without a norm, what was packed is not needed.
    let saved = if with_extras { lab.upload(&packed)? } else { lab.spoiled(0)? };
    let bias = lab.upload(&bias)?;
    let weights = [lab.upload(&weights[0])?, lab.upload(&weights[1])?];
    let (cosines, sines, start_there) = (device.upload(&cosines)?, device.upload(&sines)?, device.upload(&[start])?);
    let mut d_packed = lab.spoiled(packed.len())?;
    let (mut d_q_norm, mut d_k_norm) = (lab.spoiled(dim)?, lab.spoiled(dim)?);
    let mut scratch = device.upload(&vec![f32::NAN; gradients.scratch_length(2 * sizes.head_dim)])?;
    let input = Packed {
        packed: saved.all(),
        bias: with_extras.then(|| bias.all()),
        norm: with_extras.then(|| HeadNorm { q: weights[0].all(), k: weights[1].all(), epsilon: 1e-6 }),
        rotation: Rotation { cosines: cosines.all(), sines: sines.all(), pairing },
        start: start_there.all(),
    };
    let norms = with_extras.then(|| HeadNormGradients {
        q: d_q_norm.all_mut(),
        k: d_k_norm.all_mut(),
        scratch: scratch.all_mut(),
    });
    let heads = [dq.all(), dk.all(), dv.all()];
    gradients.split_heads_backward(device.stream(), &input, heads, &mut d_packed, norms, sizes)?;
    let what = format!("split_heads_backward {sizes:?} from {start}, {pairing:?}, extras {with_extras}");
    lab.judge(&what, &d_packed, &expected)?;
    if with_extras {
        lab.judge(&format!("q norm of {what}"), &d_q_norm, &expected_norms[0])?;
        lab.judge(&format!("k norm of {what}"), &d_k_norm, &expected_norms[1])?;
    }
    Ok(())
}

pub fn naive_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, naive_of)
}

fn naive_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // Shares and the gradient of scores are rounded on the way.
    lab.roundings = 6.0;
    let blas = Blas::new(&lab.bench.device)?;
    // The later ones are for the tiles of fused attention.
    for (case, start) in CASES.into_iter().take(11) {
        let sizes = sizes(case);
        if start + sizes.tokens <= sizes.capacity {
            one_naive(lab, &blas, &sizes, start)?;
        }
    }
    weight_gradient(lab, &blas)
}

/// The products of naive attention's gradients: of values, shares, queries and keys.
pub(super) fn naive_backward_products(sizes: &HeadSizes, keys: u32) -> [Batch; 4] {
    let [scores, values] = naive_products(sizes, keys);
    let (rows, dim) = (values.m, sizes.head_dim);
    let cached = Matrices::plain(keys, dim).every(u64::from(sizes.capacity) * u64::from(dim));
    let turned = Matrices::transposed(keys, rows);
    let of_cache = Batch { m: keys, n: dim, k: rows, a: turned, b: Matrices::plain(rows, dim), c: cached, ..values };
    [of_cache, scores, values, of_cache]
}

fn one_naive<T: Number>(lab: &mut Lab<'_, T>, blas: &Blas, sizes: &HeadSizes, start: u32) -> Result<(), Failed> {
    let (gradients, stream, keys) = (loaded(lab)?, lab.bench.device.stream(), start + sizes.tokens);
    let inputs = Inputs::new(lab, sizes, start)?;
    let scale = 1.5 / (sizes.head_dim as f32).sqrt();
    let [q, k, v] = &inputs.host;
    let slopes = lab.noise(q.len(), 24);
    let expected = backward::attention([q, k, v], &slopes, sizes, start as usize, scale);
    let scores = (sizes.rows() * u64::from(sizes.heads) * u64::from(keys)) as usize;
    let (mut shares, mut d_shares) = (lab.spoiled(scores)?, lab.spoiled(scores)?);
    let (slopes, mut d_out) = (lab.upload(&slopes)?, lab.spoiled(q.len())?);
    let (mut dq, zeros) = (lab.spoiled(q.len())?, vec![0.0; k.len()]);
    let (mut dk, mut dv) = (lab.upload(&zeros)?, lab.upload(&zeros)?);
    let [q, k, v] = inputs.there();
    let [of_values, of_shares, of_queries, of_keys] = naive_backward_products(sizes, keys);
    blas.multiply_batch([q, k], shares.all_mut(), &naive_products(sizes, keys)[0])?;
    lab.operations.softmax_causal(stream, &mut shares, &inputs.start, sizes, (keys, None), scale)?;
    lab.operations.unmerge_heads(stream, &slopes, &mut d_out, sizes)?;
    blas.multiply_batch([shares.all(), d_out.all()], dv.all_mut(), &of_values)?;
    blas.multiply_batch([d_out.all(), v], d_shares.all_mut(), &of_shares)?;
    gradients.softmax_causal_backward(stream, &shares, &mut d_shares, &inputs.start, sizes, keys, scale)?;
    blas.multiply_batch([d_shares.all(), k], dq.all_mut(), &of_queries)?;
    blas.multiply_batch([d_shares.all(), q], dk.all_mut(), &of_keys)?;
    let found: [(&str, &Buffer<T>); 3] = [("dq", &dq), ("dk", &dk), ("dv", &dv)];
    for ((what, found), expected) in found.into_iter().zip(&expected) {
        lab.judge(&format!("naive {what} {sizes:?} from {start}"), found, expected)?;
    }
    Ok(())
}

/// The gradient of a weight is the product of two matrices, the first of them transposed.
fn weight_gradient<T: Number>(lab: &mut Lab<'_, T>, blas: &Blas) -> Result<(), Failed> {
    let [rows, outputs, inputs] = [40_usize, 24, 64];
    let (dy, x) = (lab.noise(rows * outputs, 25), lab.noise(rows * inputs, 26));
    let turned = crate::reference::transpose(&dy, [rows, outputs]);
    let expected = crate::reference::matmul(&turned, &x, [outputs, inputs, rows]);
    let (dy, x, mut found) = (lab.upload(&dy)?, lab.upload(&x)?, lab.spoiled(outputs * inputs)?);
    let batch = Batch::weight_gradient(rows as u32, outputs as u32, inputs as u32);
    blas.multiply_batch([dy.all(), x.all()], found.all_mut(), &batch)?;
    lab.judge("a weight's gradient", &found, &expected)
}

pub fn fused_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, fused_of)
}

fn fused_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // Shares, the gradient of scores and the result it is computed from are rounded on the way.
    lab.roundings = 4.0;
    for (case, start) in CASES.into_iter().take(12) {
        for is_shifted in [false, true] {
            one_fused(lab, &sizes(case), start, is_shifted)?;
        }
    }
    Ok(())
}

fn one_fused<T: Number>(lab: &mut Lab<'_, T>, sizes: &HeadSizes, start: u32, is_shifted: bool) -> Result<(), Failed> {
    let device = &lab.bench.device;
    let attention = Attention::<T>::load(device, &Cache::of_user(), sizes.head_dim, None)?;
    let gradients = AttentionGradients::<T>::load(device, &Cache::of_user(), sizes.head_dim)?;
    let inputs = Inputs::new(lab, sizes, start)?;
    let scale = 1.5 / (sizes.head_dim as f32).sqrt();
    let [q, k, v] = &inputs.host;
    let slopes = lab.noise(q.len(), 27);
    let expected = backward::attention([q, k, v], &slopes, sizes, start as usize, scale);
    let rows = (sizes.rows() * u64::from(sizes.heads)) as usize;
    let mut lse = device.upload(&vec![f32::NAN; rows])?;
    let mut dots = device.upload(&vec![f32::NAN; rows])?;
    let mut out = lab.spoiled(q.len())?;
    // At an address that is no multiple of 16, the kernels for any head are taken.
    let offset = usize::from(is_shifted);
    let slopes = lab.upload(&[&vec![f32::NAN; offset][..], &slopes].concat())?;
    let [mut dq, mut dk, mut dv] = [lab.spoiled(q.len())?, lab.spoiled(k.len())?, lab.spoiled(v.len())?];
    let [q, k, v] = inputs.there();
    let outputs = (out.all_mut(), Some(lse.all_mut()));
    attention.attend(device.stream(), [q, k, v], &inputs.start, outputs, sizes, scale)?;
    let d_out = slopes.slice(offset..slopes.length())?;
    let (out, lse, start_there) = (out.all(), lse.all(), inputs.start.all());
    let attended = Attended { q, k, v, out, d_out, lse, start: start_there };
    let there = [dq.all_mut(), dk.all_mut(), dv.all_mut()];
    gradients.attend_backward(device.stream(), &attended, there, &mut dots, sizes, scale)?;
    let found: [(&str, &Buffer<T>); 3] = [("dq", &dq), ("dk", &dk), ("dv", &dv)];
    for ((what, found), expected) in found.into_iter().zip(&expected) {
        // The share of a single key is one, whatever the scores: rounding is all that is left of their gradient.
        if expected.iter().all(|value| *value == 0.0) {
            let found = found.read()?.into_iter().map(|value| f64::from(value.widened().abs()));
            // What is no number is not within the tolerance either.
            let beyond: Vec<f64> = found.filter(|value| value.is_nan() || *value > T::TOLERANCE).collect();
            expect(beyond.is_empty(), || format!("{} fused {what} of nothing: {beyond:?}", T::NAME))?;
            continue;
        }
        lab.judge(&format!("fused {what} {sizes:?} from {start}, shifted {is_shifted}"), found, expected)?;
    }
    Ok(())
}
