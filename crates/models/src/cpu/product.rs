//! Matrix products, in parts for several threads: with the crate `gemm`, or for few rows, which are limited by memory
//! bandwidth, with a loop over the stored weights.
//!
//! Sums are f32. Half-precision factors are widened block by block, never as a whole.

// The kernels take pointers; this file wraps them in rows.
#![allow(unsafe_code)]

use gemm::Parallelism;

use super::rows::{Rows, RowsMut, Shared};
use super::vectors::vectorized;
use super::{crew::Crew, number::Number, panels::project_panels};
use crate::fp8::Layout;

/// The most rows and columns of a part of a product.
pub const PART: usize = 512;

/// The fewest columns of a part, for kernels to be efficient.
const LEAST_COLUMNS: usize = 32;

/// The elements of a row that are widened at a time.
pub const DEPTH: usize = 512;

/// The elements of the right factor that are widened at a time for few rows: they stay in the L1 cache.
const WIDENED: usize = 4096;

/// Up to this many rows, the weights are read once and multiplied as stored.
pub const FEW: usize = 4;

#[derive(Default)]
pub struct Blocks {
    left: Vec<f32>,
    right: Vec<f32>,
    sum: Vec<f32>,
}

/// Bytes of the workspace that `gemm` keeps per thread: the size of the L2 cache.
pub fn workspace_bytes() -> u64 {
    gemm_common::cache::CACHE_INFO[1].cache_bytes as u64
}

pub const BLOCKS_BYTES: u64 = (4 * (2 * PART * DEPTH + PART * PART)) as u64;

#[derive(Clone, Copy)]
pub struct Factor<'a, T> {
    stored: Rows<'a, T>,
    /// Whether its columns are stored as rows.
    is_transposed: bool,
}

impl<'a, T: Number> Factor<'a, T> {
    pub fn plain(stored: Rows<'a, T>) -> Self {
        Self { stored, is_transposed: false }
    }

    pub fn transposed(stored: Rows<'a, T>) -> Self {
        Self { stored, is_transposed: true }
    }

    fn rows(&self) -> usize {
        if self.is_transposed { self.stored.width } else { self.stored.count }
    }

    fn columns(&self) -> usize {
        if self.is_transposed { self.stored.count } else { self.stored.width }
    }

    fn as_f32(&self) -> Option<Factor<'a, f32>> {
        Some(Factor { stored: self.stored.as_f32()?, is_transposed: self.is_transposed })
    }

    fn part(&self, [row, column]: [usize; 2], [rows, columns]: [usize; 2]) -> Self {
        let stored = match self.is_transposed {
            true => self.stored.part(column, columns, row, rows),
            false => self.stored.part(row, rows, column, columns),
        };
        Self { stored, ..*self }
    }

    fn widened(&self, block: &'a mut Vec<f32>) -> Factor<'a, f32> {
        Factor { stored: widened(self.stored, block), is_transposed: self.is_transposed }
    }
}

#[derive(Clone, Copy)]
pub struct Put {
    pub scale: f32,
    pub add: bool,
}

impl Put {
    /// Overwrites the output.
    pub const OVER: Self = Self { scale: 1.0, add: false };
    /// Adds to the output.
    pub const ONTO: Self = Self { scale: 1.0, add: true };
}

/// The weights of a linear layer, in the dtype or in e4m3.
#[derive(Debug, Clone, Copy)]
pub enum Weights<'a, T> {
    Plain(Rows<'a, T>),
    Fp8(Layout, &'a [u8]),
}

impl<'a, T: Number> Weights<'a, T> {
    pub fn count(&self) -> usize {
        match self {
            Self::Plain(rows) => rows.count,
            Self::Fp8(layout, _) => layout.rows,
        }
    }

    /// Some rows, dequantised into a block if necessary.
    pub fn part<'b>(&self, from: usize, count: usize, block: &'b mut Vec<T>) -> Rows<'b, T>
    where
        'a: 'b,
    {
        let (layout, storage) = match self {
            Self::Plain(rows) => return rows.part(from, count, 0, rows.width),
            Self::Fp8(layout, storage) => (layout, storage),
        };
        block.clear();
        block.reserve_exact(count * layout.width);
        block.resize(count * layout.width, T::default());
        for (at, row) in block.chunks_mut(layout.width).enumerate() {
            layout.read_row(storage, from + at, row);
        }
        Rows::dense(block, count, layout.width)
    }
}

