//! Plain CPU versions of the step kernels.
//!
//! Values are f32 that the dtype `T` can represent; sums are computed in f64, and rounded where a kernel stores.

pub mod diffusion;
pub mod sample;

use laptime_cuda::Element;

/// A value rounded to `T`.
pub fn rounded<T: Element>(value: f64) -> f32 {
    T::narrowed(value as f32).widened()
}

/// A vector divided by the root of its mean square, and multiplied with weights.
pub fn norm<T: Element>(x: &[f32], weight: &[f32], epsilon: f32) -> Vec<f32> {
    let square: f64 = x.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = 1.0 / (square / x.len().max(1) as f64 + f64::from(epsilon)).sqrt();
    x.iter().zip(weight).map(|(value, weight)| rounded::<T>(f64::from(*value) * scale * f64::from(*weight))).collect()
}

/// The product of weights `[rows, x.len()]` with one vector, plus a bias where there is one. It is not rounded.
pub fn linear(x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f64> {
    let dot = |row: &[f32]| row.iter().zip(x).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let rows = weight.chunks_exact(x.len().max(1)).enumerate();
    rows.map(|(index, row)| dot(row) + bias.map_or(0.0, |bias| f64::from(bias[index]))).collect()
}

/// One vector of [`Step::norm_linear`](laptime_cuda::decode::Step::norm_linear): `x` is normed already.
pub fn norm_linear<T: Element>(x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    linear(x, weight, bias).into_iter().map(rounded::<T>).collect()
}

/// One vector of [`Step::linear_add`](laptime_cuda::decode::Step::linear_add).
pub fn linear_add<T: Element>(a: &[f32], weight: &[f32], bias: Option<&[f32]>, x: &[f32]) -> Vec<f32> {
    let sums = linear(a, weight, bias);
    sums.into_iter().zip(x).map(|(sum, x)| rounded::<T>(sum + f64::from(*x))).collect()
}

/// One vector of [`Step::norm_gate_up`](laptime_cuda::decode::Step::norm_gate_up): `x` is normed already.
pub fn norm_gate_up<T: Element>(x: &[f32], weight: &[f32], bias: Option<&[f32]>) -> Vec<f32> {
    let both = norm_linear::<T>(x, weight, bias);
    let (gate, up) = both.split_at(both.len() / 2);
    let silu = |gate: f64| gate / (1.0 + (-gate).exp());
    gate.iter().zip(up).map(|(gate, up)| rounded::<T>(silu(f64::from(*gate)) * f64::from(*up))).collect()
}

/// Cosines and sines of every position, `[positions, head_dim / 2]` each.
pub fn rotation(positions: usize, head_dim: usize, base: f64) -> [Vec<f32>; 2] {
    let angles = (0..positions).flat_map(|position| {
        (0..head_dim / 2).map(move |i| position as f64 / base.powf(2.0 * i as f64 / head_dim as f64))
    });
    angles.map(|angle| (angle.cos() as f32, angle.sin() as f32)).unzip().into()
}

/// Applies RoPE to one head.
pub fn rotate(head: &[f64], [cosines, sines]: [&[f32]; 2], in_pairs: bool) -> Vec<f64> {
    let half = head.len() / 2;
    let mut turned = head.to_vec();
    for i in 0..half {
        let (first, second) = if in_pairs { (2 * i, 2 * i + 1) } else { (i, i + half) };
        let (cosine, sine) = (f64::from(cosines[i]), f64::from(sines[i]));
        turned[first] = head[first] * cosine - head[second] * sine;
        turned[second] = head[second] * cosine + head[first] * sine;
    }
    turned
}

/// One head after the optional norm, RoPE and rounding.
pub fn prepared<T: Element>(
    head: &[f32],
    norm: Option<&[f32]>,
    epsilon: f32,
    tables: [&[f32]; 2],
    in_pairs: bool,
) -> Vec<f32> {
    let square: f64 = head.iter().map(|value| f64::from(*value).powi(2)).sum();
    let scale = 1.0 / (square / head.len().max(1) as f64 + f64::from(epsilon)).sqrt();
    let normed =
        |(index, value): (usize, &f32)| f64::from(*value) * norm.map_or(1.0, |weight| scale * f64::from(weight[index]));
    let values: Vec<f64> = head.iter().enumerate().map(normed).collect();
    rotate(&values, tables, in_pairs).into_iter().map(rounded::<T>).collect()
}

/// Attention of one query head over keys and values `[positions, query.len()]`.
pub fn attend<T: Element>(query: &[f32], keys: &[f32], values: &[f32]) -> Vec<f32> {
    let width = query.len().max(1);
    let dot = |key: &[f32]| key.iter().zip(query).map(|(a, b)| f64::from(*a) * f64::from(*b)).sum::<f64>();
    let scores: Vec<f64> = keys.chunks_exact(width).map(|key| dot(key) / (width as f64).sqrt()).collect();
    let most = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    let weights: Vec<f64> = scores.iter().map(|score| (score - most).exp()).collect();
    let total: f64 = weights.iter().sum();
    let column =
        |i: usize| weights.iter().zip(values.chunks_exact(width)).map(|(w, value)| w * f64::from(value[i])).sum();
    (0..query.len()).map(column).map(|sum: f64| rounded::<T>(sum / total)).collect()
}

/// The index of the largest value: the first of equals, never a NaN, and zero if there is none.
pub fn argmax(values: &[f32]) -> u32 {
    let better = |best: Option<usize>, index: usize| match best {
        _ if values[index].is_nan() => best,
        Some(place) if values[place] >= values[index] => best,
        _ => Some(index),
    };
    (0..values.len()).fold(None, better).unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use half::bf16;

    use super::*;

    #[test]
    fn a_norm_makes_the_mean_square_one() {
        assert_eq!(norm::<f32>(&[3.0, -3.0], &[1.0, 2.0], 0.0), [1.0, -2.0]);
        assert_eq!(norm::<f32>(&[0.0, 0.0], &[1.0, 2.0], 1e-6), [0.0, 0.0]);
    }

    #[test]
    fn products_are_as_by_hand() {
        let (x, weight) = ([1.0, 2.0], [3.0, 4.0, 5.0, 6.0]);
        assert_eq!(norm_linear::<f32>(&x, &weight, None), [11.0, 17.0]);
        assert_eq!(norm_linear::<f32>(&x, &weight, Some(&[0.5, -1.0])), [11.5, 16.0]);
        assert_eq!(linear_add::<f32>(&x, &weight, None, &[100.0, 200.0]), [111.0, 217.0]);
        // A bf16 holds eight bits.
        assert_eq!(norm_linear::<bf16>(&[1.0], &[257.0], None), [256.0]);
    }

    #[test]
    fn a_gate_of_zero_lets_nothing_through_and_a_large_one_everything() {
        assert_eq!(norm_gate_up::<f32>(&[1.0], &[0.0, 7.0], None), [0.0]);
        assert_eq!(norm_gate_up::<f32>(&[1.0], &[50.0, 7.0], None), [350.0]);
    }

    #[test]
    fn a_quarter_turn_swaps_the_two_of_a_pair() {
        let (cosines, sines) = ([0.0, 1.0], [1.0, 0.0]);
        assert_eq!(rotate(&[1.0, 2.0, 3.0, 4.0], [&cosines, &sines], false), [-3.0, 2.0, 1.0, 4.0]);
        assert_eq!(rotate(&[1.0, 2.0, 3.0, 4.0], [&cosines, &sines], true), [-2.0, 1.0, 3.0, 4.0]);
    }

    #[test]
    fn the_first_position_is_not_turned() {
        let [cosines, sines] = rotation(2, 4, 10_000.0);
        assert_eq!((&cosines[..2], &sines[..2]), (&[1.0, 1.0][..], &[0.0, 0.0][..]));
        assert_eq!(cosines[2], 1_f64.cos() as f32);
        assert_eq!(sines[3], 0.01_f64.sin() as f32);
    }

    #[test]
    fn attention_to_equal_keys_is_the_mean_of_values() {
        assert_eq!(attend::<f32>(&[1.0, 1.0], &[2.0, 0.0, 0.0, 2.0], &[1.0, 2.0, 3.0, 6.0]), [2.0, 4.0]);
        let far = attend::<f32>(&[100.0, 0.0], &[100.0, 0.0, -100.0, 0.0], &[1.0, 2.0, 3.0, 6.0]);
        assert_eq!(far, [1.0, 2.0]);
    }

    #[test]
    fn a_head_is_normed_before_it_is_turned() {
        let tables: [&[f32]; 2] = [&[0.0], &[1.0]];
        assert_eq!(prepared::<f32>(&[3.0, 3.0], Some(&[1.0, 2.0]), 0.0, tables, false), [-2.0, 1.0]);
        assert_eq!(prepared::<f32>(&[3.0, 4.0], None, 0.0, tables, false), [-4.0, 3.0]);
    }

    #[test]
    fn the_first_of_the_largest_is_chosen_and_never_a_nan() {
        assert_eq!(argmax(&[1.0, 5.0, f32::NAN, 5.0]), 1);
        assert_eq!(argmax(&[f32::NAN, -1.0]), 1);
        assert_eq!(argmax(&[f32::NAN, f32::NAN]), 0);
        assert_eq!(argmax(&[-0.0, 0.0]), 0);
        assert_eq!(argmax(&[]), 0);
    }
}
