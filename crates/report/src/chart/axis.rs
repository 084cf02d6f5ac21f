//! Maps numbers to positions along an axis.

use super::Scale;

/// Larger values are ignored: their differences overflow.
const LARGEST: f64 = 1e150;

/// Whether a number can be drawn on an axis.
pub(crate) fn can_draw(value: f64, scale: Scale) -> bool {
    match scale {
        Scale::Linear => value.abs() <= LARGEST,
        Scale::Log => (1.0 / LARGEST..=LARGEST).contains(&value),
    }
}

/// The range of an axis.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Range {
    pub(crate) low: f64,
    pub(crate) high: f64,
}

/// The margin beyond the outermost values, as a share of the range.
const ROOM: f64 = 0.05;

/// A linear axis spans at least this share of its values, a logarithmic one at least a factor of two, so noise looks flat.
const LEAST: f64 = 0.1;

/// A linear axis starts at 0 if its lowest value is below this share of the highest.
const NEAR_ZERO: f64 = 0.5;

impl Range {
    /// The range of all values that can be drawn, with a margin; none if there are none.
    pub(crate) fn of(values: impl Iterator<Item = f64>, scale: Scale) -> Option<Self> {
        let values = values.filter(|&value| can_draw(value, scale)).map(|value| forward(value, scale));
        let range = values.fold(None, |range: Option<Self>, value| match range {
            None => Some(Self { low: value, high: value }),
            Some(range) => Some(Self { low: range.low.min(value), high: range.high.max(value) }),
        })?;
        let length = range.high - range.low;
        let least = match scale {
            Scale::Linear if length == 0.0 && range.low == 0.0 => 2.0,
            // From half to double, so that a length has its neighbours next to it.
            Scale::Log if length == 0.0 => 2.0 * std::f64::consts::LN_2,
            Scale::Linear => LEAST * range.low.abs().max(range.high.abs()),
            Scale::Log => std::f64::consts::LN_2,
        };
        let space = (ROOM * length).max((least - length) / 2.0);
        Some(Self { low: backward(range.low - space, scale), high: backward(range.high + space, scale) })
    }

    /// The same range with its ends at most about half a step from the first and the last step.
    pub(crate) fn within_a_step(self, steps: impl Iterator<Item = f64> + Clone) -> Self {
        let (first, last) = (steps.clone().fold(f64::INFINITY, f64::min), steps.fold(f64::NEG_INFINITY, f64::max));
        Self { low: self.low.max(first - 0.6), high: self.high.min(last + 0.6) }
    }

    /// The same range starting at 0 if 0 is near, for axes on which heights are compared.
    pub(crate) fn down_to_zero(self) -> Self {
        let Self { low, high } = self;
        let near = |low: f64, high: f64| high > 0.0 && low < NEAR_ZERO * high && low > -2.0 * ROOM * high;
        match () {
            () if near(low, high) => Self { low: 0.0, high },
            () if near(-high, -low) => Self { low, high: 0.0 },
            () => self,
        }
    }
}

fn forward(value: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => value.ln(),
    }
}

fn backward(value: f64, scale: Scale) -> f64 {
    match scale {
        Scale::Linear => value,
        Scale::Log => value.exp(),
    }
}

/// An axis with its position.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Ruler {
    scale: Scale,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Ruler {
    /// The axis that maps a range to an interval of positions.
    pub(crate) fn new(range: Range, scale: Scale, from: f64, to: f64) -> Self {
        Self { scale, low: forward(range.low, scale), high: forward(range.high, scale), from, to }
    }

    /// The position of a number, inside or outside the axis; none if it cannot be drawn.
    pub(crate) fn place(self, value: f64) -> Option<f64> {
        let share = (forward(value, self.scale) - self.low) / (self.high - self.low);
        let place = self.from + share * (self.to - self.from);
        (can_draw(value, self.scale) && place.is_finite()).then_some(place)
    }

    /// The position of a number, clamped to the axis.
    pub(crate) fn clamped(self, value: f64) -> f64 {
        let (least, most) = (self.from.min(self.to), self.from.max(self.to));
        match self.place(value) {
            Some(place) => place.clamp(least, most),
            None if value > 1.0 => self.to,
            None => self.from,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logarithmic_axis_spaces_equal_ratios_evenly() {
        let ruler = Ruler::new(Range { low: 1.0, high: 100.0 }, Scale::Log, 0.0, 200.0);
        assert!((ruler.place(10.0).unwrap() - 100.0).abs() < 1e-9);
        assert_eq!((ruler.place(0.0), ruler.place(f64::NAN)), (None, None));
        assert_eq!([0.0, -3.0, 1e9].map(|value| ruler.clamped(value)), [0.0, 0.0, 200.0]);
    }

    #[test]
    fn a_single_value_has_space_on_both_sides() {
        let range = Range::of([8.0].into_iter(), Scale::Log).unwrap();
        assert!((range.low - 4.0).abs() < 1e-9 && (range.high - 16.0).abs() < 1e-9);
        assert_eq!(Range::of([0.0].into_iter(), Scale::Linear), Some(Range { low: -1.0, high: 1.0 }));
    }

    #[test]
    fn values_that_cannot_be_drawn_give_no_range() {
        assert_eq!(Range::of([f64::NAN, f64::INFINITY, 1e300].into_iter(), Scale::Linear), None);
        assert_eq!(Range::of([0.0, -1.0].into_iter(), Scale::Log), None);
    }

    #[test]
    fn a_linear_axis_starts_at_zero_if_it_is_near() {
        let range = |low, high| Range { low, high }.down_to_zero();
        assert_eq!(range(1.0, 10.0), Range { low: 0.0, high: 10.0 });
        assert_eq!(range(9.0, 10.0), Range { low: 9.0, high: 10.0 });
        assert_eq!(range(-5.0, 10.0), Range { low: -5.0, high: 10.0 });
    }
}
