//! Gradients of operations on rows, and AdamW.

use laptime_cuda::nn::{AdamW, Gradients, HeadSizes, Normed, Parameter, Rates};
use laptime_cuda::{Buffer, Cache, CudaError};

use super::{Answer, Bench, Failed, Lab, Number, expect, in_each_type};
use crate::reference::{nn::backward as reference, worst_error};

/// Rows by columns: whole groups of 16 bytes, odd ones, one of all, wide ones, and more rows than blocks have at a time.
const SHAPES: [[u32; 2]; 9] =
    [[1, 1024], [37, 768], [5, 1000], [3, 77], [2, 9728], [1, 40_001], [3001, 64], [700, 1280], [9, 5120]];

pub(super) fn loaded<T: Number>(lab: &Lab<'_, T>) -> Result<Gradients<T>, CudaError> {
    Gradients::load(&lab.bench.device, &Cache::of_user())
}

/// What a slice of the device holds.
fn read<T: Number>(buffer: &Buffer<T>, from: usize) -> Result<Vec<f32>, CudaError> {
    Ok(buffer.slice(from..buffer.length())?.read()?.into_iter().map(T::widened).collect())
}

/// The same values from the second place of a buffer on, which is no multiple of 16 bytes.
fn shifted<T: Number>(lab: &Lab<'_, T>, values: &[f32]) -> Result<Buffer<T>, CudaError> {
    lab.upload(&[&[f32::NAN], values].concat())
}

pub fn losses(bench: &Bench) -> Answer {
    in_each_type!(bench, losses_of)
}

fn losses_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let (gradients, device) = (loaded(lab)?, &lab.bench.device);
    for [rows, vocabulary] in [[5, 10_000], [3, 77], [2, 40_000], [2, 151_936], [3, 1000], [2, 1], [2, 20_000]] {
        let count = (rows * vocabulary) as usize;
        let logits: Vec<f32> = lab.noise(count, 1).iter().map(|value| value * 8.0).collect();
        // The last one is not in the vocabulary.
        let targets: Vec<u32> =
            (0..rows).map(|row| if row + 1 == rows { vocabulary } else { row * 37 % vocabulary }).collect();
        let scale = 1.0 / rows as f32;
        let (expected_losses, expected) = reference::cross_entropy(&logits, &targets, vocabulary as usize, scale);
        let (targets, known) = (device.upload(&targets)?, rows as usize - 1);
        for offset in [0, 1] {
            let mut there = if offset == 0 { lab.upload(&logits)? } else { shifted(lab, &logits)? };
            let mut losses = device.upload(&vec![9_f32; rows as usize])?;
            let part = there.slice_mut(offset..offset + count)?;
            gradients.cross_entropy(device.stream(), part, &targets, &mut losses, [rows, vocabulary], scale)?;
            let what = format!("cross_entropy {rows} x {vocabulary} from {offset}");
            let (found, found_losses) = (read(&there, offset)?, losses.read()?);
            let beyond = known * vocabulary as usize;
            lab.judge_values(&what, &found[..beyond], &expected[..beyond])?;
            let error = worst_error(&found_losses[..known], &expected_losses[..known]);
            expect(error < 1e-5, || format!("{} losses of {what}: {error:.1e}", T::NAME))?;
            let is_spoiled = found_losses[known].is_nan() && found[beyond..].iter().all(|value| value.is_nan());
            expect(is_spoiled, || format!("{what}: a target beyond the vocabulary has a loss"))?;
            if offset == 0 {
                let mut mean = device.upload(&[0_f32])?;
                gradients.mean(device.stream(), losses.slice(0..known)?, &mut mean)?;
                let expected = expected_losses[..known].iter().sum::<f32>() / known as f32;
                expect_near(mean.read()?[0], expected, "the mean loss")?;
            }
        }
    }
    Ok(())
}

