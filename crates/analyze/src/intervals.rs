//! Stretches of time, counted once where they overlap.

use laptime_trace::Nanos;

/// The length of the union of stretches given as start and end, in any order.
pub fn union_length(stretches: &mut [(u64, u64)]) -> Nanos {
    stretches.sort_unstable();
    let mut length = 0;
    let mut reached = 0;
    for &(start, end) in stretches.iter() {
        let from = start.max(reached);
        length += end.saturating_sub(from);
        reached = reached.max(end);
    }
    Nanos(length)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlapping_stretches_count_once() {
        assert_eq!(union_length(&mut [(10, 30), (0, 20), (40, 50)]), Nanos(40));
    }

    #[test]
    fn a_stretch_inside_another_adds_nothing() {
        assert_eq!(union_length(&mut [(0, 100), (20, 30)]), Nanos(100));
        assert_eq!(union_length(&mut []), Nanos(0));
    }

    proptest! {
        #[test]
        fn the_union_is_what_counting_moments_gives(
            stretches in prop::collection::vec((0_u64..50, 0_u64..20), 0..12),
        ) {
            let mut stretches: Vec<_> = stretches.into_iter().map(|(start, length)| (start, start + length)).collect();
            let inside = |moment: u64| stretches.iter().any(|(start, end)| (*start..*end).contains(&moment));
            let counted = (0..100).filter(|&moment| inside(moment)).count() as u64;
            prop_assert_eq!(union_length(&mut stretches), Nanos(counted));
        }
    }
}