/// A linear layer: multiplies rows with a transposed matrix of weights, on all threads.
pub fn project<T: Number>(crew: &Crew, x: Rows<'_, T>, weights: Rows<'_, T>, out: &mut [T], put: Put) {
    project_stored(crew, x, Weights::Plain(weights), out, put);
}

/// The same with weights that may be in e4m3.
pub fn project_stored<T: Number>(crew: &Crew, x: Rows<'_, T>, weights: Weights<'_, T>, out: &mut [T], put: Put) {
    if x.count > FEW {
        return project_panels(crew, x, weights, out, put);
    }
    let sizes = [x.count, weights.count(), x.width];
    each_part(crew, sizes, out, |(blocks, block): &mut (Blocks, Vec<T>), [row, column], out| {
        let weights = Factor::transposed(weights.part(column, out.width, block));
        multiply(blocks, Factor::plain(x.part(row, out.count, 0, x.width)), weights, out, put);
    });
}

/// Multiplies two matrices on all threads. Panics if they do not fit.
pub fn share<T: Number>(crew: &Crew, left: Factor<'_, T>, right: Factor<'_, T>, out: &mut [T], put: Put) {
    let sizes = [left.rows(), right.columns(), left.columns()];
    each_part(crew, sizes, out, |blocks: &mut Blocks, [row, column], out| {
        let left = left.part([row, 0], [out.count, left.columns()]);
        multiply(blocks, left, right.part([0, column], [right.rows(), out.width]), out, put);
    });
}

/// The columns of a part, fewer if threads would be idle.
pub fn part_columns(threads: usize, [rows, columns]: [usize; 2]) -> usize {
    let each = if rows > FEW { 4 } else { 16 };
    let wanted = threads.saturating_mul(each).div_ceil(rows.div_ceil(PART).max(1));
    let wide = columns.div_ceil(wanted.max(1)).min(PART);
    wide.next_multiple_of(LEAST_COLUMNS).clamp(LEAST_COLUMNS, PART)
}

