//! GEMM of square matrices for each dtype.
//!
//! The crate `gemm` has kernels for f32, f64 and f16 (converted to f32 per block, accumulated in f32, stored as f16 after
//! each block of the inner dimension). For bf16, factors are converted to f32 and the result is rounded, all inside the
//! iteration.

// The kernels take pointers; this file wraps them in slices.
#![allow(unsafe_code)]

use anyhow::{anyhow, ensure};
use bytemuck::Zeroable;
use gemm::Parallelism;
use half::{bf16, f16};
use laptime_models::cpu::workspace_bytes;
use laptime_stats::Rng;

use crate::crew::Crew;

/// The minimum block size of the inner dimension in the kernels.
pub const BLOCK_DEPTH: usize = 512;

/// Memory of threads, tasks and alignment.
const SMALL_BYTES: u64 = 256 << 10;

pub trait Multiplied: Element {
    /// The maximum relative error of one addition, in the type in which products are accumulated.
    const SUM_ROUNDING: f64;

    const BLOCK_BYTES: u64;

    const WIDENED_BYTES: u64 = 0;

    /// Buffers of a product in addition to the matrices.
    type Scratch: Send;

    fn scratch(size: usize) -> anyhow::Result<Self::Scratch>;

    /// Multiplies the row-major square matrices `a` and `b` into `c`.
    fn multiply(crew: &Crew, size: usize, a: &[Self], b: &[Self], c: &mut [Self], scratch: &mut Self::Scratch);
}

macro_rules! with_kernel {
    ($type:ident, adds in $sum:ident) => {
        impl Multiplied for $type {
            const SUM_ROUNDING: f64 = <$sum as Element>::ROUNDING;
            const BLOCK_BYTES: u64 = size_of::<$sum>() as u64;
            type Scratch = ();

            fn scratch(_: usize) -> anyhow::Result<()> {
                Ok(())
            }

            fn multiply(crew: &Crew, size: usize, a: &[Self], b: &[Self], c: &mut [Self], _: &mut ()) {
                kernel(crew, size, [a, b], c, [0.0, 1.0].map(<$type as Element>::from_f64));
            }
        }
    };
}

with_kernel!(f32, adds in f32);
with_kernel!(f64, adds in f64);
#[cfg(not(target_arch = "aarch64"))]
with_kernel!(f16, adds in f32);
// On AArch64 the kernels may accumulate in f16.
#[cfg(target_arch = "aarch64")]
with_kernel!(f16, adds in f16);

impl Multiplied for bf16 {
    const SUM_ROUNDING: f64 = <f32 as Element>::ROUNDING;
    const BLOCK_BYTES: u64 = size_of::<f32>() as u64;
    const WIDENED_BYTES: u64 = 3 * size_of::<f32>() as u64;
    /// Both factors and the result, in f32.
    type Scratch = [Vec<f32>; 3];

    fn scratch(size: usize) -> anyhow::Result<Self::Scratch> {
        Ok([untouched(size * size)?, untouched(size * size)?, untouched(size * size)?])
    }

    fn multiply(crew: &Crew, size: usize, a: &[Self], b: &[Self], c: &mut [Self], scratch: &mut Self::Scratch) {
        let [wide_a, wide_b, wide_c] = scratch;
        convert(crew, a, wide_a, bf16::to_f32);
        convert(crew, b, wide_b, bf16::to_f32);
        kernel(crew, size, [wide_a, wide_b], wide_c, [0.0, 1.0]);
        convert(crew, wide_c, c, bf16::from_f32);
    }
}

/// Converts every number, in parallel.
fn convert<A: Element, B: Element>(crew: &Crew, from: &[A], to: &mut [B], one: impl Fn(A) -> B + Sync) {
    let share = crew.share(from.len());
    crew.each(from.chunks(share).zip(to.chunks_mut(share)), |(from, to)| {
        for (to, &from) in to.iter_mut().zip(from) {
            *to = one(from);
        }
    });
}

