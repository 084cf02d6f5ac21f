//! Quantiles compared with numpy's, and properties that hold for any values.

use laptime_stats::{Sorted, quantile_of_sorted};
use proptest::collection::vec;
use proptest::prelude::*;

const NUMPY: &str = include_str!("../data/quantile_numpy.tsv");

fn number(text: &str) -> f64 {
    text.parse().expect("the script writes numbers")
}

#[test]
fn quantiles_equal_those_of_numpy() {
    for line in NUMPY.lines().skip(1) {
        let [case, q, expected, values] = line.split('\t').collect::<Vec<_>>()[..] else {
            panic!("`{line}` does not have four columns");
        };
        let values = values.split(' ').map(number).collect();
        let found = Sorted::<f64>::from_unsorted(values).unwrap().quantile(number(q)).unwrap();
        let error = (found - number(expected)).abs();
        assert!(error <= 1e-14 * found.abs(), "{case} at {q}: {found}, numpy has {expected}");
    }
}

fn floats() -> impl Strategy<Value = Vec<f64>> {
    vec(-1e300..1e300, 1..40)
}

proptest! {
    #[test]
    fn a_quantile_is_between_the_smallest_and_the_largest_value(values in floats(), q in 0.0..=1.0) {
        let sorted = Sorted::<f64>::from_unsorted(values).unwrap();
        let found = sorted.quantile(q).unwrap();
        prop_assert!(sorted.min().unwrap() <= found && found <= sorted.max().unwrap());
    }

    #[test]
    fn a_quantile_never_falls_as_q_grows(values in floats(), p in 0.0..=1.0, q in 0.0..=1.0) {
        let sorted = Sorted::<f64>::from_unsorted(values).unwrap();
        let (low, high) = (f64::min(p, q), f64::max(p, q));
        prop_assert!(sorted.quantile(low).unwrap() <= sorted.quantile(high).unwrap());
    }

    #[test]
    fn a_quantile_of_integers_never_falls_as_q_grows(
        values in vec(0..=1_u64 << 63, 1..40), p in 0.0..=1.0, q in 0.0..=1.0,
    ) {
        let sorted = Sorted::<u64>::from_unsorted(values);
        let (low, high) = (f64::min(p, q), f64::max(p, q));
        prop_assert!(sorted.quantile(low).unwrap() <= sorted.quantile(high).unwrap());
    }

    #[test]
    fn the_order_of_the_values_does_not_matter(
        (values, shuffled) in floats().prop_flat_map(|v| (Just(v.clone()), Just(v).prop_shuffle())),
    ) {
        prop_assert_eq!(Sorted::<f64>::from_unsorted(values), Sorted::<f64>::from_unsorted(shuffled));
    }

    // 2^k + 1 values: every rank is then an exact fraction.
    #[test]
    fn a_quantile_at_a_whole_rank_is_the_value_there(
        values in (0..6_u32).prop_flat_map(|k| vec(any::<u32>().prop_map(u64::from), (1 << k) + 1)),
        at in any::<prop::sample::Index>(),
    ) {
        let sorted = Sorted::<u64>::from_unsorted(values);
        let rank = at.index(sorted.len());
        let q = rank as f64 / (sorted.len() - 1) as f64;
        prop_assert_eq!(sorted.quantile(q), Some(sorted.as_slice()[rank] as f64));
    }

    #[test]
    fn integers_and_floats_agree(values in vec(0..1_u64 << 50, 1..40), q in 0.0..=1.0) {
        let integers = Sorted::<u64>::from_unsorted(values);
        let floats: Vec<f64> = integers.as_slice().iter().map(|&v| v as f64).collect();
        prop_assert_eq!(integers.quantile(q), quantile_of_sorted(&floats, q));
    }
}
