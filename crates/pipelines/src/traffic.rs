//! Loops that move memory and do almost nothing else.

use half::bf16;
use pulp::{Arch, NullaryFnOnce};

use crate::element::Element;

/// The number of independent sums: enough that additions wait for memory and not for each other.
const LANES: usize = 64;

/// Numbers after which the sums are added up in f64, so that whole numbers stay exact.
const BLOCK: usize = 1 << 16;

/// A dtype that can be summed.
pub trait Summed: Element {
    /// The type in which it is summed.
    type Sum: std::ops::AddAssign + Copy + Default + Into<f64>;

    /// The number in that type.
    fn widened(self) -> Self::Sum;
}

impl Summed for f32 {
    type Sum = f32;

    #[inline(always)]
    fn widened(self) -> f32 {
        self
    }
}

impl Summed for f64 {
    type Sum = f64;

    #[inline(always)]
    fn widened(self) -> f64 {
        self
    }
}

impl Summed for bf16 {
    type Sum = f32;

    /// By its bits: the library's conversion also looks for what is no number, which is no part of reading memory.
    #[inline(always)]
    fn widened(self) -> f32 {
        f32::from_bits(u32::from(self.to_bits()) << 16)
    }
}

/// Adds up the numbers, with the widest vectors that the processor has.
pub fn sum<T: Summed>(numbers: &[T]) -> f64 {
    struct Sum<'a, T>(&'a [T]);

    impl<T: Summed> NullaryFnOnce for Sum<'_, T> {
        type Output = f64;

        #[inline(always)]
        fn call(self) -> f64 {
            self.0.chunks(BLOCK).map(sum_block).sum()
        }
    }

    Arch::new().dispatch(Sum(numbers))
}

#[inline(always)]
fn sum_block<T: Summed>(numbers: &[T]) -> f64 {
    let mut sums = [T::Sum::default(); LANES];
    let (rows, rest) = numbers.as_chunks::<LANES>();
    for row in rows {
        for (sum, number) in sums.iter_mut().zip(row) {
            *sum += number.widened();
        }
    }
    let rest = rest.iter().map(|number| number.to_f64());
    sums.into_iter().map(Into::<f64>::into).sum::<f64>() + rest.sum::<f64>()
}

/// Sets all numbers to one value, with the widest vectors that the processor has.
pub fn fill<T: Element>(numbers: &mut [T], value: T) {
    struct Fill<'a, T>(&'a mut [T], T);

    impl<T: Element> NullaryFnOnce for Fill<'_, T> {
        type Output = ();

        #[inline(always)]
        fn call(self) {
            for number in self.0 {
                *number = self.1;
            }
        }
    }

    Arch::new().dispatch(Fill(numbers, value));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sums_are_exact<T: Summed>() {
        for length in [0, 1, 63, 64, 65, BLOCK - 1, BLOCK, 3 * BLOCK + 17] {
            let numbers: Vec<T> = (0..length).map(|at| T::from_f64((at % 8) as f64)).collect();
            let expected: usize = (0..length).map(|at| at % 8).sum();
            assert_eq!(sum(&numbers), expected as f64, "{} of {}", length, T::NAME);
        }
    }

    #[test]
    fn sums_of_small_whole_numbers_are_exact() {
        sums_are_exact::<f32>();
        sums_are_exact::<f64>();
        sums_are_exact::<bf16>();
    }

    #[test]
    fn a_fill_reaches_every_number() {
        for length in [0, 1, 31, 1000] {
            let mut numbers = vec![bf16::ZERO; length];
            fill(&mut numbers, bf16::ONE);
            assert_eq!(numbers, vec![bf16::ONE; length]);
        }
    }
}
