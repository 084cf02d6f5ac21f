//! Matrix products compared with the CPU, and their speed.

use half::{bf16, f16};
use laptime_cuda::{Blas, CudaError, Element, Sizes};

use crate::{Answer, Bench, expect, reference, seconds};

/// Multiplies odd sizes, plainly and with `b` transposed, and gives the worst error.
fn worst_error<T: Element>(
    bench: &Bench,
    narrow: impl Fn(f32) -> T,
    widen: impl Fn(T) -> f32,
) -> Result<f64, CudaError> {
    let [m, n, k] = [72_usize, 136, 264];
    let blas = Blas::new(&bench.device)?;
    // Inputs are what the type can hold, so that only the product can be wrong.
    let rounded = |values: Vec<f32>| values.into_iter().map(|value| widen(narrow(value))).collect::<Vec<f32>>();
    let (a, b) = (rounded(reference::noise(m * k, 3)), rounded(reference::noise(k * n, 4)));
    let expected = reference::matmul(&a, &b, [m, n, k]);
    let upload = |values: &[f32]| {
        let narrowed: Vec<T> = values.iter().map(|value| narrow(*value)).collect();
        bench.device.upload(&narrowed)
    };
    let mut worst = 0_f64;
    for b_is_transposed in [false, true] {
        let laid_out = if b_is_transposed { reference::transpose(&b, [k, n]) } else { b.clone() };
        let (left, right) = (upload(&a)?, upload(&laid_out)?);
        let mut out = bench.device.allocate::<T>(m * n)?;
        let sizes = Sizes { m: m as u32, n: n as u32, k: k as u32, b_is_transposed };
        blas.multiply([&left, &right], &mut out, sizes)?;
        let found: Vec<f32> = out.read()?.into_iter().map(&widen).collect();
        worst = worst.max(reference::worst_error(&found, &expected));
    }
    Ok(worst)
}

fn judge(worst: f64, most: f64) -> Answer {
    expect(worst < most, || format!("worst error {worst:.1e}, at most {most:.0e} is right"))?;
    Ok(format!("worst error {worst:.1e}, plain and transposed"))
}

/// TF32 would be wrong by about 1e-4.
pub fn f32_product(bench: &Bench) -> Answer {
    judge(worst_error(bench, |value| value, |value| value)?, 5e-6)
}

pub fn bf16_product(bench: &Bench) -> Answer {
    judge(worst_error(bench, bf16::from_f32, bf16::to_f32)?, 8e-3)
}

pub fn f16_product(bench: &Bench) -> Answer {
    judge(worst_error(bench, f16::from_f32, f16::to_f32)?, 1e-3)
}

pub fn speed(bench: &Bench) -> Answer {
    let bf16 = teraflops::<bf16>(bench, 8192, bf16::from_f32)?;
    let f32 = teraflops::<f32>(bench, 4096, |value| value)?;
    expect(bf16 > f32 && f32 > 0.0, || format!("bf16 {bf16:.0}, f32 {f32:.0} TFLOP/s"))?;
    Ok(format!("bf16 8192 cubed {bf16:.0} TFLOP/s, f32 4096 cubed {f32:.1} TFLOP/s"))
}

fn teraflops<T: Element>(bench: &Bench, size: u32, narrow: impl Fn(f32) -> T) -> Result<f64, CudaError> {
    const PRODUCTS: u32 = 10;
    let blas = Blas::new(&bench.device)?;
    let count = size as usize * size as usize;
    let noise: Vec<T> = reference::noise(count, 5).into_iter().map(narrow).collect();
    let (a, b) = (bench.device.upload(&noise)?, bench.device.upload(&noise)?);
    let mut c = bench.device.allocate::<T>(count)?;
    let sizes = Sizes { m: size, n: size, k: size, b_is_transposed: false };
    let taken = seconds(5, || {
        for _ in 0..PRODUCTS {
            blas.multiply([&a, &b], &mut c, sizes)?;
        }
        bench.device.synchronise()
    })?;
    Ok(2.0 * f64::from(size).powi(3) * f64::from(PRODUCTS) / taken / 1e12)
}
