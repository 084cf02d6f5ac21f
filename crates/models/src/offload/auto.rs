//! How many layers can stay in the memory that there is.

use crate::ModelError;

/// The largest number of resident layers that fits, where `needed` gives the bytes for a number of resident layers.
/// What cannot be run even with all layers streamed is refused, with the smallest budget that works.
///
/// All are asked for, one by one: a single streamed layer may need more than none, since its buffers are two.
pub fn most_resident(layers: usize, budget: u64, needed: impl Fn(usize) -> u64) -> Result<usize, ModelError> {
    let mut least = u64::MAX;
    for resident in (0..=layers).rev() {
        let bytes = needed(resident);
        if bytes <= budget {
            return Ok(resident);
        }
        least = least.min(bytes);
    }
    Err(ModelError::SmallBudget { budget, least })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// A model of four layers of 10 MiB, 5 MiB beside them, and two buffers where a layer is streamed.
    fn needed(resident: usize) -> u64 {
        let buffers = if resident < 4 { 2 } else { 0 };
        (5 + 10 * (resident as u64 + buffers)) * MIB
    }

    #[test]
    fn as_many_layers_stay_as_fit() {
        let most = |budget: u64| most_resident(4, budget * MIB, needed).unwrap();
        assert_eq!((most(25), most(34), most(35), most(44), most(1000)), (0, 0, 1, 1, 4));
        // With one streamed layer it would be 55.
        assert_eq!(most(45), 4);
    }

    #[test]
    fn a_budget_that_is_too_small_is_told_the_smallest_that_works() {
        let error = most_resident(4, 25 * MIB - 1, needed).unwrap_err();
        assert_eq!(error.to_string(), "24 MiB are not enough: at least 25 MiB are needed, with layers streamed");
        assert!(error.hint().is_some());
    }

    proptest! {
        #[test]
        fn what_is_chosen_fits_and_nothing_larger_does(sizes in prop::collection::vec(0_u64..100, 1..20), budget in 0_u64..120) {
            let layers = sizes.len() - 1;
            match most_resident(layers, budget, |resident| sizes[resident]) {
                Ok(most) => {
                    prop_assert!(sizes[most] <= budget);
                    prop_assert!(sizes[most + 1..].iter().all(|size| *size > budget));
                }
                Err(ModelError::SmallBudget { least, .. }) => {
                    prop_assert!(sizes.iter().all(|size| *size > budget));
                    prop_assert_eq!(Some(&least), sizes.iter().min());
                }
                Err(other) => prop_assert!(false, "{other}"),
            }
        }
    }
}
