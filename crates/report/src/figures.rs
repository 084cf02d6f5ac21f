//! Numbers for people: four figures, one unit per column.
//!
//! The unit is chosen from all values of a column, so that digits can be
//! compared down the column. A value that is too small for the unit but not
//! zero is written as `<0.001`.

/// The most decimals, so that one tiny value does not widen a column.
const DECIMALS: usize = 3;

/// A unit, and its size in stored units.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Unit {
    pub(crate) name: &'static str,
    size: u64,
}

impl Unit {
    const fn new(name: &'static str, size: u64) -> Self {
        Self { name, size }
    }
}

const TIMES: [Unit; 4] =
    [Unit::new("ns", 1), Unit::new("µs", 1_000), Unit::new("ms", 1_000_000), Unit::new("s", 1_000_000_000)];

const SIZES: [Unit; 5] = [
    Unit::new("B", 1),
    Unit::new("KiB", 1 << 10),
    Unit::new("MiB", 1 << 20),
    Unit::new("GiB", 1 << 30),
    Unit::new("TiB", 1 << 40),
];

/// Chooses the unit for durations in nanoseconds.
pub(crate) fn time_unit(nanos: impl Iterator<Item = u64> + Clone) -> Unit {
    unit(&TIMES, nanos)
}

/// Chooses the unit for sizes in bytes.
pub(crate) fn size_unit(bytes: impl Iterator<Item = u64> + Clone) -> Unit {
    unit(&SIZES, bytes)
}

/// Chooses the smallest unit in which the largest value has at most four
/// digits before the point.
///
/// The next smaller one is used, at the cost of a digit, if more than a
/// quarter of the values would otherwise have fewer than two figures. One
/// tiny value among many is no reason to use large numbers for all others.
fn unit(units: &[Unit], values: impl Iterator<Item = u64> + Clone) -> Unit {
    let largest = values.clone().max().unwrap_or(0);
    let chosen = units.iter().position(|unit| largest / unit.size < 10_000).unwrap_or(units.len() - 1);
    let smaller = units[chosen.saturating_sub(1)];
    let values = values.filter(|&value| value > 0);
    let faint = values.clone().filter(|&value| value < units[chosen].size / 100).count();
    let is_faint = faint * 4 > values.count();
    if is_faint && largest / smaller.size < 100_000 { smaller } else { units[chosen] }
}

/// Writes a stored amount in a unit.
pub(crate) fn amount(value: u64, unit: Unit) -> String {
    let decimals = if unit.size == 1 { 0 } else { DECIMALS };
    number(value as f64 / unit.size as f64, decimals)
}

/// Writes a difference of stored amounts in a unit, with its sign.
pub(crate) fn signed_amount(value: i64, unit: Unit) -> String {
    let text = amount(value.unsigned_abs(), unit);
    match value {
        0 => text,
        _ if text.starts_with('<') => {
            if value > 0 {
                text
            } else {
                format!(">-{}", &text[1..])
            }
        }
        1.. => format!("+{text}"),
        _ => format!("-{text}"),
    }
}

/// Writes a share of 1 as per cent, without the sign.
pub(crate) fn per_cent(share: f64) -> String {
    number(share * 100.0, 1)
}

/// Writes a relative difference as per cent with its sign, without the `%`.
pub(crate) fn signed_per_cent(change: f64) -> String {
    let text = per_cent(change);
    if change > 0.0 && !text.starts_with('<') { format!("+{text}") } else { text }
}

/// Writes a count with all its digits.
pub(crate) fn count(number: u64) -> String {
    thousands(&number.to_string())
}

/// Writes plain numbers of one column: whole ones whole, all others in four
/// figures, very large and very small ones with an exponent.
pub(crate) fn plain(value: f64, column_is_whole: bool) -> String {
    let size = value.abs();
    if size >= 1e12 || (size > 0.0 && size < 1e-3) {
        format!("{value:.3e}")
    } else if column_is_whole {
        thousands(&format!("{value}"))
    } else {
        number(value, DECIMALS)
    }
}

/// Writes a number in four significant figures and at most `decimals` decimals.
fn number(value: f64, decimals: usize) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let least = 10_f64.powi(-(decimals as i32));
    if value.abs() < least / 2.0 {
        return if value > 0.0 { format!("<{least}") } else { format!(">-{least}") };
    }
    let scientific = format!("{value:.3e}");
    let rounded: f64 = scientific.parse().unwrap_or(value);
    let exponent = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0_i32);
    let decimals = (3 - exponent).clamp(0, decimals as i32) as usize;
    // Rounded once: 54.149 in four figures is 54.15, which would become 54.2.
    let shown = if exponent > 3 { rounded } else { value };
    thousands(&format!("{shown:.decimals$}"))
}

