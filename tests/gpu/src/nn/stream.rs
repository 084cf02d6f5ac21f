//! Convolutions that go on from what came before, and the rows between them, against the CPU.

use laptime_cuda::nn::{Convolution, Convolutions, History, Mixer, Residual, Signal, StreamingOperations};
use laptime_cuda::{Blas, Cache};

use super::{Answer, Bench, Failed, Lab, Number, in_each_type};
use crate::reference::nn::{conv, stream};

/// Convolutions that go on, the moments of their signals and how many of those come later.
const CASES: [(Convolution, u32, u32); 6] = [
    (Convolution::plain([64, 40], 7, 1), 30, 1),
    (Convolution::plain([1, 32], 7, 1), 40, 24),
    (Convolution { stride: 5, ..Convolution::plain([16, 24], 10, 1) }, 30, 15),
    (Convolution { stride: 2, ..Convolution::plain([6, 5], 4, 1) }, 8, 2),
    (Convolution::transposed([64, 32], 16, 8), 7, 1),
    (Convolution::transposed([6, 5], 4, 2), 9, 4),
];

pub fn convolutions(bench: &Bench) -> Answer {
    in_each_type!(bench, convolutions_of)
}

/// The outputs of later moments are those of the whole signal.
fn convolutions_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    lab.roundings = 2.0;
    let kernels = Convolutions::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let (blas, stream) = (Blas::new(&lab.bench.device)?, lab.bench.device.stream());
    for (of, length, later) in CASES {
        let x = lab.noise((length * of.inputs) as usize, 1);
        let (weight, bias) = (lab.noise(of.stored_elements() as usize, 2), lab.noise(of.outputs as usize, 3));
        let whole = conv::convolve(&of, &x, &weight, &bias);
        let seen = (later + of.history()).min(length) * of.inputs;
        let seen = lab.upload(&x[x.len() - seen as usize..])?;
        let streaming = of.streaming();
        let made = streaming.length(later + of.history()) * of.outputs;
        let expected = &whole[whole.len() - made as usize..];
        let mut packed = lab.spoiled(of.packed_elements() as usize)?;
        kernels.pack(stream, &of, &lab.upload(&weight)?, Some(lab.upload(&bias)?.all()), &mut packed)?;
        let signal = Signal { x: seen.all(), length: later + of.history(), snake: None };
        let (mut out, mut room) = (lab.spoiled(expected.len())?, lab.spoiled(64 * of.width() as usize)?);
        kernels.convolve(&blas, stream, &streaming, &signal, &packed, &mut out, (false, &mut room))?;
        lab.judge(&format!("{of:?}, {later} of {length}"), &out, expected)?;
    }
    // To one channel, in f32.
    let of = Convolution::plain([32, 1], 7, 1);
    let (x, weight, bias) = (lab.noise(32 * 206, 4), lab.noise(32 * 7, 5), lab.noise(1, 6));
    let whole = conv::convolve(&of, &x, &weight, &bias);
    let (there, weight, bias) = (lab.upload(&x)?, lab.upload(&weight)?, lab.upload(&bias)?);
    let mut out = lab.bench.device.upload(&vec![f32::NAN; 200])?;
    let signal = Signal { x: there.all(), length: 206, snake: None };
    let weights = (weight.all(), Some(bias.all()));
    kernels.to_one(stream, &of.streaming(), &signal, weights, &mut out, f32::INFINITY)?;
    lab.judge_values("to one", &out.read()?, &whole[6..])
}

pub fn rows(bench: &Bench) -> Answer {
    in_each_type!(bench, rows_of)
}

/// Rows and channels: of every way to share a row, and odd ones.
const SHAPES: [[usize; 2]; 7] = [[3200, 32], [40, 512], [1, 2048], [9, 4096], [200, 256], [13, 5], [3, 1030]];
const EPSILON: f32 = 1e-5;

fn rows_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    lab.roundings = 2.0;
    for [rows, width] in SHAPES {
        added(lab, [rows, width])?;
        mixed(lab, [rows, width])?;
    }
    kept(lab)?;
    samples(lab)
}

fn rounded<T: Number>(value: f64) -> f32 {
    T::narrowed(value as f32).widened()
}

