//! The factor of a chain: a rotation, so that values neither grow nor vanish, however long the chain is.

use anyhow::ensure;
use laptime_stats::Rng;

use crate::element::Element;

/// The tolerance in multiples of the expected rounding error.
const SLACK: f64 = 8.0;

/// A matrix in row order that turns the plane of two random directions: the product of two reflections.
pub fn rotation(size: usize, seed: u64) -> Vec<f32> {
    let (v, w) = (direction(size, seed), direction(size, seed + 1));
    let along: f64 = v.iter().zip(&w).map(|(v, w)| v * w).sum();
    let entry = |row: usize, column: usize| {
        let identity = if row == column { 1.0 } else { 0.0 };
        identity - 2.0 * v[row] * v[column] - 2.0 * w[row] * w[column] + 4.0 * along * v[row] * w[column]
    };
    (0..size)
        .flat_map(|row| (0..size).map(move |column| (row, column)))
        .map(|(row, column)| entry(row, column) as f32)
        .collect()
}

/// A random direction of length one.
fn direction(size: usize, seed: u64) -> Vec<f64> {
    let mut rng = Rng::new(seed);
    let numbers: Vec<f64> = (0..size).map(|_| rng.uniform() + 0.1).collect();
    let length = numbers.iter().map(|number| number * number).sum::<f64>().sqrt();
    numbers.into_iter().map(|number| number / length).collect()
}

/// The start of a chain: random numbers between -1 and 1.
pub fn start(size: usize, seed: u64) -> Vec<f32> {
    let mut rng = Rng::new(seed);
    (0..size * size).map(|_| (2.0 * rng.uniform() - 1.0) as f32).collect()
}

/// Checks the first, the last and the middle row of a chain of products against the same in f64.
pub fn check_chain(size: usize, products: usize, start: &[f32], by: &[f32], result: &[f32]) -> anyhow::Result<()> {
    for row in [0, size / 2, size - 1] {
        let should = expected_row(size, products, &start[row * size..][..size], by);
        let length = should.iter().map(|number| number * number).sum::<f64>().sqrt();
        // A rotation keeps lengths: each product errs by a rounding of the whole row in each of its additions.
        let tolerance = SLACK * (size as f64 * products as f64).sqrt() * f32::ROUNDING * length;
        for (column, (&is, should)) in result[row * size..][..size].iter().zip(&should).enumerate() {
            // NaN is never within the tolerance.
            ensure!(
                (f64::from(is) - should).abs() <= tolerance,
                "the chain of {products} products is wrong: row {row}, column {column} is {is}, not {should} within \
                 {tolerance:.1e}"
            );
        }
    }
    Ok(())
}

/// A row of the result: it depends on the same row of the start alone.
fn expected_row(size: usize, products: usize, start: &[f32], by: &[f32]) -> Vec<f64> {
    let mut row: Vec<f64> = start.iter().map(|&number| f64::from(number)).collect();
    for _ in 0..products {
        let mut next = vec![0.0; size];
        for (&factor, line) in row.iter().zip(by.chunks(size)) {
            next.iter_mut().zip(line).for_each(|(sum, &number)| *sum += factor * f64::from(number));
        }
        row = next;
    }
    row
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rotation_keeps_the_length_of_a_row() {
        for size in [1, 2, 7, 64] {
            let row: Vec<f32> = (0..size).map(|at| at as f32 - 1.5).collect();
            let length = |row: &[f64]| row.iter().map(|number| number * number).sum::<f64>().sqrt();
            let before: Vec<f64> = row.iter().map(|&number| f64::from(number)).collect();
            let after = expected_row(size, 200, &row, &rotation(size, 1));
            assert!((length(&before) - length(&after)).abs() < 1e-4 * length(&before), "{size}");
        }
    }

    #[test]
    fn a_chain_with_a_product_too_few_is_refused() {
        let size = 40;
        let (start, by) = (start(size, 3), rotation(size, 1));
        let result = |products: usize| -> Vec<f32> {
            let rows = start.chunks(size).flat_map(|row| expected_row(size, products, row, &by));
            rows.map(|number| number as f32).collect()
        };
        check_chain(size, 20, &start, &by, &result(20)).unwrap();
        let error = check_chain(size, 20, &start, &by, &result(19)).unwrap_err().to_string();
        assert!(error.starts_with("the chain of 20 products is wrong: row 0, column 0 is "), "{error}");
    }
}
