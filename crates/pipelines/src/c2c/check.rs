//! Checks the logits of a prompt: finite, and the same in both orders of computation.

use anyhow::ensure;
use laptime_models::Dtype;

/// The tolerance for logits, relative to the largest: rounding of a few layers.
fn tolerance(dtype: Dtype) -> f32 {
    match dtype {
        Dtype::F32 => 1e-3,
        Dtype::F16 => 3e-2,
        Dtype::Bf16 => 1e-1,
    }
}

/// Refuses logits that are not finite, or not those of the other order.
pub fn check_logits(own: &[f32], other: &[f32], dtype: Dtype) -> anyhow::Result<()> {
    if let Some(at) = own.iter().position(|logit| !logit.is_finite()) {
        anyhow::bail!("logit {at} is {}: the weights may contain NaN or infinity", own[at]);
    }
    ensure!(own.len() == other.len(), "there are {} logits, and {} in the other order", own.len(), other.len());
    let largest = own.iter().fold(0.0_f32, |largest, logit| largest.max(logit.abs()));
    let allowed = tolerance(dtype) * largest;
    let differs = |(one, other): (&f32, &f32)| (one - other).abs() > allowed || (one - other).is_nan();
    match own.iter().zip(other).position(differs) {
        None => Ok(()),
        Some(at) => anyhow::bail!(
            "fusing is wrong: logit {at} is {} in the requested order and {} in the other one",
            own[at],
            other[at]
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logits_that_are_apart_or_no_numbers_are_refused_with_their_place() {
        check_logits(&[1.0, 2.0], &[1.0, 2.001], Dtype::F32).unwrap();
        let shown = |own: &[f32], other: &[f32]| check_logits(own, other, Dtype::F32).unwrap_err().to_string();
        let expected = "fusing is wrong: logit 1 is 2 in the requested order and 2.1 in the other one";
        assert_eq!(shown(&[1.0, 2.0], &[1.0, 2.1]), expected);
        assert!(shown(&[f32::NAN], &[0.0]).starts_with("logit 0 is NaN"));
        assert_eq!(shown(&[1.0], &[]), "there are 1 logits, and 0 in the other order");
    }
}
