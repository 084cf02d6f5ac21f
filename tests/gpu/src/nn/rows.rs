//! Operations on rows.

use std::ops::Range;

use laptime_cuda::Rows;
use laptime_cuda::nn::HeadSizes;
use laptime_models::synthetic;

use super::{Answer, Bench, Failed, Lab, Number, expect, in_each_type};
use crate::reference::nn as reference;

/// Rows by columns: whole groups of 16 bytes, odd ones, one of all, and wide ones.
const SHAPES: [[u32; 2]; 6] = [[1, 1024], [37, 768], [5, 1000], [3, 77], [2, 9728], [1, 40_001]];

pub fn norms(bench: &Bench) -> Answer {
    in_each_type!(bench, norms_of)
}

fn norms_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let stream = lab.bench.device.stream();
    for [rows, width] in SHAPES {
        let count = (rows * width) as usize;
        let (x, weight) = (lab.noise(count, 1), lab.noise(width as usize, 2));
        let expected = reference::rms_norm(&x, &weight, 1e-6);
        let (x_there, weight_there, mut out) = (lab.upload(&x)?, lab.upload(&weight)?, lab.spoiled(count)?);
        lab.operations.rms_norm(stream, &x_there, &weight_there, &mut out, [rows, width], 1e-6)?;
        lab.judge(&format!("rms_norm {rows} x {width}"), &out, &expected)?;
        // At an address that is no multiple of 16.
        let mut shifted = lab.spoiled(count + 1)?;
        lab.operations.rms_norm(
            stream,
            &x_there,
            &weight_there,
            shifted.slice_mut(1..count + 1)?,
            [rows, width],
            1e-6,
        )?;
        let found: Vec<f32> = shifted.slice(1..count + 1)?.read()?.into_iter().map(T::widened).collect();
        lab.judge_values(&format!("shifted rms_norm {rows} x {width}"), &found, &expected)?;
        let sums: Vec<f32> = x.iter().zip(&expected).map(|(x, norm)| x + norm).collect();
        let mut added = lab.upload(&x)?;
        lab.operations.rms_norm_add(stream, &x_there, &weight_there, &mut added, [rows, width], 1e-6)?;
        lab.judge(&format!("rms_norm_add {rows} x {width}"), &added, &sums)?;
        let scaled: Vec<f32> = x.iter().map(|x| x * 2.5).collect();
        let mut there = lab.upload(&x)?;
        lab.operations.scale(stream, &mut there, count as u64, 2.5)?;
        lab.judge(&format!("scale {count}"), &there, &scaled)?;
        let biased = reference::add_bias(&x, &weight);
        let mut x_there = x_there;
        lab.operations.add_bias(stream, &mut x_there, &weight_there, [rows, width])?;
        lab.judge(&format!("add_bias {rows} x {width}"), &x_there, &biased)?;
    }
    let small = lab.spoiled(7)?;
    let mut out = lab.spoiled(8)?;
    lab.operations.rms_norm(stream, &small, &small, &mut out, [0, 7], 1e-6)?;
    let refused = lab.operations.rms_norm(stream, &small, &small, &mut out, [1, 8], 1e-6);
    expect(refused.is_err(), || "a buffer that is too small was taken".to_owned())
}

pub fn gating(bench: &Bench) -> Answer {
    in_each_type!(bench, gating_of)
}

fn gating_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let stream = lab.bench.device.stream();
    for [rows, ffn] in SHAPES {
        let (count, width) = ((rows * ffn) as usize, 2 * ffn as usize);
        let gate_up: Vec<f32> = lab.noise(2 * count, 3).iter().map(|value| value * 8.0).collect();
        let bias = lab.noise(width, 4);
        let (there, bias_there, mut out) = (lab.upload(&gate_up)?, lab.upload(&bias)?, lab.spoiled(count)?);
        lab.operations.swiglu(stream, &there, None, &mut out, [rows, ffn])?;
        lab.judge(&format!("swiglu {rows} x {ffn}"), &out, &reference::swiglu(&gate_up, ffn as usize))?;
        lab.operations.swiglu(stream, &there, Some(bias_there.all()), &mut out, [rows, ffn])?;
        let expected = reference::swiglu(&reference::add_bias(&gate_up, &bias), ffn as usize);
        lab.judge(&format!("swiglu with bias {rows} x {ffn}"), &out, &expected)?;
        lab.operations.geglu(stream, &there, None, &mut out, [rows, ffn])?;
        lab.judge(&format!("geglu {rows} x {ffn}"), &out, &reference::geglu(&gate_up, ffn as usize))?;
    }
    Ok(())
}