/// Runs the parts of a product of these rows, columns and depth on all threads, with state per thread. `work` gets the first
/// row and column of a part, and its output.
pub fn each_part<T: Number, S: Default>(
    crew: &Crew,
    [rows, columns, depth]: [usize; 3],
    out: &mut [T],
    work: impl Fn(&mut S, [usize; 2], &mut RowsMut<'_, T>) + Sync,
) {
    let part_columns = part_columns(crew.threads(), [rows, columns]);
    let across = columns.div_ceil(part_columns);
    let touched = (rows * columns).saturating_mul(depth) / 16;
    let out = Shared::new(&mut out[..rows * columns]);
    crew.each_with(touched, 0..rows.div_ceil(PART) * across, S::default, |own, part| {
        let (row, column) = (part / across * PART, part % across * part_columns);
        let (height, width) = (PART.min(rows - row), part_columns.min(columns - column));
        // SAFETY: parts are disjoint, and each is done once.
        let mut out = unsafe { out.rows(row * columns + column, height, width, columns) };
        work(own, [row, column], &mut out);
    });
}

pub fn multiply<X: Number, W: Number, O: Number>(
    blocks: &mut Blocks,
    left: Factor<'_, X>,
    right: Factor<'_, W>,
    out: &mut RowsMut<'_, O>,
    put: Put,
) {
    let fits = left.columns() == right.rows() && left.rows() == out.count && right.columns() == out.width;
    assert!(fits, "the matrices fit");
    if !left.is_transposed && out.count <= FEW {
        return multiply_few(blocks, left.stored, right, out, put);
    }
    if let (Some(left), Some(right), Some(mut out)) = (left.as_f32(), right.as_f32(), out.as_f32()) {
        return kernel(left, right, &mut out, put);
    }
    let Blocks { left: left_block, right: right_block, sum } = blocks;
    sum.clear();
    sum.resize(out.count * out.width, 0.0);
    for from in (0..left.columns()).step_by(DEPTH) {
        let depth = DEPTH.min(left.columns() - from);
        let left = left.part([0, from], [left.rows(), depth]);
        let right = right.part([from, 0], [depth, right.columns()]);
        let (left, right) = (left.widened(left_block), right.widened(right_block));
        let sums = &mut RowsMut::dense(sum, out.count, out.width);
        kernel(left, right, sums, Put { scale: put.scale, add: from > 0 });
    }
    for at in 0..out.count {
        let width = out.width;
        put_row(&sum[at * width..][..width], out.row(at), Put { scale: 1.0, add: put.add });
    }
}

/// Multiplies few rows. Each element of the right factor is read once.
fn multiply_few<X: Number, W: Number, O: Number>(
    blocks: &mut Blocks,
    x: Rows<'_, X>,
    factor: Factor<'_, W>,
    out: &mut RowsMut<'_, O>,
    put: Put,
) {
    let Blocks { left, right, sum } = blocks;
    let x = widened(x, left);
    let width = out.width;
    sum.clear();
    sum.resize(x.count * width, 0.0);
    let rows = factor.stored;
    if factor.is_transposed {
        W::dots(x, rows, sum);
    } else {
        let step = (WIDENED / width.max(1)).max(1);
        for from in (0..rows.count).step_by(step) {
            let some = widened(rows.part(from, step.min(rows.count - from), 0, width), right);
            vectorized!(for depth in 0..some.count {
                for at in 0..x.count {
                    let factor = x.row(at)[from + depth];
                    let sums = sum[at * width..][..width].iter_mut().zip(some.row(depth));
                    sums.for_each(|(sum, number)| *sum += factor * number);
                }
            });
        }
    }
    for at in 0..x.count {
        put_row(&sum[at * width..][..width], out.row(at), put);
    }
}

fn put_row<O: Number>(sums: &[f32], out: &mut [O], put: Put) {
    vectorized!({
        for (out, sum) in out.iter_mut().zip(sums) {
            let before = if put.add { out.wide() } else { 0.0 };
            *out = O::narrow(before + sum * put.scale);
        }
    });
}

pub fn widened<'a, T: Number>(rows: Rows<'a, T>, block: &'a mut Vec<f32>) -> Rows<'a, f32> {
    if let Some(wide) = rows.as_f32() {
        return wide;
    }
    block.reserve_exact((rows.count * rows.width).saturating_sub(block.len()));
    block.resize(rows.count * rows.width, 0.0);
    vectorized!(block.chunks_mut(rows.width.max(1)).enumerate().for_each(|(at, to)| T::widen(rows.row(at), to)));
    Rows::dense(block, rows.count, rows.width)
}

pub fn kernel(left: Factor<'_, f32>, right: Factor<'_, f32>, out: &mut RowsMut<'_, f32>, put: Put) {
    // The first element, and the strides of columns and rows.
    let place = |Factor { stored, is_transposed }: Factor<'_, f32>| {
        let stride = stored.stride as isize;
        let (column, row) = if is_transposed { (stride, 1) } else { (1, stride) };
        (stored.pointer(), column, row)
    };
    let (rows, columns, depth) = (left.rows(), right.columns(), left.columns());
    assert!(depth == right.rows() && rows == out.count && columns == out.width, "the matrices fit");
    let ((left, left_column, left_row), (right, right_column, right_row)) = (place(left), place(right));
    // SAFETY: all three are rows within slices, with these strides, and `out` is borrowed mutably.
    unsafe {
        gemm::gemm(
            rows,
            columns,
            depth,
            out.pointer(),
            1,
            out.stride as isize,
            put.add,
            left,
            left_column,
            left_row,
            right,
            right_column,
            right_row,
            1.0,
            put.scale,
            false,
            false,
            false,
            Parallelism::None,
        );
    }
}