fn expect_near(found: f32, expected: f32, what: &str) -> Result<(), Failed> {
    expect((found - expected).abs() <= 1e-5 * expected.abs().max(1e-3), || {
        format!("{what}: {found} and not {expected}")
    })
}

pub fn norms_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, norms_of)
}

fn norms_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let (gradients, device) = (loaded(lab)?, &lab.bench.device);
    // Sums over many rows, some of which cancel.
    lab.roundings = 2.0;
    for [rows, width] in SHAPES {
        let count = (rows * width) as usize;
        let (x, weight, dy) = (lab.noise(count, 2), lab.noise(width as usize, 3), lab.noise(count, 4));
        let before = lab.noise(count, 5);
        let (expected, expected_weight) = reference::rms_norm(&x, &weight, &dy, 1e-6);
        let added: Vec<f32> = expected.iter().zip(&before).map(|(a, b)| a + b).collect();
        let (x, weight, dy) = (lab.upload(&x)?, lab.upload(&weight)?, lab.upload(&dy)?);
        let mut scratch = device.upload(&vec![f32::NAN; gradients.scratch_length(width)])?;
        for (offset, is_added) in [(0, false), (0, true), (1, true)] {
            let mut dx = if offset == 0 { lab.upload(&before)? } else { shifted(lab, &before)? };
            let mut d_weight = lab.spoiled(width as usize)?;
            let norm = Normed { x: x.all(), weight: weight.all(), dy: dy.all(), epsilon: 1e-6 };
            let part = dx.slice_mut(offset..offset + count)?;
            let sizes = [rows, width];
            gradients.rms_norm_backward(device.stream(), &norm, part, &mut d_weight, &mut scratch, sizes, is_added)?;
            let what = format!("rms_norm_backward {rows} x {width} from {offset}, added {is_added}");
            lab.judge_values(&what, &read(&dx, offset)?, if is_added { &added } else { &expected })?;
            lab.judge(&format!("weight of {what}"), &d_weight, &expected_weight)?;
        }
    }
    Ok(())
}

pub fn gates_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, gates_of)
}

fn gates_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let (gradients, stream) = (loaded(lab)?, lab.bench.device.stream());
    for [rows, ffn] in SHAPES {
        let (count, width) = ((rows * ffn) as usize, 2 * ffn as usize);
        let gate_up: Vec<f32> = lab.noise(2 * count, 6).iter().map(|value| value * 8.0).collect();
        let (bias, slopes) = (lab.noise(width, 7), lab.noise(count, 8));
        let biased = crate::reference::nn::add_bias(&gate_up, &bias);
        let (bias_there, slopes_there) = (lab.upload(&bias)?, lab.upload(&slopes)?);
        for (values, with_bias) in [(&gate_up, false), (&biased, true)] {
            let (mut there, mut activated) = (lab.upload(&gate_up)?, lab.spoiled(count)?);
            let bias = with_bias.then(|| bias_there.all());
            let again = with_bias.then(|| activated.all_mut());
            gradients.swiglu_backward(stream, &mut there, bias, &slopes_there, again, [rows, ffn])?;
            let what = format!("swiglu_backward {rows} x {ffn}, bias {with_bias}");
            lab.judge(&what, &there, &reference::swiglu(values, &slopes, ffn as usize))?;
            if with_bias {
                let expected = crate::reference::nn::swiglu(values, ffn as usize);
                lab.judge(&format!("activated of {what}"), &activated, &expected)?;
            }
        }
    }
    Ok(())
}

pub fn softmax_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, softmax_of)
}

