//! Medians of amounts, many of which are zero.

/// The median of `all` amounts; those not given are zero. None if there are none at all.
pub fn median_with_zeros(mut amounts: Vec<u64>, all: usize) -> Option<f64> {
    let all = all.max(amounts.len());
    let zeros = all - amounts.len();
    amounts.sort_unstable();
    let at = |place: usize| place.checked_sub(zeros).map_or(0, |place| amounts[place]) as f64;
    let last = all.checked_sub(1)?;
    Some((at(last / 2) + at(all / 2)) / 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn omitted_amounts_count_as_zero() {
        assert_eq!(median_with_zeros(vec![], 0), None);
        assert_eq!(median_with_zeros(vec![3], 4), Some(0.0));
        assert_eq!(median_with_zeros(vec![5, 3], 3), Some(3.0));
        assert_eq!(median_with_zeros(vec![4, 2], 4), Some(1.0));
    }

    proptest! {
        #[test]
        fn it_is_the_median_of_amounts_and_zeros(amounts in prop::collection::vec(0_u64..9, 0..9), zeros in 0_usize..9) {
            let mut all = amounts.clone();
            all.resize(amounts.len() + zeros, 0);
            let expected = laptime_stats::Sorted::<u64>::from_unsorted(all.clone()).median();
            prop_assert_eq!(median_with_zeros(amounts, all.len()), expected);
        }
    }
}