/// Creates this thread's workspace of `gemm`, which is as large as the L2 cache.
///
/// Otherwise the first product of a thread creates it, and the first case would account for its memory.
pub fn settle() {
    const SIZE: usize = 64;
    let zeros = [0.0; SIZE * SIZE];
    let mut product = [0.0; SIZE * SIZE];
    let rows = || Rows::dense(&zeros, SIZE, SIZE);
    // The kernels pack a column-major left factor into the workspace, and may swap the factors first.
    let (left, right) = (Factor::transposed(rows()), Factor::plain(rows()));
    kernel(left, right, &mut RowsMut::dense(&mut product, SIZE, SIZE), Put::OVER);
}

#[cfg(test)]
mod tests {
    use super::*;
    use half::{bf16, f16};

    fn numbers<T: Number>(length: usize) -> Vec<T> {
        (0..length).map(|at| T::narrow(((at * 7919 + 13) % 31) as f32 / 8.0 - 2.0)).collect()
    }

    /// A number of a factor.
    fn number<T: Number>(factor: Factor<'_, T>, row: usize, column: usize) -> f64 {
        let (row, column) = if factor.is_transposed { (column, row) } else { (row, column) };
        f64::from(factor.stored.row(row)[column].wide())
    }

    /// The product as it is defined, in f64.
    fn expected<T: Number>(left: Factor<'_, T>, right: Factor<'_, T>, row: usize, column: usize) -> f64 {
        (0..left.columns()).map(|depth| number(left, row, depth) * number(right, depth, column)).sum()
    }

    fn products_are_right<T: Number>(rounding: f64) {
        for (rows, columns, depth) in [(1, 5, 3), (3, 70, 65), (9, 33, 17), (300, 40, 64), (5, 300, 1500)] {
            let (x, w) = (numbers::<T>(rows * depth), numbers::<T>(columns * depth));
            let lefts = [Factor::plain(Rows::dense(&x, rows, depth)), Factor::transposed(Rows::dense(&x, depth, rows))];
            let rights =
                [Factor::transposed(Rows::dense(&w, columns, depth)), Factor::plain(Rows::dense(&w, depth, columns))];
            for (left, right) in lefts.into_iter().flat_map(|left| rights.map(|right| (left, right))) {
                let mut out = vec![T::narrow(1.0); rows * columns];
                let put = Put { scale: 0.5, add: true };
                multiply(&mut Blocks::default(), left, right, &mut RowsMut::dense(&mut out, rows, columns), put);
                for (at, out) in out.iter().enumerate() {
                    let expected = 1.0 + 0.5 * expected(left, right, at / columns, at % columns);
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
    fn products_match_the_definition_in_every_dtype() {
        products_are_right::<f32>(1e-5);
        products_are_right::<f16>(1e-3);
        products_are_right::<bf16>(8e-3);
    }

    #[test]
    fn a_product_on_several_threads_is_the_same() {
        for (rows, columns, depth) in [(1, 1000, 70), (2, 300, 300), (5, 40, 1100), (600, 530, 40)] {
            let (x, w) = (numbers::<f32>(rows * depth), numbers::<f32>(columns * depth));
            let (x, w) = (Rows::dense(&x, rows, depth), Rows::dense(&w, columns, depth));
            let mut outs = [1, 3].map(|threads| {
                let mut out = vec![0.0; rows * columns];
                project(&Crew::new(threads).unwrap(), x, w, &mut out, Put::OVER);
                out
            });
            let [alone, shared] = &mut outs;
            for (at, (alone, shared)) in alone.iter().zip(shared).enumerate() {
                assert!((*alone - *shared).abs() < 1e-3, "{at}");
                let expected = expected(Factor::plain(x), Factor::transposed(w), at / columns, at % columns);
                assert!((f64::from(*alone) - expected).abs() < 1e-3, "{at}");
            }
        }
    }
}
