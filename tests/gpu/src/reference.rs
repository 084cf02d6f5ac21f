//! CPU references of the kernels and of matrix products.

pub mod decode;
pub mod fp8;
pub mod nn;

/// The sum of all values, wrapping around.
pub fn sum(values: &[u32]) -> u64 {
    values.iter().fold(0, |sum: u64, value| sum.wrapping_add(u64::from(*value)))
}

/// The product of `a` (m by k) and `b` (k by n), row-major, added up in double precision.
pub fn matmul(a: &[f32], b: &[f32], [m, n, k]: [usize; 3]) -> Vec<f32> {
    let mut c = Vec::with_capacity(m * n);
    let mut row = vec![0_f64; n];
    for a_row in a.chunks_exact(k.max(1)).take(m) {
        row.fill(0.0);
        for (left, b_row) in a_row.iter().zip(b.chunks_exact(n.max(1))) {
            for (sum, right) in row.iter_mut().zip(b_row) {
                *sum += f64::from(*left) * f64::from(*right);
            }
        }
        c.extend(row.iter().map(|sum| *sum as f32));
    }
    c
}

/// The transpose of a row-major matrix.
pub fn transpose(matrix: &[f32], [rows, columns]: [usize; 2]) -> Vec<f32> {
    (0..columns).flat_map(|column| (0..rows).map(move |row| matrix[row * columns + column])).collect()
}

/// The largest difference of two results, relative to the largest expected value.
///
/// Infinite if the lengths differ or a value is NaN, so that no threshold accepts it.
pub fn worst_error(found: &[f32], expected: &[f32]) -> f64 {
    if found.len() != expected.len() || found.iter().chain(expected).any(|value| !value.is_finite()) {
        return f64::INFINITY;
    }
    let largest = expected.iter().fold(f64::MIN_POSITIVE, |most, value| most.max(f64::from(value.abs())));
    let differences = found.iter().zip(expected).map(|(a, b)| (f64::from(*a) - f64::from(*b)).abs());
    differences.fold(0.0, f64::max) / largest
}

/// Pseudorandom values between -1 and 1, the same in every run.
pub fn noise(length: usize, seed: u64) -> Vec<f32> {
    let mut state = seed;
    let next = || {
        // SplitMix64.
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    std::iter::repeat_with(next).take(length).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_product_of_two_small_matrices_is_as_by_hand() {
        let (a, b) = ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [7.0, 8.0, 9.0, 10.0, 11.0, 12.0]);
        assert_eq!(matmul(&a, &b, [2, 2, 3]), [58.0, 64.0, 139.0, 154.0]);
    }

    #[test]
    fn a_transpose_turns_rows_into_columns() {
        assert_eq!(transpose(&[1.0, 2.0, 3.0, 4.0, 5.0, 6.0], [2, 3]), [1.0, 4.0, 2.0, 5.0, 3.0, 6.0]);
    }

    #[test]
    fn an_error_is_a_share_of_the_largest_value() {
        assert_eq!(worst_error(&[1.0, 4.0], &[1.5, 4.0]), 0.125);
        assert_eq!(worst_error(&[1.0], &[1.0, 2.0]), f64::INFINITY);
        assert_eq!(worst_error(&[f32::NAN], &[1.0]), f64::INFINITY);
    }

    #[test]
    fn a_sum_wraps_around() {
        assert_eq!(sum(&[u32::MAX, 1, 2]), (1 << 32) + 2);
    }

    #[test]
    fn noise_is_the_same_each_time_and_within_its_bounds() {
        let values = noise(10_000, 1);
        assert_eq!(values, noise(10_000, 1));
        assert_ne!(values, noise(10_000, 2));
        assert!(values.iter().all(|value| (-1.0..=1.0).contains(value)));
        let mean = values.iter().sum::<f32>() / 10_000.0;
        assert!(mean.abs() < 0.05, "{mean}");
    }
}