/// Puts a comma before every third digit from the point: `402,118`.
pub fn thousands(digits: &str) -> String {
    let whole = digits.find('.').unwrap_or(digits.len());
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.char_indices() {
        let is_group = at < whole && (whole - at).is_multiple_of(3);
        if is_group && text.ends_with(|last: char| last.is_ascii_digit()) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Pads the numbers of a column so that their decimal points are aligned.
pub(crate) fn align_points(numbers: &mut [String]) {
    let tail = |number: &str| number.find('.').map_or(0, |point| number.len() - point);
    let longest = numbers.iter().map(|number| tail(number)).max().unwrap_or(0);
    for number in numbers.iter_mut().filter(|number| !number.is_empty()) {
        let missing = longest - tail(number);
        number.extend(std::iter::repeat_n(' ', missing));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_rounded_once() {
        assert_eq!([0.541_49, 0.918_51].map(per_cent), ["54.1", "91.9"]);
    }

    fn times<const N: usize>(nanos: [u64; N]) -> (&'static str, [String; N]) {
        let unit = time_unit(nanos.into_iter());
        (unit.name, nanos.map(|value| amount(value, unit)))
    }

    #[test]
    fn a_column_of_times_has_one_unit() {
        assert_eq!(times([84_123_456, 41_200]), ("ms", ["84.12".into(), "0.041".into()]));
        assert_eq!(times([950, 12]), ("ns", ["950".into(), "12".into()]));
        assert_eq!(times([5_200_000_000]), ("ms", ["5,200".into()]));
        assert_eq!(times([12_000_000_000]), ("s", ["12.00".into()]));
    }

    #[test]
    fn a_smaller_unit_is_used_if_many_values_would_lose_digits() {
        assert_eq!(times([84_123_456, 3_100]), ("µs", ["84,120".into(), "3.100".into()]));
    }

    #[test]
    fn one_tiny_value_does_not_decide_the_unit() {
        let (unit, shown) = times([84_123_456, 41_000_000, 9_000_000, 400]);
        assert_eq!((unit, shown[3].as_str()), ("ms", "<0.001"));
    }

    #[test]
    fn a_value_too_small_for_the_unit_is_not_shown_as_zero() {
        assert_eq!(times([900_000_000_000, 12, 0]), ("s", ["900.0".into(), "<0.001".into(), "0".into()]));
    }

    #[test]
    fn a_column_of_sizes_has_one_unit() {
        let sizes = [8 << 30, 3 << 19];
        let unit = size_unit(sizes.into_iter());
        assert_eq!((unit.name, sizes.map(|size| amount(size, unit))), ("MiB", ["8,192".into(), "1.500".into()]));
    }

    #[test]
    fn rounding_up_does_not_add_a_digit() {
        assert_eq!([999.96, 9.9996, 0.9999].map(|value| number(value, 3)), ["1,000", "10.00", "1.000"]);
    }

    #[test]
    fn shares_are_shown_as_per_cent_with_one_decimal() {
        assert_eq!([1.0, 0.4237, 0.0001, 0.0].map(per_cent), ["100.0", "42.4", "<0.1", "0"]);
    }

    #[test]
    fn changes_carry_their_sign() {
        assert_eq!([0.034, -0.2, 0.0, 0.0001, -0.0001].map(signed_per_cent), ["+3.4", "-20.0", "0", "<0.1", ">-0.1"]);
    }

    #[test]
    fn counts_keep_all_digits_and_separate_thousands() {
        assert_eq!([7, 999, 12_345, 1_234_567].map(count), ["7", "999", "12,345", "1,234,567"]);
    }

    #[test]
    fn plain_numbers_of_any_size_stay_short() {
        let shown = [1.5, -1234.56, 2e15, -3e-7].map(|value| plain(value, false));
        assert_eq!(shown, ["1.500", "-1,235", "2.000e15", "-3.000e-7"]);
        assert_eq!(plain(-12_345.0, true), "-12,345");
    }

    #[test]
    fn decimal_points_are_aligned() {
        let mut numbers = ["1,235", "12.35", "", "<0.001"].map(String::from);
        align_points(&mut numbers);
        assert_eq!(numbers, ["1,235    ", "12.35 ", "", "<0.001"]);
    }
}
