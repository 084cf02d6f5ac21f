//! Checks of outputs, shared by workloads.

use laptime_models::Dtype;

/// The tolerance for logits, relative to the largest: rounding of a few layers, far below the effect of a wrong cache.
fn tolerance(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 1e-3,
        Dtype::F16 => 3e-2,
        Dtype::Bf16 | Dtype::Fp8 => 1e-1,
    }
}

/// Refuses NaN and infinity; `before` is the number of values that were checked earlier.
pub fn check_finite(what: &str, numbers: &[f32], before: usize) -> anyhow::Result<()> {
    match numbers.iter().position(|number| !number.is_finite()) {
        None => Ok(()),
        Some(at) => anyhow::bail!("{what} {} is {}: the weights may contain NaN or infinity", before + at, numbers[at]),
    }
}

/// Compares the logits of two runs; the error is the first difference: its position and both values.
pub fn check_close(one: &[f32], other: &[f32], dtype: Dtype) -> Result<(), (usize, [f32; 2])> {
    let largest = other.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    let allowed = tolerance(dtype) * largest;
    let differs = |(one, other): (&f32, &f32)| (one - other).abs() > allowed || (one - other).is_nan();
    match one.iter().zip(other).position(differs) {
        None => Ok(()),
        Some(at) => Err((at, [one[at], other[at]])),
    }
}
