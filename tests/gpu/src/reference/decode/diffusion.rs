//! Plain CPU versions of the diffusion head kernels.

use laptime_cuda::Element;

use super::{linear, norm, norm_linear, rounded};

/// A vector as adapted products see it: normed, then scaled and shifted. `adapt` begins with shift and scale.
pub fn adapted<T: Element>(x: &[f32], weight: Option<&[f32]>, epsilon: f32, adapt: &[f32]) -> Vec<f32> {
    let ones = vec![1.0; x.len()];
    let normed = norm::<T>(x, weight.unwrap_or(&ones), epsilon);
    let (shift, scale) = adapt[..2 * x.len()].split_at(x.len());
    let one = |((value, shift), scale): ((&f32, &f32), &f32)| {
        rounded::<T>(f64::from(*value) * (1.0 + f64::from(*scale)) + f64::from(*shift))
    };
    normed.iter().zip(shift).zip(scale).map(one).collect()
}

/// One vector of [`AdaLn::add_gated`](laptime_cuda::decode::AdaLn::add_gated).
pub fn add_gated<T: Element>(a: &[f32], weight: &[f32], adapt: &[f32], x: &[f32]) -> Vec<f32> {
    let gate = &adapt[2 * x.len()..];
    let sums = linear(a, weight, None).into_iter().map(rounded::<T>);
    let one = |((sum, x), gate): ((f32, &f32), &f32)| rounded::<T>(f64::from(*x) + f64::from(*gate) * f64::from(sum));
    sums.zip(x).zip(gate).map(one).collect()
}

/// The conditioning of a head at a step: conditions `[2, width]` plus the time embedding, through a silu.
pub fn conditioning<T: Element>(conditions: &[f32], time: &[f32]) -> Vec<f32> {
    let one = |(at, condition): (usize, &f32)| {
        let sum = f64::from(rounded::<T>(f64::from(*condition) + f64::from(time[at % time.len()])));
        rounded::<T>(sum / (1.0 + (-sum).exp()))
    };
    conditions.iter().enumerate().map(one).collect()
}

/// Advances a sample by the velocities `[2, latent]` of both vectors: the next sample, and the estimate of this one.
pub fn advanced(
    by: &[f32; 5],
    scale: f32,
    velocities: &[f32],
    sample: &[f32],
    before: Option<&[f32]>,
) -> [Vec<f32>; 2] {
    let [clean_sample, clean_velocity, next_sample, next_clean, next_before] = *by;
    let (positive, negative) = velocities.split_at(sample.len());
    let step = |at: usize| {
        let velocity = negative[at] + scale * (positive[at] - negative[at]);
        let guess = sample[at] * clean_sample + velocity * clean_velocity;
        let next = sample[at] * next_sample + guess * next_clean;
        let looked_back = before.filter(|_| next_before != 0.0).map_or(0.0, |before| before[at] * next_before);
        (next + looked_back, guess)
    };
    let (next, guesses): (Vec<f32>, Vec<f32>) = (0..sample.len()).map(step).unzip();
    [next, guesses]
}

/// The vector that a step begins with: the rounded sample through weights `[hidden, latent]`.
pub fn entered<T: Element>(sample: &[f32], enter: &[f32]) -> Vec<f32> {
    let sample: Vec<f32> = sample.iter().map(|number| rounded::<T>(f64::from(*number))).collect();
    norm_linear::<T>(&sample, enter, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_vector_is_normed_scaled_and_shifted() {
        assert_eq!(adapted::<f32>(&[3.0, -3.0], None, 0.0, &[0.5, 0.0, 1.0, 0.0]), [2.5, -1.0]);
        assert_eq!(adapted::<f32>(&[3.0, -3.0], Some(&[2.0, 1.0]), 0.0, &[0.0; 4]), [2.0, -1.0]);
    }

    #[test]
    fn what_is_added_goes_through_a_gate() {
        assert_eq!(add_gated::<f32>(&[1.0, 2.0], &[1.0, 1.0], &[9.0, 9.0, 0.5], &[10.0]), [11.5]);
    }

    #[test]
    fn a_step_follows_the_first_vector_away_from_the_second() {
        let by = [1.0, -1.0, 0.5, 2.0, 0.0];
        let [next, guess] = advanced(&by, 2.0, &[3.0, 1.0], &[4.0], None);
        // The velocity is 1 + 2 * (3 - 1).
        assert_eq!((next[0], guess[0]), (0.0, -1.0));
        let looks_back = [1.0, -1.0, 0.5, 2.0, 1.0];
        assert_eq!(advanced(&looks_back, 2.0, &[3.0, 1.0], &[4.0], Some(&[7.0]))[0], [7.0]);
    }

    #[test]
    fn times_are_reported_through_a_silu() {
        assert_eq!(conditioning::<f32>(&[1.0, -1.0], &[-1.0]), [0.0, -2.0 / (1.0 + 2.0_f32.exp())]);
    }
}
