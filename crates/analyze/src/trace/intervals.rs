//! Time intervals; overlaps count once.

use laptime_trace::Nanos;

/// The length of the union of intervals given as start and end, in any order.
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

/// The sum of lengths. It saturates instead of overflowing, for damaged files.
pub fn total(lengths: impl IntoIterator<Item = u64>) -> u64 {
    lengths.into_iter().fold(0, u64::saturating_add)
}

/// Time intervals in order, disjoint, none empty.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Stretches {
    parts: Vec<(u64, u64)>,
    /// The length of all parts before each part.
    before: Vec<u64>,
}

impl Stretches {
    /// The union of intervals given as start and end, in any order.
    pub fn union(mut stretches: Vec<(u64, u64)>) -> Self {
        stretches.sort_unstable();
        let mut parts: Vec<(u64, u64)> = Vec::new();
        for (start, end) in stretches {
            match parts.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ if start < end => parts.push((start, end)),
                _ => {}
            }
        }
        Self::of_parts(parts)
    }

    fn of_parts(parts: Vec<(u64, u64)>) -> Self {
        let mut length = 0;
        let before = parts
            .iter()
            .map(|(start, end)| {
                let before = length;
                length += end - start;
                before
            })
            .collect();
        Self { parts, before }
    }

    /// The parts as start and end, in order.
    pub fn parts(&self) -> &[(u64, u64)] {
        &self.parts
    }

    /// The total length.
    pub fn length(&self) -> u64 {
        match (self.before.last(), self.parts.last()) {
            (Some(before), Some((start, end))) => before + (end - start),
            _ => 0,
        }
    }

    /// The length of the overlap with an interval.
    pub fn length_within(&self, from: u64, to: u64) -> u64 {
        self.length_before(to).saturating_sub(self.length_before(from))
    }

    fn length_before(&self, moment: u64) -> u64 {
        let after = self.parts.partition_point(|(start, _)| *start < moment);
        let Some(last) = after.checked_sub(1) else { return 0 };
        let (start, end) = self.parts[last];
        self.before[last] + (moment.min(end) - start)
    }

    /// Whether a moment is in one of them.
    pub fn contains(&self, moment: u64) -> bool {
        let after = self.parts.partition_point(|(start, _)| *start <= moment);
        after > 0 && moment < self.parts[after - 1].1
    }

    /// The intersection.
    pub fn and(&self, other: &Self) -> Self {
        let (mut a, mut b) = (self.parts.iter().peekable(), other.parts.iter().peekable());
        let mut parts = Vec::new();
        while let (Some(&&one), Some(&&two)) = (a.peek(), b.peek()) {
            let (start, end) = (one.0.max(two.0), one.1.min(two.1));
            if start < end {
                parts.push((start, end));
            }
            if one.1 <= two.1 {
                a.next();
            } else {
                b.next();
            }
        }
        Self::of_parts(parts)
    }

    /// The difference.
    pub fn minus(&self, other: &Self) -> Self {
        let mut parts = Vec::new();
        let mut next = 0;
        for &(mut start, end) in &self.parts {
            while other.parts.get(next).is_some_and(|taken| taken.1 <= start) {
                next += 1;
            }
            for &(from, to) in other.parts[next..].iter().take_while(|taken| taken.0 < end) {
                if start < from {
                    parts.push((start, from));
                }
                start = start.max(to);
            }
            if start < end {
                parts.push((start, end));
            }
        }
        Self::of_parts(parts)
    }

    /// The parts of an interval that are not covered.
    pub fn gaps_in(&self, from: u64, to: u64) -> Self {
        let (mut parts, mut reached) = (Vec::new(), from);
        let first = self.parts.partition_point(|(_, end)| *end <= from);
        for &(start, end) in self.parts[first..].iter().take_while(|(start, _)| *start < to) {
            if reached < start {
                parts.push((reached, start));
            }
            reached = reached.max(end);
        }
        if reached < to {
            parts.push((reached, to));
        }
        Self::of_parts(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn overlapping_intervals_count_once() {
        assert_eq!(union_length(&mut [(10, 30), (0, 20), (40, 50)]), Nanos(40));
        let union = Stretches::union(vec![(10, 30), (0, 20), (40, 50), (60, 60)]);
        assert_eq!((union.parts(), union.length()), (&[(0, 30), (40, 50)][..], 40));
    }

    #[test]
    fn a_nested_interval_adds_nothing() {
        assert_eq!(union_length(&mut [(0, 100), (20, 30)]), Nanos(100));
        assert_eq!(union_length(&mut []), Nanos(0));
    }

    fn some() -> impl Strategy<Value = Vec<(u64, u64)>> {
        let ends = |stretches: Vec<(u64, u64)>| stretches.into_iter().map(|(start, length)| (start, start + length));
        prop::collection::vec((0_u64..50, 0_u64..20), 0..12).prop_map(move |some| ends(some).collect())
    }

    fn moments(stretches: &[(u64, u64)]) -> Vec<bool> {
        (0..100).map(|moment| stretches.iter().any(|(start, end)| (*start..*end).contains(&moment))).collect()
    }

    proptest! {
        #[test]
        fn the_union_agrees_with_counting_moments(mut stretches in some()) {
            let counted = moments(&stretches).into_iter().filter(|inside| *inside).count() as u64;
            prop_assert_eq!(union_length(&mut stretches), Nanos(counted));
            prop_assert_eq!(Stretches::union(stretches).length(), counted);
        }

        #[test]
        fn intersection_and_difference_agree_with_counting_moments(
            one in some(), two in some(), from in 0_u64..60, length in 0_u64..40,
        ) {
            let (in_one, in_two) = (moments(&one), moments(&two));
            let (one, two) = (Stretches::union(one), Stretches::union(two));
            let both: Vec<bool> = std::iter::zip(&in_one, &in_two).map(|(one, two)| *one && *two).collect();
            let left: Vec<bool> = std::iter::zip(&in_one, &in_two).map(|(one, two)| *one && !*two).collect();
            prop_assert_eq!(moments(one.and(&two).parts()), both);
            prop_assert_eq!(moments(one.minus(&two).parts()), left);
            let within = in_one[from as usize..(from + length) as usize].iter().filter(|inside| **inside).count();
            prop_assert_eq!(one.length_within(from, from + length), within as u64);
            prop_assert_eq!(one.gaps_in(from, from + length).length() + within as u64, length);
            prop_assert_eq!(one.contains(from), in_one[from as usize]);
        }
    }
}