fn added<T: Number>(lab: &mut Lab<'_, T>, [rows, width]: [usize; 2]) -> Result<(), Failed> {
    let kernels = StreamingOperations::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let (stream, shape) = (lab.bench.device.stream(), [rows as u32, width as u32]);
    let [x, y] = [1, 2].map(|seed| lab.noise(rows * width, seed));
    let [bias, scale, norm] = [3, 4, 5].map(|seed| lab.noise(width, seed));
    let (y_there, bias_there, scale_there) = (lab.upload(&y)?, lab.upload(&bias)?, lab.upload(&scale)?);
    let norm_there = lab.upload(&norm)?;
    let addition = Residual { y: y_there.all(), bias: bias_there.all(), scale: scale_there.all() };
    for (adds, norms) in [(true, true), (false, true), (true, false), (false, false)] {
        let of_y: (&[f32], [&[f32]; 2]) = (&y, [&bias, &scale]);
        let norm = norms.then_some(&norm[..]);
        let [sums, normed] = stream::add_norm(&x, adds.then_some(of_y), norm, (width, EPSILON), rounded::<T>);
        let (mut there, mut out) = (lab.upload(&x)?, lab.spoiled(rows * width)?);
        let by = (norms.then(|| norm_there.all()), EPSILON);
        kernels.add_norm(stream, &mut there, adds.then_some(&addition), by, &mut out, shape)?;
        lab.judge(&format!("sums {shape:?} {adds} {norms}"), &there, &sums)?;
        lab.judge(&format!("normed {shape:?} {adds} {norms}"), &out, &normed)?;
    }
    Ok(())
}

fn mixed<T: Number>(lab: &mut Lab<'_, T>, [rows, width]: [usize; 2]) -> Result<(), Failed> {
    const TAPS: usize = 7;
    let kernels = StreamingOperations::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let (stream, shape) = (lab.bench.device.stream(), [rows as u32, width as u32]);
    let (x, seen) = (lab.noise(rows * width, 1), lab.noise((rows + TAPS - 1) * width, 2));
    let weight = lab.noise(width * TAPS, 3);
    let [bias, scale, norm] = [4, 5, 6].map(|seed| lab.noise(width, seed));
    let made: Vec<f32> = stream::mixed(&seen, &weight, &bias).into_iter().map(rounded::<T>).collect();
    let (zeros, of_made) = (vec![0.0; width], &made[..]);
    let [sums, normed] =
        stream::add_norm(&x, Some((of_made, [&zeros, &scale])), Some(&norm), (width, EPSILON), rounded::<T>);
    let mut turned = lab.spoiled(width * TAPS)?;
    kernels.transpose_taps(stream, &lab.upload(&weight)?, &mut turned, [width as u32, TAPS as u32])?;
    let (seen, bias, scale, norm) = (lab.upload(&seen)?, lab.upload(&bias)?, lab.upload(&scale)?, lab.upload(&norm)?);
    let mixer =
        Mixer { history: seen.all(), weight: turned.all(), bias: bias.all(), scale: scale.all(), taps: TAPS as u32 };
    let (mut there, mut out) = (lab.upload(&x)?, lab.spoiled(rows * width)?);
    kernels.mix_norm(stream, &mixer, &mut there, (norm.all(), EPSILON), &mut out, shape)?;
    lab.judge(&format!("mixed {shape:?}"), &there, &sums)?;
    lab.judge(&format!("mixed and normed {shape:?}"), &out, &normed)
}

/// Lists of which more, fewer, and as many rows are new as are kept.
fn kept<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let kernels = StreamingOperations::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    let lists = [[0, 40, 6, 1], [1000, 3, 6, 50], [1600, 700, 2, 2], [8000, 1, 0, 8]];
    let mut kept = History::<T>::new(&lab.bench.device, &lists, 2)?;
    let mut expected = lab.noise(kept.rows.length(), 1);
    kept.rows.write(&expected.iter().map(|value| T::narrowed(*value)).collect::<Vec<T>>())?;
    for tokens in [1, 2] {
        kernels.keep(stream, &mut kept, tokens)?;
        for [begin, width, kept, each] in lists.map(|list| list.map(|size| size as usize)) {
            stream::keep(&mut expected[begin..], width, kept, each * tokens as usize);
        }
        lab.judge(&format!("kept of {tokens}"), &kept.rows, &expected)?;
    }
    kept.clear(stream)?;
    let silence = vec![0.0; expected.len()];
    lab.judge("forgotten", &kept.rows, &silence)
}

fn samples<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    let kernels = StreamingOperations::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let device = &lab.bench.device;
    let from = lab.noise(300, 1);
    let (there, token) = (device.upload(&from)?, device.upload(&[2])?);
    let (mut all, mut out) = (device.upload(&vec![0.0; 900])?, lab.spoiled(306)?);
    kernels.write_samples(device.stream(), (&there, &token), &mut all, out.slice_mut(6..306)?, 300)?;
    lab.judge_values("samples of all", &all.read()?[600..], &from)?;
    let taken: Vec<f32> = out.read()?[6..].iter().map(|value| value.widened()).collect();
    lab.judge_values("samples", &taken, &from)
}
