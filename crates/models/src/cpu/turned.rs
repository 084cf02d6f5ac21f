//! What a linear layer does to many rows, by way of the transposed product.
//!
//! Weights are stored a row for each output. The kernel takes a factor as it lies if its numbers of one row are
//! multiplied with numbers of the other that lie side by side, so that here the few tokens are transposed and not the
//! many weights, and what comes out is transposed back.

use super::product::{DEPTH, Factor, PART, Put, Weights, each_part, kernel, widened};
use super::rows::{Rows, RowsMut};
use super::{crew::Crew, number::Number, vectors::vectorized};
use crate::{Dtype, size::product};

/// Numbers that are turned side by side: a vector of the widest.
const LANES: usize = 16;

/// Bytes that a thread needs for a product of this many rows of up to this many numbers with parts of some columns: rows
/// that are transposed, what comes out, and weights that are widened.
pub fn turned_bytes(dtype: Dtype, rows: usize, depth: usize, columns: usize) -> u64 {
    let rows = rows.min(PART).next_multiple_of(LANES);
    let widened = if dtype == Dtype::F32 { 0 } else { product(&[columns, depth.min(DEPTH), 4]) };
    product(&[depth.saturating_add(columns), rows, 4]).saturating_add(widened)
}

#[derive(Default)]
struct Turned {
    first: Option<usize>,
    rows: Vec<f32>,
    out: Vec<f32>,
    block: Vec<f32>,
}

pub fn project_turned<T: Number>(crew: &Crew, x: Rows<'_, T>, weights: Weights<'_, T>, out: &mut [T], put: Put) {
    let sizes = [x.count, weights.count(), x.width];
    each_part(crew, sizes, out, |(turned, block): &mut (Turned, Vec<T>), [row, column], out| {
        turned.take(row, x.part(row, out.count, 0, x.width));
        turned.multiply(out.count, weights.part(column, out.width, block), out, put);
    });
}

impl Turned {
    /// Transposes rows, unless that was done for the last part.
    fn take<T: Number>(&mut self, first: usize, rows: Rows<'_, T>) {
        if self.first == Some(first) {
            return;
        }
        self.first = Some(first);
        let stride = rows.count.next_multiple_of(LANES);
        // Rows that only fill up are zeros.
        self.rows.clear();
        self.rows.resize(rows.width * stride, 0.0);
        for from in (0..rows.count).step_by(LANES) {
            let sources: [&[T]; LANES] = std::array::from_fn(|lane| rows.row((from + lane).min(rows.count - 1)));
            let count = LANES.min(rows.count - from);
            for (at, column) in self.rows.chunks_mut(stride).enumerate() {
                let lanes = column[from..][..count].iter_mut().zip(sources);
                lanes.for_each(|(to, source)| *to = source[at].wide());
            }
        }
    }

    fn multiply<T: Number>(&mut self, height: usize, weights: Rows<'_, T>, out: &mut RowsMut<'_, T>, put: Put) {
        let stride = height.next_multiple_of(LANES);
        let depth = weights.width;
        self.out.clear();
        self.out.resize(weights.count * stride, 0.0);
        let rows = Rows::dense(&self.rows, depth, stride);
        let step = if T::IS_F32 { depth } else { DEPTH };
        for from in (0..depth).step_by(step) {
            let depth = step.min(depth - from);
            let weights = widened(weights.part(0, weights.count, from, depth), &mut self.block);
            let rows = Factor::Plain(rows.part(from, depth, 0, stride));
            let put = Put { scale: put.scale, add: from > 0 };
            kernel(Factor::Plain(weights), rows, &mut RowsMut::dense(&mut self.out, weights.count, stride), put);
        }
        self.put(stride, out, put.add);
    }

    fn put<T: Number>(&self, stride: usize, out: &mut RowsMut<'_, T>, is_added: bool) {
        vectorized!({
            for at in 0..out.count {
                for (to, column) in out.row(at).iter_mut().zip(self.out.chunks(stride)) {
                    let before = if is_added { to.wide() } else { 0.0 };
                    *to = T::narrow(before + column[at]);
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::bf16;

    fn products_are_right<T: Number>(rounding: f64) {
        for (rows, columns, depth) in [(5, 40, 1100), (17, 300, 33), (600, 70, 40)] {
            let number = |at: usize| T::narrow(((at * 7919 + 13) % 31) as f32 / 8.0 - 2.0);
            let numbers = |count: usize| (0..count).map(number).collect::<Vec<T>>();
            let (x, weights) = (numbers(rows * depth), numbers(columns * depth));
            let (x, weights) = (Rows::dense(&x, rows, depth), Rows::dense(&weights, columns, depth));
            for (threads, put) in [(1, Put::OVER), (3, Put { scale: 0.5, add: true })] {
                let mut out = vec![T::narrow(1.0); rows * columns];
                project_turned(&Crew::new(threads).unwrap(), x, Weights::Plain(weights), &mut out, put);
                for (at, out) in out.iter().enumerate() {
                    let pairs = x.row(at / columns).iter().zip(weights.row(at % columns));
                    let sum: f64 = pairs.map(|(x, weight)| f64::from(x.wide()) * f64::from(weight.wide())).sum();
                    let expected = f64::from(put.scale) * sum + if put.add { 1.0 } else { 0.0 };
                    let off = (f64::from(out.wide()) - expected).abs();
                    assert!(
                        off <= rounding * (expected.abs() + 1.0),
                        "{rows} {columns} {depth}: {} {expected}",
                        out.wide()
                    );
                }
            }
        }
    }

    #[test]
    fn the_transposed_product_is_that_of_the_definition() {
        products_are_right::<f32>(1e-5);
        products_are_right::<bf16>(8e-3);
    }
}
