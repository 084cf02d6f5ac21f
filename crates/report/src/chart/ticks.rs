//! The ticks of an axis.
//!
//! Lengths and sizes have ticks at powers of two, others at 1, 2 and 5 times powers of ten; as many as fit.

use super::quantity::{Quantity, Unit, with_unit};
use super::{Scale, axis::Range};

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Tick {
    pub(crate) value: f64,
    pub(crate) label: String,
}

/// The ticks of an axis.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Ticks {
    pub(crate) ticks: Vec<Tick>,
    /// The unit of all ticks; empty if they have none, or each its own.
    pub(crate) unit: &'static str,
}

/// Chooses as many ticks as `fits` allows.
pub(crate) fn ticks(quantity: Quantity, scale: Scale, range: Range, fits: impl Fn(&[Tick]) -> bool) -> Ticks {
    let slack = 1e-9 * (range.high - range.low);
    let is_inside = |value: &f64| (range.low - slack..=range.high + slack).contains(value);
    let choices = choices(quantity, scale, range).into_iter();
    let choices = choices.map(|values| values.into_iter().filter(is_inside).collect::<Vec<f64>>());
    let laid_out = choices.map(|values| labelled(quantity, &values));
    let mut last = Ticks { ticks: Vec::new(), unit: "" };
    for ticks in laid_out {
        if fits(&ticks.ticks) {
            return ticks;
        }
        last = ticks;
    }
    // Nothing fits: one tick is better than overlapping ones.
    last.ticks.truncate(1);
    last
}

/// Sets of ticks, the densest first.
fn choices(quantity: Quantity, scale: Scale, range: Range) -> Vec<Vec<f64>> {
    let ratios = match scale {
        Scale::Linear => Vec::new(),
        Scale::Log if quantity == Quantity::Bytes => binary(range, &[1, 2, 5, 10, 20, 40, 80, 160, 320]),
        Scale::Log if quantity == Quantity::Tokens => binary(range, &[1, 2, 3, 4, 6, 8, 16, 32, 64, 128, 256]),
        Scale::Log => decimal(range),
    };
    // Over a short range there are too few powers.
    if ratios.first().is_some_and(|densest| densest.len() >= 2) { ratios } else { even(quantity, range) }
}

/// Every power of two, every second and so on.
fn binary(range: Range, steps: &[i32]) -> Vec<Vec<f64>> {
    let powers = |&step: &i32| -> Vec<f64> {
        let (first, last) = (range.low.log2() / f64::from(step), range.high.log2() / f64::from(step));
        let powers = whole_between(first, last).map(|at| 2_f64.powf(at as f64 * f64::from(step)));
        powers.collect()
    };
    steps.iter().map(powers).collect()
}

fn decimal(range: Range) -> Vec<Vec<f64>> {
    let inside = |value: &f64| (range.low..=range.high).contains(value);
    let tens = |step: i32, digits: &[i32]| -> Vec<f64> {
        let (first, last) = (range.low.log10() / f64::from(step), range.high.log10() / f64::from(step));
        // Parsed from text: `10_f64.powi(-5)` is not the number nearest to 1e-5.
        let value =
            |digit: i32, at: i64| format!("{digit}e{}", at * i64::from(step)).parse::<f64>().unwrap_or(f64::NAN);
        let values = whole_between(first - 1.0, last).flat_map(|at| digits.iter().map(move |&digit| value(digit, at)));
        values.filter(inside).collect()
    };
    let decades = [1, 2, 3, 5, 10, 20, 50, 100].map(|step| tens(step, &[1]));
    std::iter::once(tens(1, &[1, 2, 5])).chain(decades).collect()
}

/// Evenly spaced ticks: 1, 2 or 5 times a power of ten.
fn even(quantity: Quantity, range: Range) -> Vec<Vec<f64>> {
    let unit = if quantity == Quantity::Bytes { quantity.unit_of(range.high).size } else { 1.0 };
    let (low, high) = (range.low / unit, range.high / unit);
    let power = ((high - low) / 10.0).log10().floor();
    let steps = (0..2).flat_map(|more| [1, 2, 5].map(|digit| (digit, power + f64::from(more))));
    let steps = steps.filter(|(_, power)| !quantity.is_whole() || *power >= 0.0);
    // Counted in parsed steps, so that 0.3 is not 0.30000000000000004.
    let value = move |digit: i64, at: i64, power: f64| -> f64 {
        format!("{}e{power}", at.saturating_mul(digit)).parse().unwrap_or(f64::NAN)
    };
    // A count from 1 starts there, whatever the steps are.
    let one = (quantity == Quantity::Count && (0.0..1.0).contains(&low)).then_some(1.0);
    let values = steps.map(|(digit, power)| {
        let step = digit as f64 * 10_f64.powf(power);
        let others = whole_between(low / step, high / step).map(|at| value(digit, at, power) * unit);
        one.into_iter().chain(others.filter(|value| one.is_none_or(|one| *value > one))).collect()
    });
    values.collect()
}

