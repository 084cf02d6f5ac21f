//! Convolutions and the rows between them: each against the CPU, and how long a codec's take.

use half::bf16;
use laptime_cuda::nn::{Activation, Codebooks, CodecOperations, Convolution, Convolutions, Signal};
use laptime_cuda::{Blas, Buffer, Cache, CudaError};

use super::speed::{Table, Work, peak, random_buffer};
use super::{Answer, Bench, Failed, Lab, Number, expect, in_each_type};
use crate::reference::nn::{self as reference, conv};

/// Convolutions with the length of their signal: of the codec's kinds, strided ones, odd ones, and short signals.
const CASES: [(Convolution, u32); 17] = [
    (Convolution::plain([96, 96], 7, 1), 75),
    (Convolution::plain([96, 96], 7, 3), 200),
    (Convolution::plain([96, 96], 7, 9), 130),
    (Convolution::plain([96, 96], 1, 1), 33),
    (Convolution::plain([512, 40], 3, 1), 9),
    (Convolution::plain([200, 24], 7, 1), 300),
    (Convolution::plain([5, 3], 7, 9), 70),
    (Convolution::plain([8, 8], 40, 30), 400),
    (Convolution { stride: 4, ..Convolution::plain([32, 64], 8, 1) }, 61),
    (Convolution { stride: 5, ..Convolution::plain([8, 8], 10, 1) }, 1),
    (Convolution { stride: 2, ..Convolution::plain([7, 9], 3, 2) }, 20),
    (Convolution::transposed([64, 64], 2, 2), 11),
    (Convolution::transposed([48, 24], 16, 8), 9),
    (Convolution::transposed([24, 16], 10, 5), 40),
    (Convolution::transposed([16, 8], 8, 4), 1),
    (Convolution::transposed([6, 5], 6, 3), 13),
    (Convolution::transposed([8, 8], 7, 3), 13),
];

pub fn convolutions(bench: &Bench) -> Answer {
    in_each_type!(bench, convolutions_of)
}

fn convolutions_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    // What the snake makes and what is there already are rounded too.
    lab.roundings = 3.0;
    let kernels = Convolutions::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let (blas, stream) = (Blas::new(&lab.bench.device)?, lab.bench.device.stream());
    for (at, (of, length)) in CASES.iter().enumerate() {
        let case = Case::new(lab, of, *length)?;
        let snakes = [None, Some(kernels.snake(&lab.bench.device, stream, case.snake_places())?)];
        let mut packed = lab.spoiled(of.packed_elements() as usize)?;
        kernels.pack(stream, of, &case.weight.1, Some(case.bias.1.all()), &mut packed)?;
        for snake in &snakes {
            let taken = snake.as_ref().map_or_else(|| case.x.0.clone(), |_| case.snaked::<T>());
            let expected = conv::convolve(of, &taken, &case.weight.0, &case.bias.0);
            let signal = Signal { x: case.x.1.all(), length: *length, snake: snake.as_ref() };
            // Room for all columns, and for a few rows at a time.
            for rows in [10_000, 7] {
                let mut room = lab.spoiled(rows * of.width() as usize)?;
                let mut out = lab.spoiled(expected.len())?;
                kernels.convolve(&blas, stream, of, &signal, &packed, &mut out, (false, &mut room))?;
                lab.judge(&format!("case {at} {of:?} of {length}, {rows} rows"), &out, &expected)?;
                let before = lab.noise(expected.len(), 9);
                let sums: Vec<f32> = before.iter().zip(&expected).map(|(a, b)| a + b).collect();
                let mut out = lab.upload(&before)?;
                kernels.convolve(&blas, stream, of, &signal, &packed, &mut out, (true, &mut room))?;
                lab.judge(&format!("added case {at} {of:?} of {length}"), &out, &sums)?;
            }
        }
        let mut small = lab.spoiled(of.width() as usize - 1)?;
        let signal = Signal { x: case.x.1.all(), length: *length, snake: None };
        let mut out = lab.spoiled(1)?;
        let refused = kernels.convolve(&blas, stream, of, &signal, &packed, &mut out, (false, &mut small));
        expect(refused.is_err(), || "a convolution without room was taken".to_owned())?;
    }
    Ok(())
}