fn softmax_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let gradients = loaded(lab)?;
    for [tokens, keys, start] in [
        [1, 1, 0],
        [7, 44, 37],
        [64, 64, 0],
        [33, 70, 37],
        [9, 1024, 1000],
        [5, 4096, 4091],
        [3, 16_384, 16_000],
        [4, 64, 61],
    ] {
        let sizes = HeadSizes { batch: 2, tokens, heads: 6, kv_heads: 3, head_dim: 64, capacity: keys };
        let count = (12 * tokens * keys) as usize;
        let seen = [tokens as usize, keys as usize];
        let scores = lab.noise(count, 9);
        let shares = crate::reference::nn::softmax_causal(&scores, seen, start as usize, 2.0);
        let shares: Vec<f32> = shares.into_iter().map(|share| T::narrowed(share).widened()).collect();
        let slopes = lab.noise(count, 10);
        let expected = reference::softmax_causal(&shares, &slopes, seen, start as usize, 0.5);
        // What is not seen is no number where it comes from.
        let spoiled: Vec<f32> = slopes
            .iter()
            .enumerate()
            .map(|(at, slope)| {
                let (row, key) = (at / keys as usize, at % keys as usize);
                if key > start as usize + row % tokens as usize { f32::NAN } else { *slope }
            })
            .collect();
        let (shares, mut there) = (lab.upload(&shares)?, lab.upload(&spoiled)?);
        let start_there = lab.bench.device.upload(&[start])?;
        gradients.softmax_causal_backward(
            lab.bench.device.stream(),
            &shares,
            &mut there,
            &start_there,
            &sizes,
            keys,
            0.5,
        )?;
        lab.judge(&format!("softmax_causal_backward {tokens} x {keys} from {start}"), &there, &expected)?;
    }
    Ok(())
}

pub fn rows_backward(bench: &Bench) -> Answer {
    in_each_type!(bench, rows_of)
}

fn rows_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let (gradients, device) = (loaded(lab)?, &lab.bench.device);
    let stream = device.stream();
    lab.roundings = 2.0;
    for head_dim in [64, 6, 80] {
        let sizes = HeadSizes { batch: 3, tokens: 19, heads: 5, kv_heads: 5, head_dim, capacity: 19 };
        let rows = lab.noise(sizes.query_elements() as usize, 11);
        let (there, mut apart) = (lab.upload(&rows)?, lab.spoiled(rows.len())?);
        lab.operations.unmerge_heads(stream, &there, &mut apart, &sizes)?;
        lab.judge(&format!("unmerge_heads {head_dim}"), &apart, &reference::unmerge_heads(&rows, &sizes))?;
    }
    for [rows, width] in SHAPES {
        let x = lab.noise((rows * width) as usize, 12);
        let (there, mut sums) = (lab.upload(&x)?, lab.spoiled(width as usize)?);
        let mut scratch = device.upload(&vec![f32::NAN; gradients.scratch_length(width)])?;
        gradients.column_sums(stream, &there, &mut sums, &mut scratch, [rows, width])?;
        lab.judge(&format!("column_sums {rows} x {width}"), &sums, &reference::column_sums(&x, width as usize))?;
    }
    tokens_of(lab, &gradients)
}

fn tokens_of<T: Number>(lab: &mut Lab<'_, T>, gradients: &Gradients<T>) -> Result<(), Failed> {
    let device = &lab.bench.device;
    for (vocabulary, width, count) in [(11, 64, 5), (50, 77, 1000), (300, 2560, 700), (1, 8, 600)] {
        // Some come often and some never, and one is not in the vocabulary.
        let mut tokens: Vec<u32> = (0..count as u32).map(|at| at * at % (vocabulary + 1)).collect();
        tokens[count / 2] = u32::MAX;
        let rows = lab.noise(count * width, 14);
        let before = lab.noise(vocabulary as usize * width, 15);
        let expected = reference::embed(&tokens, &rows, [vocabulary as usize, width]);
        let added: Vec<f32> = expected.iter().zip(&before).map(|(a, b)| a + b).collect();
        let (tokens, rows) = (device.upload(&tokens)?, lab.upload(&rows)?);
        let mut scratch = device.upload(&vec![7_u32; gradients.embed_scratch_length(vocabulary)])?;
        for is_added in [false, true] {
            let sizes = [vocabulary, width as u32];
            let mut twice = Vec::new();
            for _ in 0..2 {
                let mut table = lab.upload(&before)?;
                gradients.embed_backward(device.stream(), &tokens, &rows, &mut table, &mut scratch, sizes, is_added)?;
                let what = format!("embed_backward {count} of {vocabulary} x {width}, added {is_added}");
                lab.judge(&what, &table, if is_added { &added } else { &expected })?;
                twice.push(read(&table, 0)?);
            }
            expect(twice[0] == twice[1], || "embed_backward is not the same each time".to_owned())?;
        }
    }
    Ok(())
}

