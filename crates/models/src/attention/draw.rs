//! Columns drawn at random: distinct, the same for the same seed, and each as likely as any other.

/// Draws `count` distinct numbers below `range`, in order; all of them if there are no more.
pub fn distinct(seed: u64, draw: u64, count: usize, range: usize, drawn: &mut Vec<u32>) {
    drawn.clear();
    if count >= range {
        drawn.extend(0..range as u32);
        return;
    }
    let mut state = mixed(seed ^ mixed(draw));
    // Floyd's way: the last that may be drawn stands in for one that was drawn before.
    for last in range - count..range {
        let number = below(&mut state, last as u64 + 1);
        match drawn.binary_search(&number) {
            Ok(_) => drawn.push(last as u32),
            Err(place) => drawn.insert(place, number),
        }
    }
}

fn below(state: &mut u64, limit: u64) -> u32 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    ((u128::from(mixed(*state)) * u128::from(limit)) >> 64) as u32
}

/// The finaliser of SplitMix64.
fn mixed(mut bits: u64) -> u64 {
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn drawn(seed: u64, draw: u64, count: usize, range: usize) -> Vec<u32> {
        let mut drawn = vec![7];
        distinct(seed, draw, count, range, &mut drawn);
        drawn
    }

    #[test]
    fn seeds_and_draws_give_other_columns_and_the_same_ones_the_same() {
        assert_eq!(drawn(1, 2, 8, 1000), drawn(1, 2, 8, 1000));
        assert_ne!(drawn(1, 2, 8, 1000), drawn(1, 3, 8, 1000));
        assert_ne!(drawn(1, 2, 8, 1000), drawn(2, 2, 8, 1000));
    }

    #[test]
    fn every_column_is_drawn_about_as_often() {
        let mut counts = [0_u32; 20];
        for draw in 0..10_000 {
            drawn(0, draw, 4, 20).into_iter().for_each(|column| counts[column as usize] += 1);
        }
        // 2000 are expected, with a deviation of 40.
        assert!(counts.iter().all(|count| (1800..2200).contains(count)), "{counts:?}");
    }

    proptest! {
        #[test]
        fn columns_are_distinct_ordered_and_as_many_as_asked_for(seed: u64, draw: u64, count in 0_usize..80, range in 0_usize..200) {
            let drawn = drawn(seed, draw, count, range);
            prop_assert_eq!(drawn.len(), count.min(range));
            prop_assert!(drawn.is_sorted_by(|one, next| one < next));
            prop_assert!(drawn.iter().all(|&column| (column as usize) < range));
        }
    }
}