/// A signal, weights and a snake, on both sides.
struct Case<T> {
    x: (Vec<f32>, Buffer<T>),
    weight: (Vec<f32>, Buffer<T>),
    bias: (Vec<f32>, Buffer<T>),
    alpha: (Vec<f32>, Buffer<T>),
    beta: (Vec<f32>, Buffer<T>),
}

impl<T: Number> Case<T> {
    fn new(lab: &Lab<'_, T>, of: &Convolution, length: u32) -> Result<Self, Failed> {
        let both = |count: u64, seed: u64| -> Result<(Vec<f32>, Buffer<T>), CudaError> {
            let values = lab.noise(count as usize, seed);
            let there = lab.upload(&values)?;
            Ok((values, there))
        };
        Ok(Self {
            x: both(u64::from(of.inputs) * u64::from(length), 1)?,
            weight: both(of.stored_elements(), 2)?,
            bias: both(of.outputs.into(), 3)?,
            alpha: both(of.inputs.into(), 4)?,
            beta: both(of.inputs.into(), 5)?,
        })
    }

    fn snake_places(&self) -> [laptime_cuda::Slice<'_, T>; 2] {
        [self.alpha.1.all(), self.beta.1.all()]
    }

    fn snaked<U: Number>(&self) -> Vec<f32> {
        let made = conv::snake(&self.x.0, [&self.alpha.0, &self.beta.0]);
        made.into_iter().map(|value| U::narrowed(value).widened()).collect()
    }
}

pub fn channels(bench: &Bench) -> Answer {
    in_each_type!(bench, channels_of)
}

/// Each channel by itself, and all to one.
fn channels_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    lab.roundings = 3.0;
    let kernels = Convolutions::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    for (channels, kernel, dilation, stride, length) in
        [(1024, 7, 1, 1, 20), (64, 7, 3, 1, 90), (5, 3, 1, 2, 31), (2048, 4, 1, 1, 1)]
    {
        let of = Convolution { stride, ..Convolution::plain([channels, channels], kernel, dilation) };
        let case = Case::new(lab, &Convolution { outputs: 1, ..of }, length)?;
        let bias = lab.noise(channels as usize, 7);
        let bias_there = lab.upload(&bias)?;
        let expected = conv::depthwise(&of, &case.x.0, &case.weight.0, &bias);
        let mut out = lab.spoiled(expected.len())?;
        let signal = Signal { x: case.x.1.all(), length, snake: None };
        let weights = (case.weight.1.all(), Some(bias_there.all()));
        kernels.depthwise(stream, &of, &signal, weights, &mut out)?;
        lab.judge(&format!("depthwise {of:?} of {length}"), &out, &expected)?;
    }
    for (channels, kernel, dilation, length) in [(96, 7, 1, 1000), (64, 7, 2, 64), (5, 3, 1, 130), (100, 1, 1, 1)] {
        let of = Convolution::plain([channels, 1], kernel, dilation);
        let case = Case::new(lab, &of, length)?;
        let snake = kernels.snake(&lab.bench.device, stream, case.snake_places())?;
        let weights = || (case.weight.1.all(), Some(case.bias.1.all()));
        let mut out = lab.bench.device.upload(&vec![f32::NAN; length as usize])?;
        let signal = Signal { x: case.x.1.all(), length, snake: Some(&snake) };
        let expected = conv::convolve(&of, &case.snaked::<T>(), &case.weight.0, &case.bias.0);
        kernels.to_one(stream, &of, &signal, weights(), &mut out, f32::INFINITY)?;
        lab.judge_values(&format!("to one {of:?} of {length}"), &out.read()?, &expected)?;
        let limited: Vec<f32> = expected.iter().map(|value| value.clamp(-0.5, 0.5)).collect();
        kernels.to_one(stream, &of, &signal, weights(), &mut out, 0.5)?;
        lab.judge_values(&format!("limited to one {of:?} of {length}"), &out.read()?, &limited)?;
        let refused = kernels.to_one(stream, &Convolution { outputs: 2, ..of }, &signal, weights(), &mut out, 1.0);
        expect(refused.is_err(), || "two channels were taken for one".to_owned())?;
    }
    Ok(())
}

pub fn rows(bench: &Bench) -> Answer {
    in_each_type!(bench, rows_of)
}