pub fn adamw(bench: &Bench) -> Answer {
    in_each_type!(bench, adamw_of)
}

fn adamw_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let (device, cache) = (&lab.bench.device, Cache::of_user());
    let rates = Rates { learning_rate: 0.01, weight_decay: 0.1, ..Rates::default() };
    let lengths = [1, 16_384, 40_003, 64 * 77, 7];
    let mut host: Vec<[Vec<f32>; 4]> = lengths
        .iter()
        .enumerate()
        .map(|(at, length)| {
            let seed = 20 + 2 * at as u64;
            [lab.noise(*length, seed), lab.noise(*length, seed + 1), vec![0.0; *length], vec![0.0; *length]]
        })
        .collect();
    // One lies at no multiple of 16 bytes.
    let offset = |at: usize| usize::from(at == 3);
    let upload = |at: usize, values: &[f32]| if offset(at) == 0 { lab.upload(values) } else { shifted(lab, values) };
    let mut there: Vec<[Buffer<T>; 4]> = Vec::new();
    for (at, [value, gradient, first, second]) in host.iter().enumerate() {
        there.push([upload(at, value)?, upload(at, gradient)?, upload(at, first)?, upload(at, second)?]);
    }
    let optimizer = AdamW::new(device, &cache, &borrowed(&mut there, offset)?)?;
    expect(optimizer.elements() == lengths.iter().sum::<usize>() as u64, || "elements are missing".to_owned())?;
    for step in 1..=3 {
        optimizer.step(device.stream(), &mut borrowed(&mut there, offset)?, &rates, step)?;
        for (at, [value, gradient, first, second]) in host.iter_mut().enumerate() {
            let moved = reference::adamw([value, gradient, first, second], &rates, step);
            for (what, (expected, found)) in moved.iter().zip([0, 2, 3].map(|i| &there[at][i])).enumerate() {
                lab.judge_values(&format!("adamw step {step}, {at}, {what}"), &read(found, offset(at))?, expected)?;
            }
            // The next step begins with what is stored.
            *value = read(&there[at][0], offset(at))?;
            *first = read(&there[at][2], offset(at))?;
            *second = read(&there[at][3], offset(at))?;
        }
    }
    let refused = optimizer.step(device.stream(), &mut borrowed(&mut there, offset)?[1..], &rates, 4);
    expect(refused.is_err(), || "other parameters were taken".to_owned())?;
    let refused = optimizer.step(device.stream(), &mut borrowed(&mut there, offset)?, &rates, 0);
    expect(refused.is_err(), || "step 0 was taken".to_owned())
}

/// Borrows parameters from buffers.
fn borrowed<T: Number>(
    there: &mut [[Buffer<T>; 4]],
    offset: impl Fn(usize) -> usize,
) -> Result<Vec<Parameter<'_, T>>, CudaError> {
    let each = there.iter_mut().enumerate().map(|(at, [value, gradient, first, second])| {
        let range = offset(at)..value.length();
        Ok(Parameter {
            value: value.slice_mut(range.clone())?,
            gradient: gradient.slice(range.clone())?,
            first: first.slice_mut(range.clone())?,
            second: second.slice_mut(range)?,
        })
    });
    each.collect()
}