pub fn embedding(bench: &Bench) -> Answer {
    in_each_type!(bench, embedding_of)
}

fn embedding_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let stream = lab.bench.device.stream();
    let tokens = [3_u32, 0, 10, 3, 7];
    for width in [64_usize, 77, 2560] {
        let table = lab.noise(11 * width, 5);
        let (tokens_there, table_there) = (lab.bench.device.upload(&tokens)?, lab.upload(&table)?);
        let mut out = lab.spoiled(tokens.len() * width)?;
        lab.operations.embed(stream, &tokens_there, &table_there, &mut out, [11, width as u32])?;
        lab.judge(&format!("embed {width}"), &out, &reference::embed(&tokens, &table, width))?;
        lab.operations.embed(stream, &tokens_there, &table_there, &mut out, [10, width as u32])?;
        let found: Vec<f32> = out.read()?.into_iter().map(T::widened).collect();
        let is_spoiled = found[2 * width..3 * width].iter().all(|value| value.is_nan());
        expect(is_spoiled && found[3 * width..].iter().all(|value| value.is_finite()), || {
            format!("{} embed {width}: a token beyond the vocabulary", T::NAME)
        })?;
        let x = lab.noise(3 * 4 * width, 6);
        let (x_there, mut last) = (lab.upload(&x)?, lab.spoiled(3 * width)?);
        lab.operations.last_rows(stream, &x_there, &mut last, [3, 4, width as u32])?;
        lab.judge(&format!("last_rows {width}"), &last, &reference::last_rows(&x, [4, width]))?;
    }
    Ok(())
}

pub fn argmax(bench: &Bench) -> Answer {
    in_each_type!(bench, argmax_of)
}

fn argmax_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    for width in [1_usize, 5, 1000, 32_000, 151_936, 151_937] {
        let rows = 5;
        let mut x = lab.noise(rows * width, 7);
        // The largest twice, nothing but zeros of both signs, a row of no numbers, and one of minus infinity.
        for at in [width / 2, width - 1] {
            x[at] = 9.0;
        }
        x[width..2 * width]
            .iter_mut()
            .enumerate()
            .for_each(|(at, value)| *value = if at % 2 == 0 { -0.0 } else { 0.0 });
        x[2 * width..3 * width].fill(f32::NAN);
        x[3 * width..4 * width].fill(f32::NEG_INFINITY);
        x[3 * width] = f32::NAN;
        let (there, mut indices) = (lab.upload(&x)?, lab.bench.device.upload(&[99_u32; 5])?);
        lab.operations.argmax(lab.bench.device.stream(), &there, &mut indices, [rows as u32, width as u32])?;
        let (found, expected) = (indices.read()?, reference::argmax(&x, width));
        expect(found == expected, || format!("{} of {width}: {found:?} and not {expected:?}", T::NAME))?;
        lab.cases += 1;
    }
    Ok(())
}

pub fn softmax(bench: &Bench) -> Answer {
    in_each_type!(bench, softmax_of)
}

