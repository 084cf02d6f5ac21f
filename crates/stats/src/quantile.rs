//! Quantiles with linear interpolation between the closest ranks.
//!
//! This is Hyndman and Fan's type 7, the default of numpy, R and most spreadsheets: the quantile `q` of `n` values is at
//! rank `q * (n - 1)`, counted from zero.

/// Values in ascending order, for fast quantiles.
///
/// ```
/// use laptime_stats::Sorted;
///
/// let laps = Sorted::<u64>::from_unsorted(vec![40, 10, 30, 20]);
/// assert_eq!(laps.median(), Some(25.0));
/// assert_eq!(laps.max(), Some(40));
/// ```
#[derive(Debug, Clone, PartialEq, PartialOrd)]
pub struct Sorted<T>(Vec<T>);

impl Sorted<f64> {
    /// Sorts the values; the error names the first infinity or NaN.
    pub fn from_unsorted(mut values: Vec<f64>) -> Result<Self, NotFinite> {
        NotFinite::check(&values)?;
        values.sort_unstable_by(f64::total_cmp);
        Ok(Self(values))
    }
}

impl Sorted<u64> {
    /// Sorts the values.
    pub fn from_unsorted(mut values: Vec<u64>) -> Self {
        values.sort_unstable();
        Self(values)
    }
}

impl<T: Value> Sorted<T> {
    /// Returns the quantile `q` as [`quantile_of_sorted`] does.
    pub fn quantile(&self, q: f64) -> Option<f64> {
        quantile_of_sorted(&self.0, q)
    }

    /// Returns a percentile: `p(95)` is the quantile 0.95.
    pub fn p(&self, percent: u8) -> Option<f64> {
        self.quantile(f64::from(percent) / 100.0)
    }

    /// Returns the quantile 0.5.
    pub fn median(&self) -> Option<f64> {
        self.quantile(0.5)
    }

    /// Returns the smallest value.
    pub fn min(&self) -> Option<T> {
        self.0.first().copied()
    }

    /// Returns the largest value.
    pub fn max(&self) -> Option<T> {
        self.0.last().copied()
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether there are no values, in which case no quantile exists.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the values in ascending order.
    pub fn as_slice(&self) -> &[T] {
        &self.0
    }
}

/// Returns the quantile `q` of values that are finite and in ascending order.
///
/// It is monotone in `q` and stays within the range of the values. `None` without values, or if `q` is outside 0 to 1.
pub fn quantile_of_sorted<T: Value>(values: &[T], q: f64) -> Option<f64> {
    debug_assert!(values.is_sorted(), "values must be sorted");
    quantile_by(values.len(), |at| values[at], q)
}

/// Returns the quantile `q` of `count` values in ascending order, which `value` looks up.
pub fn quantile_by<T: Value>(count: usize, value: impl Fn(usize) -> T, q: f64) -> Option<f64> {
    if !(0.0..=1.0).contains(&q) {
        return None;
    }
    let last = count.checked_sub(1)?;
    let rank = last as f64 * q;
    let below = (rank.floor() as usize).min(last);
    let above = (below + 1).min(last);
    Some(T::between(value(below), value(above), rank - below as f64))
}

/// A number type with quantiles: `f64` or `u64`.
pub trait Value: Copy + PartialOrd + sealed::Sealed {
    /// Returns the point `share` of the way from `low` to `high`, where `low <= high` and `0 <= share <= 1`.
    fn between(low: Self, high: Self, share: f64) -> f64;
}

impl Value for f64 {
    // One formula over the whole range is monotone to the last bit; numpy switches formulas half-way and is not.
    fn between(low: f64, high: f64, share: f64) -> f64 {
        let width = high - low;
        if width.is_finite() { (low + width * share).min(high) } else { low * (1.0 - share) + high * share }
    }
}

impl Value for u64 {
    // The difference is computed with integers: close to 2^63, two neighbours have the same `f64`.
    fn between(low: u64, high: u64, share: f64) -> f64 {
        (low as f64 + (high - low) as f64 * share).min(high as f64)
    }
}

mod sealed {
    pub trait Sealed {}
    impl Sealed for f64 {}
    impl Sealed for u64 {}
}

/// A value that cannot be ranked: infinite or NaN.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
#[error("value {index} is `{value}`, expected a finite number")]
pub struct NotFinite {
    /// The index of the value, counted from zero.
    pub index: usize,
    /// The value itself.
    pub value: f64,
}

impl NotFinite {
    /// Refuses infinities and NaNs.
    pub(crate) fn check(values: &[f64]) -> Result<(), Self> {
        match values.iter().position(|value| !value.is_finite()) {
            Some(index) => Err(Self { index, value: values[index] }),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(values: &[f64]) -> Sorted<f64> {
        Sorted::<f64>::from_unsorted(values.to_vec()).unwrap()
    }

    #[test]
    fn no_values_have_no_quantile() {
        let empty = sorted(&[]);
        assert_eq!((empty.median(), empty.min(), empty.max()), (None, None, None));
        assert!(empty.is_empty());
    }

    #[test]
    fn one_value_is_every_quantile_of_itself() {
        let one = sorted(&[3.5]);
        assert_eq!([one.quantile(0.0), one.median(), one.p(99)], [Some(3.5); 3]);
    }

    #[test]
    fn the_median_of_an_even_number_of_values_lies_half_way() {
        assert_eq!(sorted(&[4.0, 1.0, 2.0, 3.0]).median(), Some(2.5));
    }

    #[test]
    fn a_quantile_outside_zero_to_one_does_not_exist() {
        let values = sorted(&[1.0, 2.0]);
        assert_eq!([-0.1, 1.1, f64::NAN].map(|q| values.quantile(q)), [None; 3]);
        assert_eq!(values.p(101), None);
    }

    #[test]
    fn a_nan_is_refused_with_its_index() {
        let error = Sorted::<f64>::from_unsorted(vec![1.0, f64::NAN]).unwrap_err();
        assert_eq!(error.to_string(), "value 1 is `NaN`, expected a finite number");
    }

    #[test]
    fn an_infinite_value_is_refused() {
        let refused = Sorted::<f64>::from_unsorted(vec![f64::INFINITY]);
        assert_eq!(refused, Err(NotFinite { index: 0, value: f64::INFINITY }));
    }

    #[test]
    fn the_median_of_the_two_extremes_is_finite() {
        assert_eq!(sorted(&[f64::MIN, f64::MAX]).median(), Some(0.0));
    }

    #[test]
    fn large_integers_are_interpolated_to_the_nearest_float() {
        let low = (1 << 62) + 1;
        let high = (1 << 62) + 4096;
        assert_eq!(quantile_of_sorted(&[low, high], 0.25), Some((low + 1024) as f64));
    }
}
