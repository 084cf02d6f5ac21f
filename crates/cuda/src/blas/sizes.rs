//! The sizes and memory layout of matrix products.

/// The sizes of a product: `a` is m by k, `b` is k by n, `c` is m by n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sizes {
    /// Rows of `a` and `c`.
    pub m: u32,
    /// Columns of `b` and `c`.
    pub n: u32,
    /// Columns of `a`, rows of `b`.
    pub k: u32,
    /// Whether `b` is stored transposed, n by k, like the weights of linear layers.
    pub b_is_transposed: bool,
}

/// The memory layout of one factor's matrices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Matrices {
    /// Whether each one is stored transposed.
    pub is_transposed: bool,
    /// The stride of the stored rows (leading dimension).
    pub row: u32,
    /// The stride of the matrices; zero if all products use the same one.
    pub stride: u64,
}

impl Matrices {
    /// Contiguous matrices, `rows` by `columns`.
    pub fn plain(rows: u32, columns: u32) -> Self {
        Self { is_transposed: false, row: columns, stride: u64::from(rows) * u64::from(columns) }
    }

    /// Contiguous transposed matrices, stored `columns` by `rows`.
    pub fn transposed(rows: u32, columns: u32) -> Self {
        Self { is_transposed: true, row: rows, stride: u64::from(rows) * u64::from(columns) }
    }

    /// The same with another stride.
    pub fn every(self, stride: u64) -> Self {
        Self { stride, ..self }
    }

    fn fits(&self, capacity: usize, [rows, columns]: [u32; 2], count: u32) -> bool {
        let [rows, columns] = if self.is_transposed { [columns, rows] } else { [rows, columns] };
        let before = u128::from(count.saturating_sub(1)) * u128::from(self.stride);
        let last = u128::from(rows.saturating_sub(1)) * u128::from(self.row) + u128::from(columns);
        self.row >= columns && before + last <= capacity as u128
    }
}

/// Several products of the same sizes, `c = scale a b`, each m by n.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Batch {
    /// The number of products.
    pub count: u32,
    /// Rows of `a` and `c`.
    pub m: u32,
    /// Columns of `b` and `c`.
    pub n: u32,
    /// Columns of `a`, rows of `b`.
    pub k: u32,
    /// The layout of the matrices `a`, m by k.
    pub a: Matrices,
    /// The layout of the matrices `b`, k by n.
    pub b: Matrices,
    /// The layout of the matrices `c`, m by n; they can be neither transposed nor shared.
    pub c: Matrices,
    /// The scale of each product.
    pub scale: f32,
    /// Whether products are added to `c`.
    pub is_added: bool,
}

impl Batch {
    pub(super) fn one(sizes: Sizes, is_added: bool) -> Self {
        let Sizes { m, n, k, b_is_transposed } = sizes;
        let b = if b_is_transposed { Matrices::transposed(k, n) } else { Matrices::plain(k, n) };
        let (a, c) = (Matrices::plain(m, k), Matrices::plain(m, n));
        Self { count: 1, m, n, k, a, b, c, scale: 1.0, is_added }
    }

    /// The gradient of a linear layer's weight, outputs by inputs: the transposed output gradient (rows by outputs)
    /// times the input (rows by inputs).
    pub fn weight_gradient(rows: u32, outputs: u32, inputs: u32) -> Self {
        let (a, b) = (Matrices::transposed(outputs, rows), Matrices::plain(rows, inputs));
        let c = Matrices::plain(outputs, inputs);
        Self { count: 1, m: outputs, n: inputs, k: rows, a, b, c, scale: 1.0, is_added: false }
    }

    pub(super) fn fits(&self, a: usize, b: usize, c: usize) -> bool {
        let Self { count, m, n, k, .. } = *self;
        let is_disjoint =
            count == 1 || self.c.stride >= u64::from(m.saturating_sub(1)) * u64::from(self.c.row) + u64::from(n);
        let fit = self.a.fits(a, [m, k], count) && self.b.fits(b, [k, n], count) && self.c.fits(c, [m, n], count);
        fit && is_disjoint && !self.c.is_transposed
    }

    pub(super) fn is_for_cublas(&self) -> bool {
        let sizes = [self.m, self.n, self.k, self.count, self.a.row, self.b.row, self.c.row];
        let strides = [self.a.stride, self.b.stride, self.c.stride];
        sizes.iter().all(|size| (1..=i32::MAX as u32).contains(size))
            && strides.iter().all(|stride| i64::try_from(*stride).is_ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { m: 2, n: 3, k: 4, b_is_transposed: false };

    #[test]
    fn buffers_that_are_too_small_do_not_fit() {
        for b_is_transposed in [false, true] {
            let batch = Batch::one(Sizes { b_is_transposed, ..SIZES }, false);
            assert!(batch.fits(8, 12, 6));
            assert!(!batch.fits(7, 12, 6) && !batch.fits(8, 11, 6) && !batch.fits(8, 12, 5));
        }
    }

    #[test]
    fn a_batch_ends_with_its_last_matrix() {
        let one = Batch::one(SIZES, false);
        let batch = Batch { count: 3, a: one.a.every(10), b: one.b.every(0), c: one.c.every(7), ..one };
        assert!(batch.fits(28, 12, 20));
        assert!(!batch.fits(27, 12, 20) && !batch.fits(28, 11, 20) && !batch.fits(28, 12, 19));
    }

    #[test]
    fn results_of_a_batch_must_be_disjoint_and_not_transposed() {
        let one = Batch::one(SIZES, false);
        assert!(!Batch { count: 2, c: one.c.every(5), ..one }.fits(99, 99, 99));
        assert!(!Batch { c: Matrices::transposed(2, 3), ..one }.fits(99, 99, 99));
        assert!(!Batch { a: Matrices { row: 3, ..one.a }, ..one }.fits(99, 99, 99));
    }

    #[test]
    fn a_weights_gradient_is_as_large_as_the_weight() {
        let batch = Batch::weight_gradient(5, 3, 2);
        assert!(batch.fits(15, 10, 6));
        assert!(!batch.fits(14, 10, 6) && !batch.fits(15, 9, 6) && !batch.fits(15, 10, 5));
    }

    #[test]
    fn sizes_beyond_the_limits_of_cublas_are_refused() {
        let is_for_cublas = |sizes| Batch::one(sizes, false).is_for_cublas();
        assert!(is_for_cublas(SIZES));
        assert!(!is_for_cublas(Sizes { k: 0, ..SIZES }));
        assert!(!is_for_cublas(Sizes { m: 1 << 31, ..SIZES }));
        let far = Batch { a: Matrices::plain(2, 4).every(u64::MAX), ..Batch::one(SIZES, false) };
        assert!(!far.is_for_cublas());
    }
}