fn softmax_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // Tokens, keys, start.
    for [tokens, keys, start] in [
        [1, 1, 0],
        [7, 44, 37],
        [64, 64, 0],
        [33, 70, 37],
        [9, 1024, 1000],
        [5, 4096, 4091],
        [3, 16_384, 16_000],
        [2, 40_000, 39_000],
        [4, 64, 61],
    ] {
        let sizes = HeadSizes { batch: 2, tokens, heads: 4, kv_heads: 2, head_dim: 8, capacity: keys };
        let count = (2 * 4 * tokens * keys) as usize;
        let scores: Vec<f32> = lab.noise(count, 8).iter().map(|value| value * 16.0).collect();
        let (mut there, start_there) = (lab.upload(&scores)?, lab.bench.device.upload(&[start])?);
        lab.operations.softmax_causal(
            lab.bench.device.stream(),
            &mut there,
            &start_there,
            &sizes,
            (keys, None),
            0.25,
        )?;
        let expected = reference::softmax_causal(&scores, [tokens as usize, keys as usize], start as usize, 0.25);
        lab.judge(&format!("softmax {tokens} of {keys} from {start}"), &there, &expected)?;
        let (mut there, stream, window) = (lab.upload(&scores)?, lab.bench.device.stream(), Some(20));
        lab.operations.softmax_causal(stream, &mut there, &start_there, &sizes, (keys, window), 0.25)?;
        let expected = reference::softmax_windowed(&scores, [tokens as usize, keys as usize], start as usize, 0.25, 20);
        lab.judge(&format!("softmax {tokens} of {keys} from {start} in a window"), &there, &expected)?;
    }
    Ok(())
}

pub fn random(bench: &Bench) -> Answer {
    in_each_type!(bench, random_of)
}

fn random_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // From the beginning of a buffer, from addresses that are no multiple of 16, and fewer numbers than a group has.
    for range in [0..100_003, 1..100_003, 5..100_000, 3..4] {
        random_in(lab, range)?;
        lab.cases += 3;
    }
    Ok(())
}

/// Fills a part of a buffer in both ways, and sees that nothing next to it was touched.
fn random_in<T: Number>(lab: &Lab<'_, T>, part: Range<usize>) -> Result<(), Failed> {
    let (stream, key) = (lab.bench.device.stream(), 0x1234_5678_9abc_def0);
    let mut out = lab.upload(&vec![7.0; part.end + 3])?;
    lab.operations.fill_random(stream, out.slice_mut(part.clone())?, key, 0.02)?;
    let weight = |at: usize| synthetic::value(key, (at - part.start) as u64, 0.02);
    let expected = |at: usize| T::narrowed(if part.contains(&at) { weight(at) } else { 7.0 }).widened();
    let is_wrong = |(at, found): &(usize, T)| found.widened().to_bits() != expected(*at).to_bits();
    let wrong = out.read()?.into_iter().enumerate().filter(is_wrong).count();
    expect(wrong == 0, || format!("{}, {part:?}: {wrong} weights are not those of the CPU", T::NAME))?;

    lab.operations.fill(stream, out.slice_mut(part.clone())?, 1.5)?;
    let is_filled = out.read()?[part].iter().all(|value| value.widened() == 1.5);
    expect(is_filled, || format!("{}: fill is wrong", T::NAME))
}

pub fn memory(bench: &Bench) -> Answer {
    let (device, stream) = (&bench.device, bench.device.stream());
    let from = device.upload(&(0..24_u32).collect::<Vec<_>>())?;
    let mut to = device.upload(&[99_u32; 8])?;
    to.slice_mut(2..6)?.copy_from(stream, from.slice(10..14)?)?;
    expect(to.read()? == [99, 99, 10, 11, 12, 13, 99, 99], || format!("{:?}", to.read()))?;
    // Two of each six, put side by side.
    let rows = Rows { count: 4, length: 2, from_stride: 6, to_stride: 2 };
    to.all_mut().copy_rows_from(stream, from.all(), rows)?;
    expect(to.read()? == [0, 1, 6, 7, 12, 13, 18, 19], || format!("{:?}", to.read()))?;
    to.slice_mut(1..3)?.zero_on(stream)?;
    expect(to.slice(0..4)?.read()? == [0, 0, 0, 7], || format!("{:?}", to.read()))?;
    expect(to.slice(5..9).is_err(), || "a part beyond the buffer was taken".to_owned())?;
    Ok("copies of ranges and of rows".to_owned())
}