/// Whole numbers between two others, at most a few if there are too many.
fn whole_between(first: f64, last: f64) -> std::ops::RangeInclusive<i64> {
    const MOST: i64 = 1_200;
    // Slack for rounding errors of a logarithm.
    let (first, last) = ((first - 1e-9).ceil() as i64, (last + 1e-9).floor() as i64);
    first..=last.min(first.saturating_add(MOST))
}

fn labelled(quantity: Quantity, values: &[f64]) -> Ticks {
    let common = common_unit(quantity, values);
    let label = |value: f64| match common {
        Some(unit) if unit.name == "×" || unit.name == "%" => with_unit(&quantity.mark(value, unit), unit),
        Some(unit) => quantity.mark(value, unit),
        None => {
            let unit = quantity.unit_of(value);
            with_unit(&quantity.mark(value, unit), unit)
        }
    };
    let ticks = values.iter().map(|&value| Tick { value, label: label(value) }).collect();
    let name = common.map_or("", |unit| unit.name);
    Ticks { ticks, unit: if matches!(name, "×" | "%") { "" } else { name } }
}

/// The unit in which all ticks are short; none if there is none.
fn common_unit(quantity: Quantity, values: &[f64]) -> Option<Unit> {
    let sizes = values.iter().map(|value| value.abs()).filter(|&size| size > 0.0);
    let (least, most) = (sizes.clone().fold(f64::INFINITY, f64::min), sizes.fold(0.0, f64::max));
    let fits = |unit: &Unit, shortest: f64, longest: f64| least / unit.size >= shortest && most / unit.size < longest;
    let units = quantity.units();
    let within = |shortest: f64, longest: f64| units.iter().rev().find(|unit| fits(unit, shortest, longest));
    match units {
        [unit] => Some(*unit),
        // Powers of two are not round in another unit, and 1024 MiB should be 1 GiB.
        _ if quantity == Quantity::Bytes => within(1.0, 1024.0).copied(),
        _ => within(1.0, 1_000.0).or(within(0.01, 10_000.0)).copied(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(quantity: Quantity, scale: Scale, low: f64, high: f64, most: usize) -> (Vec<String>, &'static str) {
        let ticks = ticks(quantity, scale, Range { low, high }, |ticks| ticks.len() <= most);
        (ticks.ticks.into_iter().map(|tick| tick.label).collect(), ticks.unit)
    }

    #[test]
    fn length_ticks_are_powers_of_two() {
        let lengths = shown(Quantity::Tokens, Scale::Log, 400.0, 20_000.0, 8).0;
        assert_eq!(lengths, ["512", "1024", "2048", "4096", "8192", "16384"]);
        assert_eq!(shown(Quantity::Tokens, Scale::Log, 400.0, 20_000.0, 3).0, ["1024", "4096", "16384"]);
    }

    #[test]
    fn time_ticks_are_one_two_and_five_in_one_unit() {
        let times = shown(Quantity::Nanos, Scale::Log, 90e3, 2.2e6, 8);
        assert_eq!(times, (vec!["0.1", "0.2", "0.5", "1", "2"].into_iter().map(String::from).collect(), "ms"));
    }

    #[test]
    fn distant_time_ticks_have_their_own_units() {
        let times = shown(Quantity::Nanos, Scale::Log, 900.0, 20e9, 9);
        let expected = ["1 µs", "10 µs", "100 µs", "1 ms", "10 ms", "100 ms", "1 s", "10 s"];
        assert_eq!(times, (expected.map(String::from).into(), ""));
    }

    #[test]
    fn size_ticks_are_powers_of_two() {
        assert_eq!(shown(Quantity::Bytes, Scale::Log, 3e6, 40e6, 6).0, ["4", "8", "16", "32"]);
        let far = shown(Quantity::Bytes, Scale::Log, 1e6, 70e9, 5).0;
        assert_eq!(far, ["1 MiB", "32 MiB", "1 GiB", "32 GiB"]);
    }

    #[test]
    fn a_short_logarithmic_range_has_even_steps() {
        assert_eq!(shown(Quantity::Nanos, Scale::Log, 1.1e6, 1.45e6, 4).0, ["1.1", "1.2", "1.3", "1.4"]);
        assert_eq!(shown(Quantity::Ratio, Scale::Linear, 0.0, 3.2, 4).0, ["0×", "1×", "2×", "3×"]);
    }

    #[test]
    fn step_ticks_are_whole_numbers() {
        assert_eq!(shown(Quantity::Count, Scale::Linear, 0.9, 4.1, 8).0, ["1", "2", "3", "4"]);
        assert_eq!(shown(Quantity::Count, Scale::Linear, 0.4, 25.6, 6).0, ["1", "5", "10", "15", "20", "25"]);
    }

    #[test]
    fn linear_ticks_are_round_numbers() {
        assert_eq!(shown(Quantity::Number, Scale::Linear, 0.0, 0.55, 6).0, ["0", "0.1", "0.2", "0.3", "0.4", "0.5"]);
        assert_eq!(
            shown(Quantity::Share, Scale::Linear, 0.0, 1.05, 6).0,
            ["0 %", "20 %", "40 %", "60 %", "80 %", "100 %"]
        );
    }
}
