//! Checks of numbers that several workloads make.

use laptime_models::Dtype;

/// The tolerance for logits, relative to the largest: rounding of a few layers, far less than a wrong cache causes.
fn tolerance(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 1e-3,
        Dtype::F16 => 3e-2,
        Dtype::Bf16 | Dtype::Fp8 => 1e-1,
    }
}

/// Refuses numbers that are not finite, with their position behind those that were checked before.
pub fn check_finite(what: &str, numbers: &[f32], before: usize) -> anyhow::Result<()> {
    match numbers.iter().position(|number| !number.is_finite()) {
        None => Ok(()),
        Some(at) => anyhow::bail!("{what} {} is {}: the weights may contain NaN or infinity", before + at, numbers[at]),
    }
}

/// Compares as many logits of two runs as both have; the error is the position and both values where they differ.
pub fn check_close(one: &[f32], other: &[f32], dtype: Dtype) -> Result<(), (usize, [f32; 2])> {
    let largest = other.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    let allowed = tolerance(dtype) * largest;
    let differs = |(one, other): (&f32, &f32)| (one - other).abs() > allowed || (one - other).is_nan();
    match one.iter().zip(other).position(differs) {
        None => Ok(()),
        Some(at) => Err((at, [one[at], other[at]])),
    }
}