fn rows_of<T: Number>(lab: &mut Lab<'_, T>) -> Result<(), Failed> {
    lab.roundings = 3.0;
    let kernels = CodecOperations::<T>::load(&lab.bench.device, &Cache::of_user())?;
    let stream = lab.bench.device.stream();
    for [rows, width] in [[3_u32, 1024], [70, 96], [5, 77], [1, 4096], [2, 1]] {
        let count = (rows * width) as usize;
        let [x, y] = [1, 2].map(|seed| lab.noise(count, seed));
        let [weight, bias] = [3, 4].map(|seed| lab.noise(width as usize, seed));
        let (x_there, y_there) = (lab.upload(&x)?, lab.upload(&y)?);
        let (weight_there, bias_there) = (lab.upload(&weight)?, lab.upload(&bias)?);
        let what = format!("{rows} x {width}");
        let mut out = lab.spoiled(count)?;
        let both = [weight_there.all(), bias_there.all()];
        kernels.layer_norm(stream, &x_there, both, &mut out, [rows, width], 1e-2)?;
        lab.judge(&format!("layer norm {what}"), &out, &conv::layer_norm(&x, [&weight, &bias], 1e-2))?;
        let mut out = lab.upload(&x)?;
        kernels.bias_activation(stream, &mut out, Some(bias_there.all()), [rows, width], Activation::Gelu)?;
        let biased = reference::add_bias(&x, &bias).into_iter().map(|value| T::narrowed(value).widened());
        let biased: Vec<f32> = biased.collect();
        lab.judge(&format!("gelu {what}"), &out, &reference::fuse::gelu(&biased))?;
        let mut out = lab.upload(&biased)?;
        kernels.bias_activation(stream, &mut out, None, [rows, width], Activation::Silu)?;
        let silu = biased.iter().map(|value| value / (1.0 + (-value).exp())).collect::<Vec<f32>>();
        lab.judge(&format!("silu {what}"), &out, &silu)?;
        let mut out = lab.upload(&x)?;
        let added = (y_there.all(), Some(bias_there.all()));
        kernels.add_scaled(stream, &mut out, added, weight_there.all(), [rows, width])?;
        lab.judge(&format!("added {what}"), &out, &conv::add_scaled(&x, &y, [&bias, &weight]))?;
        let by: Vec<f32> = (0..rows).map(|row| T::narrowed(row as f32 * 0.75).widened()).collect();
        let by_there = lab.upload(&by)?;
        let mut out = lab.upload(&x)?;
        kernels.scale_rows(stream, &mut out, by_there.all(), [rows, width])?;
        let scaled = x.iter().enumerate().map(|(at, value)| value * by[at / width as usize]);
        lab.judge(&format!("scaled {what}"), &out, &scaled.collect::<Vec<f32>>())?;
        // Every second row has an id, from the last row of the table on.
        let id = |row: u32| if row.is_multiple_of(2) { rows - 1 - row } else { u32::MAX };
        let ids = lab.bench.device.upload(&(0..rows).map(id).collect::<Vec<u32>>())?;
        let mut out = lab.upload(&x)?;
        kernels.add_embedding(stream, ids.all(), y_there.all(), &mut out, [rows, width])?;
        let embedded = x.iter().enumerate().map(|(at, value)| {
            let (row, column) = (at as u32 / width, at as u32 % width);
            value + y.get((id(row).saturating_mul(width).saturating_add(column)) as usize).copied().unwrap_or(0.0)
        });
        lab.judge(&format!("embedded {what}"), &out, &embedded.collect::<Vec<f32>>())?;
    }
    for (rows, [groups, size, width]) in [(30_u32, [16_u32, 50, 256]), (3, [4, 8, 5]), (1, [1, 3, 8])] {
        let books = lab.noise((groups * size * width) as usize, 5);
        let codes: Vec<u32> = (0..rows * groups).map(|at| at * 7 % size).collect();
        let expected = conv::code_rows(&codes, &books, [groups, size, width].map(|size| size as usize));
        let (books, codes) = (lab.upload(&books)?, lab.bench.device.upload(&codes)?);
        let mut out = lab.spoiled(expected.len())?;
        let table = Codebooks { rows: books.all(), groups, size, width };
        kernels.embed_codes(stream, codes.all(), &table, &mut out, rows)?;
        lab.judge(&format!("codes {rows} x {groups}"), &out, &expected)?;
        let beyond = lab.bench.device.upload(&vec![size; (rows * groups) as usize])?;
        kernels.embed_codes(stream, beyond.all(), &table, &mut out, rows)?;
        let is_none = out.read()?.into_iter().take(width as usize).all(|value| T::widened(value).is_nan());
        expect(is_none, || "a code beyond its book was found".to_owned())?;
    }
    Ok(())
}

