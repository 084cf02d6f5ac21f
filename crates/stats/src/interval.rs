//! Confidence intervals.

/// A confidence interval.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interval {
    /// The lower end.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The confidence level: 0.95 for 95 %.
    pub level: f64,
}

impl Interval {
    /// Returns whether the value is within the interval, ends included.
    pub fn contains(&self, value: f64) -> bool {
        self.low <= value && value <= self.high
    }

    /// Returns the distance between the ends.
    pub fn width(&self) -> f64 {
        self.high - self.low
    }

    /// Returns the larger distance of an end from `value`, as a share of it: 0.02 reads "within 2 % of the median". `None`
    /// if `value` is 0.
    pub fn half_width(&self, value: f64) -> Option<f64> {
        let furthest = (self.high - value).max(value - self.low);
        (value != 0.0).then(|| furthest / value.abs())
    }

    /// Returns the interval with an increasing function applied to both ends.
    pub(crate) fn map(self, rising: impl Fn(f64) -> f64) -> Self {
        Self { low: rising(self.low), high: rising(self.high), ..self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AROUND_TEN: Interval = Interval { low: 9.0, high: 10.5, level: 0.95 };

    #[test]
    fn the_ends_belong_to_the_interval() {
        assert_eq!([9.0, 10.5, 8.9, 10.6].map(|v| AROUND_TEN.contains(v)), [true, true, false, false]);
    }

    #[test]
    fn the_half_width_is_the_larger_distance_as_a_share() {
        assert_eq!(AROUND_TEN.half_width(10.0), Some(0.1));
    }

    #[test]
    fn there_is_no_half_width_around_zero() {
        assert_eq!(AROUND_TEN.half_width(0.0), None);
    }
}