/// Multiplies two row-major square matrices with the kernel of a dtype that has one.
fn kernel<T: Element>(crew: &Crew, size: usize, [a, b]: [&[T]; 2], c: &mut [T], [zero, one]: [T; 2]) {
    let entries = size.checked_mul(size).expect("the matrices are in memory");
    assert!(a.len() == entries && b.len() == entries && c.len() == entries, "the matrices are square");
    let row = isize::try_from(size).expect("the matrices are in memory");
    let parallelism = match crew.threads() {
        1 => Parallelism::None,
        threads => Parallelism::Rayon(threads),
    };
    crew.run(|| {
        // SAFETY: all three have `size` rows of `size` entries with these strides, as checked above; `c` is borrowed
        // mutably and overlaps neither. The kernel panics for an unsupported dtype. It does not read `c`, so the factor
        // of `c` is not used.
        unsafe {
            gemm::gemm(
                size,
                size,
                size,
                c.as_mut_ptr(),
                1,
                row,
                false,
                a.as_ptr(),
                1,
                row,
                b.as_ptr(),
                1,
                row,
                zero,
                one,
                false,
                false,
                false,
                parallelism,
            );
        }
    });
}

/// Memory for a product: matrices, their widened copies, the kernel's blocks and slabs.
pub fn product_bytes<T: Multiplied>(size: usize, threads: usize) -> u64 {
    let (size, threads) = (size as u64, threads as u64);
    let entries = size.saturating_mul(size);
    let matrices = entries.saturating_mul(3 * size_of::<T>() as u64 + T::WIDENED_BYTES);
    let block = size.saturating_mul(size.min(BLOCK_DEPTH as u64) * T::BLOCK_BYTES);
    let blocks = block.saturating_mul(packed_factors::<T>(size));
    let workspaces = threads.saturating_mul(workspace_bytes());
    [matrices, blocks, workspaces, SMALL_BYTES].into_iter().fold(0, u64::saturating_add)
}

/// The maximum number of factors of which the kernels pack a block. With AVX-512 they process three vectors of rows at a
/// time and pack one factor beyond 128 times that; f16 kernels always do.
fn packed_factors<T: Multiplied>(size: u64) -> u64 {
    const SMALL: u64 = 1024;
    let is_widened_by_kernel = T::WIDENED_BYTES == 0 && T::BLOCK_BYTES > size_of::<T>() as u64;
    match has_avx512() && size > SMALL {
        true if is_widened_by_kernel || size.saturating_mul(T::BLOCK_BYTES) > 128 * 3 * 64 => 1,
        true => 0,
        false => 2,
    }
}

/// Whether the kernels use AVX-512.
#[cfg(target_arch = "x86_64")]
fn has_avx512() -> bool {
    pulp::x86::V4::try_new().is_some()
}

#[cfg(not(target_arch = "x86_64"))]
fn has_avx512() -> bool {
    false
}

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

/// The expected value of an entry.
struct Expected {
    value: f64,
    /// The sum of the absolute terms.
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
    /// all errors add up; errors of random signs grow with the square root of their number, and never reach eight times
    /// that. The reference has the same error in f64. The result is stored once per block of the inner dimension.
    fn tolerance<T: Multiplied>(&self, size: usize) -> f64 {
        let additions = (size as f64).min(8.0 * (size as f64).sqrt());
        let added = additions * (T::SUM_ROUNDING + f64::EPSILON) * self.terms;
        let stores = size.div_ceil(BLOCK_DEPTH) as f64 + 1.0;
        added + stores * (T::ROUNDING * self.reach + T::SMALLEST)
    }
}

pub trait Element: Zeroable + Copy + PartialEq + Send + Sync + 'static {
    const NAME: &'static str;

    /// The maximum relative error of one rounding: half the distance from 1 to the next number.
    const ROUNDING: f64;

    /// The maximum absolute error of one rounding near 0 (subnormal numbers).
    const SMALLEST: f64;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;

    fn to_f64(self) -> f64;
}

macro_rules! element {
    ($type:ident, digits $digits:literal, smallest $smallest:literal, $from:expr, $to:expr) => {
        impl Element for $type {
            const NAME: &'static str = stringify!($type);
            const ROUNDING: f64 = 1.0 / (1_u64 << $digits) as f64;
            const SMALLEST: f64 = $smallest;

            fn from_f64(value: f64) -> Self {
                $from(value)
            }

            fn to_f64(self) -> f64 {
                $to(self)
            }
        }
    };
}