/// Frames whose codes are decoded at once.
const FRAMES: u32 = 100;

/// The convolutions of a codec of 12.5 frames a second, as a hundred frames need them.
pub fn speed(bench: &Bench) -> Answer {
    let mut table = Table::new(bench);
    let mut sum = 0.0;
    for megabytes in [16, 64] {
        sum = speed_of::<bf16>(bench, &mut table, megabytes << 20)?;
    }
    speed_of::<f32>(bench, &mut table, 64 << 20)?;
    expect(sum < 20_000.0, || format!("{sum:.0} us"))?;
    table.answer()
}

fn speed_of<T: Number>(bench: &Bench, table: &mut Table<'_>, room: usize) -> Result<f64, Failed> {
    let lab = Lab::<T>::new(bench)?;
    let kernels = Convolutions::<T>::load(&bench.device, &Cache::of_user())?;
    let (blas, stream) = (Blas::new(&bench.device)?, bench.device.stream());
    let mut room = lab.spoiled(room / size_of::<T>())?;
    let mut all = vec![(Convolution::plain([1024, 1536], 7, 1), FRAMES * 4, 1.0)];
    let mut length = FRAMES * 4;
    for (block, stride) in [8_u32, 5, 4, 3].into_iter().enumerate() {
        let (wide, narrow) = (1536 >> block, 1536 >> (block + 1));
        all.push((Convolution::transposed([wide, narrow], 2 * stride, stride), length, 1.0));
        length *= stride;
        all.extend([1, 9].map(|dilation| (Convolution::plain([narrow; 2], 7, dilation), length, 1.5)));
        all.push((Convolution::plain([narrow; 2], 1, 1), length, 3.0));
    }
    let (mut sum, megabytes) = (0.0, room.bytes() >> 20);
    for (of, length, times) in all {
        let (x, packed) =
            (random_buffer(&lab, u64::from(of.inputs * length))?, random_buffer(&lab, of.packed_elements())?);
        let zeros = lab.upload(&vec![0.0; of.inputs as usize])?;
        let snake = kernels.snake(&bench.device, stream, [zeros.all(), zeros.all()])?;
        let mut out = random_buffer(&lab, u64::from(of.outputs) * u64::from(of.length(length)))?;
        let signal = Signal { x: x.all(), length, snake: Some(&snake) };
        let kind = if of.is_transposed { "transposed" } else { "conv" };
        let what = format!("{} {kind} {}-{} k{} d{}", T::NAME, of.inputs, of.outputs, of.kernel, of.dilation);
        let work = Work::Operations(2.0 * of.stored_elements() as f64 * f64::from(length), peak::<T>());
        sum += times
            * table.row(&format!("{what} of {length}, {megabytes} MiB"), work, || {
                kernels.convolve(&blas, stream, &of, &signal, &packed, &mut out, (false, &mut room))
            })?;
    }
    let of = Convolution::plain([96, 1], 7, 1);
    let (x, weight) = (random_buffer(&lab, u64::from(96 * length))?, random_buffer(&lab, of.stored_elements())?);
    let mut out = bench.device.upload(&vec![0.0_f32; length as usize])?;
    let signal = Signal { x: x.all(), length, snake: None };
    let work = Work::Bytes((x.bytes() + out.bytes()) as f64);
    sum += table.row(&format!("{} conv 96-1 k7 of {length}", T::NAME), work, || {
        kernels.to_one(stream, &of, &signal, (weight.all(), None), &mut out, 1.0)
    })?;
    table.words.push_str(&format!("\n{:<46} {sum:>9.2}", format!("{} all of {FRAMES} frames", T::NAME)));
    Ok(sum)
}
