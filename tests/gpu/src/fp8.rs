//! FP8 matrices compared with references on the CPU.

use half::{bf16, f16};
use laptime_cuda::decode::{Linear, Norm, Step, StepSizes};
use laptime_cuda::nn::{Fp8, Fp8Scales};
use laptime_cuda::{Buffer, Cache};

use crate::decode::{EPSILON, Tested, narrow, random, widen};
use crate::reference::{decode as cpu, fp8, noise, worst_error};
use crate::{Answer, Bench, Failed, expect};

const SCALES: [Fp8Scales; 2] = [Fp8Scales::Rows, Fp8Scales::Blocks];

fn group(scales: Fp8Scales, width: usize) -> usize {
    if scales == Fp8Scales::Rows { width } else { 128 }
}

/// Rows by columns: whole groups of 16 codes, odd widths, blocks that are not full.
const SHAPES: [[usize; 2]; 6] = [[4, 256], [3, 7], [33, 101], [5, 1000], [1, 16], [7, 1296]];

pub fn matrices(bench: &Bench) -> Answer {
    matrices_of::<f32>(bench)?;
    matrices_of::<bf16>(bench)?;
    matrices_of::<f16>(bench)?;
    Ok(format!("{} matrices of each type, bit by bit", SHAPES.len() * SCALES.len()))
}

fn matrices_of<T: Tested>(bench: &Bench) -> Result<(), Failed> {
    let (kernels, stream) = (Fp8::<T>::load(&bench.device, &Cache::of_user())?, bench.device.stream());
    for (shape, scales) in SHAPES.into_iter().flat_map(|shape| SCALES.map(|scales| (shape, scales))) {
        let ([rows, width], what) = (shape, format!("{} {shape:?} {scales:?}", T::NAME));
        let sizes = [rows as u32, width as u32];
        let mut values = random::<T>(bench, rows * width, 7, 0.0, 3.0)?.host;
        // Ties between codes, zeros, and subnormals next to large values.
        values.iter_mut().step_by(5).for_each(|value| *value = (*value * 16.0).round() / 16.0);
        values[..width.min(6)].fill(0.0);
        values.iter_mut().step_by(11).for_each(|value| *value /= 1024.0);
        let (from, host) = (narrow::<T>(&values), widen(&narrow::<T>(&values)));
        let mut storage = bench.device.upload(&vec![T::narrowed(0.0); scales.elements::<T>(sizes) as usize])?;
        kernels.quantise(stream, &bench.device.upload(&from)?, &mut storage, sizes, scales)?;
        let found = fp8::parts(bytemuck::cast_slice(&storage.read()?), shape, group(scales, width));
        let expected = fp8::quantise(&host, shape, group(scales, width));
        expect(found.1 == expected.1, || format!("{what}: other scales"))?;
        let differs = found.0.iter().zip(&expected.0).position(|(found, expected)| found != expected);
        expect(differs.is_none(), || format!("{what}: another code at {differs:?}"))?;
        let mut back = bench.device.upload(&vec![T::narrowed(f32::NAN); rows * width])?;
        kernels.dequantise(stream, &storage, &mut back, sizes, scales)?;
        let numbers = widen(&narrow::<T>(&fp8::dequantise(&expected, width, group(scales, width))));
        expect(widen(&back.read()?) == numbers, || format!("{what}: other numbers"))?;
    }
    every_code(bench, &kernels)
}

/// Both decoders, by vectors of 16 and by single elements, know every code.
fn every_code<T: Tested>(bench: &Bench, kernels: &Fp8<T>) -> Result<(), Failed> {
    for shape in [[1_usize, 256], [256, 1]] {
        let (sizes, scales) = (shape.map(|side| side as u32), Fp8Scales::Rows);
        let ones = shape[0].min(256);
        let mut bytes: Vec<u8> = (0..=255).collect();
        bytes.extend(std::iter::repeat_n(1.0_f32.to_le_bytes(), ones).flatten());
        bytes.resize(scales.elements::<T>(sizes) as usize * size_of::<T>(), 0);
        let storage = bench.device.upload(&bytemuck::pod_collect_to_vec::<u8, T>(&bytes))?;
        let mut out = bench.device.upload(&[T::narrowed(0.0); 256])?;
        kernels.dequantise(bench.device.stream(), &storage, &mut out, sizes, scales)?;
        for (code, found) in (0..=255).zip(widen(&out.read()?)) {
            let expected = T::narrowed(fp8::number(code)).widened();
            let is_right = found == expected || found.is_nan() && expected.is_nan();
            expect(is_right, || format!("{} code {code:#x}: {found} and not {expected}", T::NAME))?;
        }
    }
    Ok(())
}

pub fn products(bench: &Bench) -> Answer {
    let worst = [products_of::<f32>(bench)?, products_of::<bf16>(bench)?, products_of::<f16>(bench)?];
    Ok(format!("worst error f32 {:.0e}, bf16 {:.0e}, f16 {:.0e}", worst[0], worst[1], worst[2]))
}

