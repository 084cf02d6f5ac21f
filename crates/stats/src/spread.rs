//! Robust centre and spread: a few outliers do not move them.
//!
//! Used on process medians, on samples when outliers are marked, and on the noise of a series. All functions accept
//! values in any order.

use crate::quantile::Value;

/// Converts a median absolute deviation to the standard deviation of normal values: 1 / Φ⁻¹(3/4).
pub const MAD_TO_STD: f64 = 1.482_602_218_505_602;

/// The same for a mean absolute deviation: √(π/2).
const MEAN_DEVIATION_TO_STD: f64 = 1.253_314_137_315_500_3;

/// Returns the median of values in any order; `None` without values.
pub fn median(values: &[f64]) -> Option<f64> {
    median_in_place(&mut values.to_vec())
}

/// Returns the [`median`] of an iterator.
pub fn median_of(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    median_in_place(&mut values.into_iter().collect::<Vec<_>>())
}

/// Returns the median, and reorders the values instead of copying them.
pub(crate) fn median_in_place(values: &mut [f64]) -> Option<f64> {
    let middle = values.len().checked_sub(1)? / 2;
    let is_odd = values.len() % 2 == 1;
    let (_, &mut low, above) = values.select_nth_unstable_by(middle, f64::total_cmp);
    if is_odd {
        return Some(low);
    }
    let high = above.iter().copied().fold(f64::INFINITY, f64::min);
    Some(f64::between(low, high, 0.5))
}

/// Returns the median absolute deviation from the median, not scaled.
pub fn mad(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    median_in_place(&mut deviations(values, centre))
}

/// Estimates the standard deviation without the influence of outliers.
///
/// It is the scaled median absolute deviation. If that is 0 because more than half of the values are equal (a coarse
/// clock), the scaled mean absolute deviation is used, which is 0 only if all values are equal.
pub fn robust_std(values: &[f64]) -> Option<f64> {
    let centre = median(values)?;
    let mut deviations = deviations(values, centre);
    let mean = deviations.iter().sum::<f64>() / deviations.len() as f64;
    let mad = median_in_place(&mut deviations)?;
    Some(if mad > 0.0 { mad * MAD_TO_STD } else { mean * MEAN_DEVIATION_TO_STD })
}

/// Returns the Hodges-Lehmann centre: the median of the means of all pairs, including each value paired with itself.
///
/// One of five values may be arbitrary without moving it far, and yet it is almost as stable as the mean, unlike the
/// median of five. The cost grows with the square of the number of values.
pub fn hodges_lehmann(values: &[f64]) -> Option<f64> {
    hodges_lehmann_with(values, &mut Vec::new())
}

/// Returns the centre as [`hodges_lehmann`] does, with a reused buffer.
pub(crate) fn hodges_lehmann_with(values: &[f64], pairs: &mut Vec<f64>) -> Option<f64> {
    pairs.clear();
    for (at, &one) in values.iter().enumerate() {
        pairs.extend(values[at..].iter().map(|&other| 0.5 * (one + other)));
    }
    median_in_place(pairs)
}

fn deviations(values: &[f64], centre: f64) -> Vec<f64> {
    values.iter().map(|value| (value - centre).abs()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_values_have_neither_centre_nor_spread() {
        assert_eq!([median(&[]), mad(&[]), robust_std(&[]), hodges_lehmann(&[])], [None; 4]);
    }

    #[test]
    fn the_median_does_not_need_an_order() {
        assert_eq!(median(&[9.0, 1.0, 4.0, 2.0]), Some(3.0));
        assert_eq!(median(&[9.0, 1.0, 4.0]), Some(4.0));
    }

    #[test]
    fn one_outlier_does_not_widen_the_spread() {
        assert_eq!(mad(&[10.0, 11.0, 12.0, 13.0, 1e9]), Some(1.0));
    }

    #[test]
    fn a_spread_of_mostly_equal_values_is_not_zero() {
        let spread = robust_std(&[5.0, 5.0, 5.0, 5.0, 6.0]).unwrap();
        assert!((spread - 0.2 * MEAN_DEVIATION_TO_STD).abs() < 1e-12);
    }

    #[test]
    fn equal_values_have_no_spread() {
        assert_eq!(robust_std(&[5.0; 4]), Some(0.0));
    }

    #[test]
    fn the_centre_of_two_values_is_their_mean() {
        assert_eq!(hodges_lehmann(&[1.0, 4.0]), Some(2.5));
    }

    // Pairs of 1, 2, 30: 1, 1.5, 2, 15.5, 16, 30.
    #[test]
    fn the_centre_is_the_median_of_the_means_of_pairs() {
        assert_eq!(hodges_lehmann(&[30.0, 1.0, 2.0]), Some(8.75));
    }

    #[test]
    fn one_outlier_of_five_hardly_moves_the_centre() {
        let centre = hodges_lehmann(&[10.0, 11.0, 12.0, 13.0, 1e9]).unwrap();
        assert!((11.0..=13.0).contains(&centre), "{centre}");
    }
}
