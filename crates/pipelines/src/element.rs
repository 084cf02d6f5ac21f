//! The dtypes that workloads compute with.

use anyhow::anyhow;
use bytemuck::Zeroable;
use half::{bf16, f16};

pub trait Element: Zeroable + Copy + PartialEq + Send + Sync + 'static {
    const NAME: &'static str;

    /// The maximum relative error of one rounding: half the distance from 1 to the next number.
    const ROUNDING: f64;

    /// The maximum absolute error of one rounding near 0 (subnormal numbers).
    const SMALLEST: f64;

    /// The nearest number of this type.
    fn from_f64(value: f64) -> Self;

    /// The same number with more digits.
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

/// Zeros whose pages no thread has touched yet; the system allocates them on the first write.
pub fn untouched<T: Element>(count: usize) -> anyhow::Result<Vec<T>> {
    bytemuck::allocation::try_zeroed_vec(count)
        .map_err(|()| anyhow!("the system refused {} bytes", count.saturating_mul(size_of::<T>())))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one_more_digit_is_lost<T: Element>() {
        let kept = T::from_f64(1.0 + 2.0 * T::ROUNDING).to_f64();
        assert_eq!(kept, 1.0 + 2.0 * T::ROUNDING, "{}", T::NAME);
        assert_eq!(T::from_f64(1.0 + T::ROUNDING).to_f64(), 1.0, "{}", T::NAME);
        assert_eq!(T::from_f64(T::SMALLEST / 4.0).to_f64(), 0.0, "{}", T::NAME);
    }

    #[test]
    fn the_roundings_are_those_of_the_types() {
        one_more_digit_is_lost::<f64>();
        one_more_digit_is_lost::<f32>();
        one_more_digit_is_lost::<f16>();
        one_more_digit_is_lost::<bf16>();
    }

    #[test]
    fn more_memory_than_there_are_addresses_is_an_error() {
        let error = untouched::<f64>(usize::MAX / 8).unwrap_err();
        assert_eq!(error.to_string(), format!("the system refused {} bytes", usize::MAX / 8 * 8));
    }
}