fn products_of<T: Tested>(bench: &Bench) -> Result<f64, Failed> {
    let mut worst = 0_f64;
    for (batch, scales) in [1, 3, 8].into_iter().flat_map(|batch| SCALES.map(|scales| (batch, scales))) {
        let sizes = StepSizes {
            batch,
            hidden: 1024,
            heads: 4,
            kv_heads: 2,
            head_dim: 64,
            ffn: 3072,
            vocab: 1000,
            capacity: 64,
        };
        let step = Step::<T>::load(&bench.device, &Cache::of_user(), sizes)?;
        let step = step.with_fp8(&bench.device, &Cache::of_user(), scales)?;
        for shape in [[4096, 1024], [1024, 3072], [1, 16], [7, 272], [1001, 528], [33, 101], [640, 2050]] {
            for has_bias in [false, true] {
                let error = product(bench, &step, batch as usize, shape, (scales, has_bias))?;
                expect(error < T::TOLERANCE, || {
                    format!("{} batch {batch} {shape:?} {scales:?} bias {has_bias}: worst error {error:.1e}", T::NAME)
                })?;
                worst = worst.max(error);
            }
        }
    }
    Ok(worst)
}

/// A quantised matrix on the device, and its numbers.
struct Quantised<T> {
    device: Buffer<T>,
    host: Vec<f32>,
}

fn quantised<T: Tested>(bench: &Bench, shape: [usize; 2], scales: Fp8Scales) -> Result<Quantised<T>, Failed> {
    let [rows, width] = shape;
    let sizes = [rows as u32, width as u32];
    let weight = random::<T>(bench, rows * width, 3, 0.0, 1.0 / (width as f32).sqrt())?;
    let kernels = Fp8::<T>::load(&bench.device, &Cache::of_user())?;
    let mut device = bench.device.allocate(scales.elements::<T>(sizes) as usize)?;
    kernels.quantise(bench.device.stream(), &weight.device, &mut device, sizes, scales)?;
    let group = group(scales, width);
    let mut parts = fp8::parts(bytemuck::cast_slice(&device.read()?), shape, group);
    if scales == Fp8Scales::Blocks {
        // The scales of published checkpoints are not powers of two.
        parts.1.iter_mut().zip(noise(rows * width, 8)).for_each(|(scale, noise)| *scale *= 1.3 + 0.2 * noise);
        device.write(&bytemuck::pod_collect_to_vec(&fp8::storage(&parts, shape)))?;
    }
    let host = fp8::dequantise(&parts, width, group);
    Ok(Quantised { device, host: widen(&narrow::<T>(&host)) })
}

/// The worst error of the three kinds of product.
fn product<T: Tested>(
    bench: &Bench,
    step: &Step<T>,
    batch: usize,
    [rows, width]: [usize; 2],
    (scales, has_bias): (Fp8Scales, bool),
) -> Result<f64, Failed> {
    let stream = bench.device.stream();
    let x = random::<T>(bench, batch * width, 1, 0.1, 1.0)?;
    let norm = random::<T>(bench, width, 2, 1.0, 0.3)?;
    let [once, twice] = [quantised::<T>(bench, [rows, width], scales)?, quantised(bench, [2 * rows, width], scales)?];
    let bias = random::<T>(bench, 2 * rows, 4, 0.0, 0.5)?;
    let before = random::<T>(bench, batch * rows, 5, 0.0, 1.0)?;
    let [linear, gates] = [&once, &twice].map(|weight| {
        let bias = has_bias.then_some(&bias.device);
        Linear { weight: &weight.device, bias, fp8: Some(scales) }
    });
    let norms = Norm { weight: &norm.device, epsilon: EPSILON };
    let poison = vec![T::narrowed(f32::NAN); batch * rows];
    let (mut plain, mut gated) = (bench.device.upload(&poison)?, bench.device.upload(&poison)?);
    let mut added = bench.device.upload(&narrow::<T>(&before.host))?;
    let shape = [rows as u32, width as u32];
    step.norm_linear(stream, &x.device, &norms, &linear, &mut plain, shape)?;
    step.norm_gate_up(stream, &x.device, &norms, &gates, &mut gated, shape)?;
    step.linear_add(stream, &x.device, &linear, &mut added, shape)?;

    let mut expected = [Vec::new(), Vec::new(), Vec::new()];
    for (vector, before) in x.host.chunks_exact(width).zip(before.host.chunks_exact(rows)) {
        let normed = cpu::norm::<T>(vector, &norm.host, EPSILON);
        let (one, both) = (has_bias.then_some(&bias.host[..rows]), has_bias.then_some(&bias.host[..]));
        expected[0].extend(cpu::norm_linear::<T>(&normed, &once.host, one));
        expected[1].extend(cpu::norm_gate_up::<T>(&normed, &twice.host, both));
        expected[2].extend(cpu::linear_add::<T>(vector, &once.host, one, before));
    }
    let found = [plain.read()?, gated.read()?, added.read()?];
    Ok(found.iter().zip(&expected).map(|(found, expected)| worst_error(&widen(found), expected)).fold(0.0, f64::max))
}