element!(f64, digits 53, smallest 5e-324, std::convert::identity, std::convert::identity);
element!(f32, digits 24, smallest 1.5e-45, |value| value as f32, f64::from);
element!(f16, digits 11, smallest 6e-8, f16::from_f64, f16::to_f64);
element!(bf16, digits 8, smallest 1e-40, bf16::from_f64, bf16::to_f64);

/// Zeros on untouched pages, which the system allocates on the first write.
pub fn untouched<T: Element>(count: usize) -> anyhow::Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(count)
        .map_err(|()| anyhow!("the system refused {} bytes", count.saturating_mul(size_of::<T>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_counted_with_copies_and_without_overflow() {
        let mib = |bytes: u64| bytes >> 20;
        let workspace = mib(workspace_bytes());
        assert_eq!(mib(product_bytes::<f32>(1024, 1)), 12 + 4 + workspace);
        assert_eq!(mib(product_bytes::<bf16>(1024, 2)), 6 + 12 + 4 + 2 * workspace);
        assert_eq!(product_bytes::<f64>(i64::MAX as usize, 1024), u64::MAX);
    }

    #[test]
    #[should_panic = "the matrices are square"]
    fn a_matrix_that_is_too_short_is_refused() {
        let crew = Crew::new(1).unwrap();
        f32::multiply(&crew, 2, &[1.0; 4], &[1.0; 3], &mut [0.0; 4], &mut ());
    }
}

#[cfg(test)]
mod reference_tests {
    use super::*;

    /// Matrices of ones and their product.
    fn ones(size: usize) -> (Vec<f32>, Vec<f32>) {
        (vec![1.0; size * size], vec![size as f32; size * size])
    }

    #[test]
    fn a_correct_product_is_accepted() {
        for size in [1, 64, 65, 1500] {
            let (one, product) = ones(size);
            check_product(size, &one, &one, &product).unwrap();
        }
    }

    #[test]
    fn one_wrong_entry_anywhere_in_a_small_product_is_refused() {
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
    fn a_nan_is_refused() {
        let (one, mut product) = ones(2);
        product[3] = f32::NAN;
        assert!(check_product(2, &one, &one, &product).is_err());
    }

    #[test]
    fn a_missing_term_exceeds_the_tolerance() {
        let size = 4096;
        let all = Expected { value: 0.0, terms: size as f64 / 4.0, reach: 64.0 };
        assert!(all.tolerance::<f32>(size) < 0.25);
        assert!(all.tolerance::<f64>(size) < 1e-9);
    }

    #[test]
    fn the_number_of_checked_entries_is_limited() {
        assert_eq!(entries(64).len(), 4096);
        assert_eq!(entries(1024).len(), 1024);
        assert!((512..=1024).contains(&entries(5000).len()));
    }
}

#[cfg(test)]
mod element_tests {
    use super::*;

    fn one_more_bit_is_lost<T: Element>() {
        let kept = T::from_f64(1.0 + 2.0 * T::ROUNDING).to_f64();
        assert_eq!(kept, 1.0 + 2.0 * T::ROUNDING, "{}", T::NAME);
        assert_eq!(T::from_f64(1.0 + T::ROUNDING).to_f64(), 1.0, "{}", T::NAME);
        assert_eq!(T::from_f64(T::SMALLEST / 4.0).to_f64(), 0.0, "{}", T::NAME);
    }

    #[test]
    fn the_rounding_errors_match_the_dtypes() {
        one_more_bit_is_lost::<f64>();
        one_more_bit_is_lost::<f32>();
        one_more_bit_is_lost::<f16>();
        one_more_bit_is_lost::<bf16>();
    }

    #[test]
    fn an_impossible_allocation_is_an_error() {
        let error = untouched::<f64>(usize::MAX / 8).unwrap_err();
        assert_eq!(error.to_string(), format!("the system refused {} bytes", usize::MAX / 8 * 8));
    }
}
