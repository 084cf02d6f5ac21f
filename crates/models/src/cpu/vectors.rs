//! Vectorized loops over rows, and elementary functions for them.
//!
//! Sums are accumulated in lanes, so the compiler can vectorize them without changing the result.

use super::number::Number;

/// The number of lanes of a sum.
const LANES: usize = 64;

/// Runs a loop compiled for the widest vectors of the processor. The loop is inlined: as a call, it would be compiled for the
/// baseline.
macro_rules! vectorized {
    ($work:expr) => {
        pulp::Arch::new().dispatch(
            #[inline(always)]
            || $work,
        )
    };
}

pub(crate) use vectorized;

#[inline(always)]
fn sum_pairs<A: Copy, B: Copy>(a: &[A], b: &[B], one: impl Fn(A, B) -> f32) -> f32 {
    let mut sums = [0.0; LANES];
    let (a_blocks, a_rest) = a.as_chunks::<LANES>();
    let (b_blocks, b_rest) = b.as_chunks::<LANES>();
    for (a, b) in a_blocks.iter().zip(b_blocks) {
        for lane in 0..LANES {
            sums[lane] += one(a[lane], b[lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] += one(*a, *b);
    }
    add_lanes(sums)
}

#[inline(always)]
fn add_lanes(mut sums: [f32; LANES]) -> f32 {
    let mut half = LANES / 2;
    while half > 0 {
        for lane in 0..half {
            sums[lane] += sums[lane + half];
        }
        half /= 2;
    }
    sums[0]
}

#[inline(always)]
pub fn dot<A: Number, B: Number>(a: &[A], b: &[B]) -> f32 {
    sum_pairs(a, b, |a, b| a.wide() * b.wide())
}

#[inline(always)]
pub fn sum_of_powers<T: Number>(numbers: &[T], top: f32) -> f32 {
    sum_pairs(numbers, numbers, |number, _| exp(number.wide() - top))
}

/// The largest number, ignoring NaNs.
#[inline(always)]
pub fn largest<T: Number>(numbers: &[T]) -> f32 {
    let mut best = [f32::NEG_INFINITY; LANES];
    let (blocks, rest) = numbers.as_chunks::<LANES>();
    let larger = |best: f32, number: T| if number.wide() > best { number.wide() } else { best };
    for block in blocks {
        for lane in 0..LANES {
            best[lane] = larger(best[lane], block[lane]);
        }
    }
    for (best, number) in best.iter_mut().zip(rest) {
        *best = larger(*best, *number);
    }
    best.into_iter().fold(f32::NEG_INFINITY, f32::max)
}

#[inline(always)]
pub fn powers_from<T: Number>(numbers: &mut [T], top: f32) -> f32 {
    let mut sums = [0.0; LANES];
    let one = |number: &mut T, sum: &mut f32| {
        let power = exp(number.wide() - top);
        *number = T::narrow(power);
        *sum += power;
    };
    let (blocks, rest) = numbers.as_chunks_mut::<LANES>();
    for block in blocks {
        for lane in 0..LANES {
            one(&mut block[lane], &mut sums[lane]);
        }
    }
    for (number, sum) in rest.iter_mut().zip(&mut sums) {
        one(number, sum);
    }
    add_lanes(sums)
}

#[inline(always)]
pub fn softmax<T: Number>(scores: &mut [T]) {
    let top = largest(scores);
    let share = 1.0 / powers_from(scores, top);
    for score in scores {
        *score = T::narrow(score.wide() * share);
    }
}

/// `e^number`, accurate to the last bit or two. `f32::exp` is not vectorized.
///
/// A number is split into a multiple of ln 2, which goes into the exponent, and a rest below ln 2 / 2 for the Taylor series.
#[inline(always)]
pub fn exp(number: f32) -> f32 {
    /// Adding this rounds to an integer and leaves it in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    /// ln 2 in two parts; products of the first with small integers are exact.
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let number = if number < -87.3 { -87.3 } else { number };
    let number = if number > 88.3 { 88.3 } else { number };
    let rounded = number * std::f32::consts::LOG2_E + ROUND;
    let whole = rounded - ROUND;
    let rest = number - whole * LN_2_HIGH - whole * LN_2_LOW;
    let terms = [1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0];
    let series = terms.into_iter().fold(1.0 / 5040.0, |sum, term| sum * rest + term);
    let power = series * rest + 1.0;
    f32::from_bits(power.to_bits().wrapping_add(rounded.to_bits() << 23))
}

/// `number / (1 + e^-number)`.
#[inline(always)]
pub fn silu(number: f32) -> f32 {
    number / (1.0 + exp(-number))
}

/// `1 / (1 + e^-number)`.
#[inline(always)]
pub fn sigmoid(number: f32) -> f32 {
    1.0 / (1.0 + exp(-number))
}

/// `number * (1 + erf(number / sqrt(2))) / 2`: exact GELU, not the tanh approximation.
#[inline(always)]
pub fn gelu(number: f32) -> f32 {
    0.5 * number * (1.0 + erf(number * std::f32::consts::FRAC_1_SQRT_2))
}

/// The tanh approximation of GELU, with `(1 + tanh(z)) / 2` as `sigmoid(2 z)`.
#[inline(always)]
pub fn gelu_tanh(number: f32) -> f32 {
    const TWICE_ROOT_OF_2_OVER_PI: f32 = 1.595_769;
    number * sigmoid(TWICE_ROOT_OF_2_OVER_PI * (number + 0.044_715 * number * number * number))
}

/// The error function, accurate to 3e-7.
///
/// `(1 - erf(x)) / e^-x²` is smooth in `t = 1 / (1 + 0.4 x)`. The polynomial was fitted at Chebyshev nodes from 0 to 4.2;
/// beyond, the exponential makes the error vanish.
#[inline(always)]
fn erf(number: f32) -> f32 {
    const FITTED: [f32; 7] =
        [-0.419_789_14, 0.736_445_07, -0.432_714_28, 0.447_903_28, 0.124_326_2, 0.239_705_34, 0.224_659_73];
    let size = number.abs();
    let t = 1.0 / (1.0 + 0.4 * size);
    let fitted = FITTED.into_iter().fold(0.079_463_83, |sum, term| sum * t + term);
    (1.0 - t * fitted * exp(-size * size)).copysign(number)
}

/// The squared sine, accurate to a few bits below 2^13. `f32::sin` is not vectorized.
///
/// Its period is pi, which is subtracted in three parts whose products with small integers are exact.
#[inline(always)]
pub fn sine_squared(number: f32) -> f32 {
    /// Adding this rounds to an integer.
    const ROUND: f32 = 12_582_912.0;
    const PI: [f32; 3] = [3.140_625, 9.675_026e-4, 1.509_958e-7];
    let turns = (number * std::f32::consts::FRAC_1_PI + ROUND) - ROUND;
    let rest = PI.into_iter().fold(number, |rest, part| rest - turns * part);
    let square = rest * rest;
    let terms = [1.0 / 362_880.0, -1.0 / 5040.0, 1.0 / 120.0, -1.0 / 6.0, 1.0];
    let series = terms.into_iter().fold(-1.0 / 39_916_800.0, |sum, term| sum * square + term);
    let sine = rest * series;
    sine * sine
}

/// Argmax. Ties go to the lowest index; NaNs are ignored; without any number it is 0.
pub fn index_of_largest<T: Number>(numbers: &[T]) -> usize {
    vectorized!({
        let top = largest(numbers);
        numbers.iter().position(|number| number.wide() == top).unwrap_or(0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exp_matches_the_standard_library() {
        for step in -8700..=8800 {
            let number = step as f32 / 100.0;
            let (ours, theirs) = (exp(number), f64::from(number).exp());
            assert!((f64::from(ours) / theirs - 1.0).abs() < 3e-7, "e^{number}: {ours} is not {theirs}");
        }
        assert!(exp(f32::NEG_INFINITY) < 2e-38);
        assert!(exp(f32::NAN).is_nan());
        assert_eq!(exp(0.0), 1.0);
    }

    /// The error function by its series, whose terms are all positive.
    fn erf_by_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..300 {
            term *= 2.0 * x * x / f64::from(2 * n + 1);
            sum += term;
        }
        2.0 / std::f64::consts::PI.sqrt() * (-x * x).exp() * sum
    }

    #[test]
    fn erf_matches_its_series() {
        for step in -600..=600 {
            let number = step as f32 / 100.0;
            let (ours, exact) = (erf(number), erf_by_series(f64::from(number)));
            assert!((f64::from(ours) - exact).abs() < 3e-7, "erf({number}): {ours} is not {exact}");
        }
        assert_eq!((erf(30.0), erf(-30.0)), (1.0, -1.0));
    }

    #[test]
    fn gelu_and_sigmoid_match_known_values() {
        // As torch gives them in f64.
        for (number, expected) in [(1.0, 0.841_344_7), (-1.0, -0.158_655_3), (3.0, 2.995_950_3), (0.0, 0.0)] {
            assert!((gelu(number) - expected).abs() < 5e-7, "gelu({number})");
        }
        for (number, expected) in [(1.0, 0.841_192), (-1.0, -0.158_808), (3.0, 2.996_362_6), (0.0, 0.0)] {
            assert!((gelu_tanh(number) - expected).abs() < 5e-7, "gelu_tanh({number})");
        }
        assert!((sigmoid(2.0) - 0.880_797_1).abs() < 2e-7);
        assert!(gelu(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
        assert!((gelu(-40.0), sigmoid(-200.0)) >= (-1e-5, 0.0));
    }

    #[test]
    fn sine_squared_matches_the_standard_library() {
        let numbers = (-20_000..20_000).map(|step| step as f32 / 100.0).chain([1e3, -5432.1, 8000.5, 0.0]);
        for number in numbers {
            let (ours, exact) = (sine_squared(number), f64::from(number).sin().powi(2));
            assert!((f64::from(ours) - exact).abs() < 5e-7, "at {number}: {ours} is not {exact}");
        }
        assert!(sine_squared(f32::NAN).is_nan() && sine_squared(f32::INFINITY).is_nan());
    }

    #[test]
    fn sums_in_lanes_match_sequential_sums() {
        for length in [0, 1, 63, 64, 65, 200] {
            let numbers: Vec<f32> = (0..length).map(|at| (at % 7) as f32).collect();
            let expected: f32 = numbers.iter().map(|number| number * number).sum();
            assert_eq!(dot(&numbers, &numbers), expected);
        }
    }

    #[test]
    fn argmax_prefers_the_lowest_index_and_ignores_nans() {
        let mut numbers = vec![0.0; 100];
        numbers[70] = 5.0;
        numbers[71] = 5.0;
        numbers[2] = f32::NAN;
        assert_eq!(index_of_largest(&numbers), 70);
        assert_eq!(index_of_largest(&[f32::NAN, f32::NEG_INFINITY, -1.0]), 2);
        assert_eq!(index_of_largest(&[f32::NAN, f32::NAN]), 0);
        assert_eq!(index_of_largest(&[f32::NAN, f32::NEG_INFINITY]), 1);
        assert_eq!(index_of_largest::<f32>(&[]), 0);
    }

    #[test]
    fn weights_add_up_to_one() {
        let mut scores: Vec<f32> = (0..100).map(|at| (at as f32 * 0.37).sin() * 20.0).collect();
        let expected: Vec<f64> = scores.iter().map(|score| f64::from(*score).exp()).collect();
        let sum: f64 = expected.iter().sum();
        softmax(&mut scores);
        for (score, expected) in scores.iter().zip(expected) {
            assert!((f64::from(*score) - expected / sum).abs() < 1e-6);
        }
    }
}
