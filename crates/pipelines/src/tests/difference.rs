//! The difference between two results, for tests.

/// The largest difference between the numbers of two lists of equal length; infinite if a number is not finite.
pub fn largest_difference(one: &[f32], other: &[f32]) -> f32 {
    assert_eq!(one.len(), other.len(), "lists of one length");
    let apart = |(one, other): (&f32, &f32)| {
        let apart = (one - other).abs();
        if apart.is_finite() { apart } else { f32::INFINITY }
    };
    one.iter().zip(other).map(apart).fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nan_is_infinitely_far_from_everything() {
        assert_eq!(largest_difference(&[1.0, 2.0], &[1.5, 2.0]), 0.5);
        assert_eq!(largest_difference(&[f32::NAN, 2.0], &[f32::NAN, 2.0]), f32::INFINITY);
        assert_eq!(largest_difference(&[f32::INFINITY], &[f32::INFINITY]), f32::INFINITY);
    }

    #[test]
    #[should_panic(expected = "lists of one length")]
    fn a_truncated_list_is_not_the_same() {
        largest_difference(&[1.0, 2.0], &[1.0]);
    }
}
