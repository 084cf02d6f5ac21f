//! The reference of a matrix product: plain sums in f64, and the tolerance for rounding.

use anyhow::ensure;
use laptime_stats::Rng;

use crate::product::{BLOCK_DEPTH, Multiplied};

/// Products up to this size are checked in every entry.
const ALL_UP_TO: usize = 64;

/// The maximum number of entries that are checked of larger products.
const MOST_ENTRIES: usize = 1024;

/// Checks a product: every entry of a small one, or one entry in each row and column of a larger one, up to 1024.
pub fn check_product<T: Multiplied>(size: usize, a: &[T], b: &[T], c: &[T]) -> anyhow::Result<()> {
    for (row, column) in entries(size) {
        let should = Expected::of(size, a, b, row, column);
        let is = c[row * size + column].to_f64();
        let tolerance = should.tolerance::<T>(size);
        // NaN is never within the tolerance.
        ensure!(
            (is - should.value).abs() <= tolerance,
            "the product is wrong: row {row}, column {column} is {is}, not {} within {tolerance:.1e}",
            should.value
        );
    }
    Ok(())
}

/// The entries to check, as rows and columns.
fn entries(size: usize) -> Vec<(usize, usize)> {
    if size <= ALL_UP_TO {
        return (0..size * size).map(|at| (at / size, at % size)).collect();
    }
    let mut rng = Rng::new(size as u64);
    let mut columns: Vec<usize> = (0..size).collect();
    rng.shuffle(&mut columns);
    let step = size.div_ceil(MOST_ENTRIES);
    // From the last row backwards: edges are where blocks go wrong.
    columns.into_iter().enumerate().rev().step_by(step).collect()
}

/// An entry of a product as it should be.
struct Expected {
    value: f64,
    /// The sum of the absolute terms, which relative errors refer to.
    terms: f64,
    /// The largest intermediate sum, which is rounded whenever it is stored.
    reach: f64,
}

impl Expected {
    fn of<T: Multiplied>(size: usize, a: &[T], b: &[T], row: usize, column: usize) -> Self {
        let mut expected = Self { value: 0.0, terms: 0.0, reach: 0.0 };
        let down = b[column..].iter().step_by(size);
        for (a, b) in a[row * size..][..size].iter().zip(down) {
            let term = a.to_f64() * b.to_f64();
            expected.value += term;
            expected.terms += term.abs();
            expected.reach = expected.reach.max(expected.value.abs());
        }
        expected
    }

    /// The tolerance for rounding.
    ///
    /// Each of `size` additions errs by at most a rounding of the sum so far, which is below `terms`. In the worst case
    /// all errors add up; errors of random signs grow with the root of their number, and eight times that is never
    /// reached. The reference has the same error in f64. Then the result is stored once for each block of the inner dimension.
    fn tolerance<T: Multiplied>(&self, size: usize) -> f64 {
        let additions = (size as f64).min(8.0 * (size as f64).sqrt());
        let added = additions * (T::SUM_ROUNDING + f64::EPSILON) * self.terms;
        let stores = size.div_ceil(BLOCK_DEPTH) as f64 + 1.0;
        added + stores * (T::ROUNDING * self.reach + T::SMALLEST)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Matrices of ones and their product.
    fn ones(size: usize) -> (Vec<f32>, Vec<f32>) {
        (vec![1.0; size * size], vec![size as f32; size * size])
    }

    #[test]
    fn a_right_product_is_accepted() {
        for size in [1, 64, 65, 1500] {
            let (one, product) = ones(size);
            check_product(size, &one, &one, &product).unwrap();
        }
    }

    #[test]
    fn one_wrong_entry_of_a_small_product_is_refused_wherever_it_is() {
        let (one, product) = ones(5);
        for at in 0..25 {
            let mut wrong = product.clone();
            wrong[at] += 0.01;
            let error = check_product(5, &one, &one, &wrong).unwrap_err().to_string();
            assert!(error.starts_with(&format!("the product is wrong: row {}, column {} is 5.01", at / 5, at % 5)));
        }
    }

    #[test]
    fn a_wrong_row_or_column_of_a_larger_product_is_refused() {
        let size = 200;
        let (one, product) = ones(size);
        for line in [0, 1, 77, 199] {
            let mut row = product.clone();
            row[line * size..][..size].fill(199.0);
            assert!(check_product(size, &one, &one, &row).is_err(), "row {line}");
            let mut column = product.clone();
            column.iter_mut().skip(line).step_by(size).for_each(|entry| *entry = 199.0);
            assert!(check_product(size, &one, &one, &column).is_err(), "column {line}");
        }
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let (one, mut product) = ones(2);
        product[3] = f32::NAN;
        assert!(check_product(2, &one, &one, &product).is_err());
    }

    #[test]
    fn a_term_left_out_is_more_than_the_tolerance() {
        let size = 4096;
        let all = Expected { value: 0.0, terms: size as f64 / 4.0, reach: 64.0 };
        assert!(all.tolerance::<f32>(size) < 0.25);
        assert!(all.tolerance::<f64>(size) < 1e-9);
    }

    #[test]
    fn entries_are_never_more_than_is_cheap() {
        assert_eq!(entries(64).len(), 4096);
        assert_eq!(entries(1024).len(), 1024);
        assert!((512..=1024).contains(&entries(5000).len()));
    }
}
