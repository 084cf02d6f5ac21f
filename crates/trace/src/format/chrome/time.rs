//! Times in Chrome's JSON: decimal microseconds, read and written without rounding.

use std::fmt;

/// Nanoseconds, written as microseconds with three decimals.
pub struct Micros(pub u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

/// Parses a JSON number of microseconds as whole nanoseconds; none if it is not a number or out of range.
///
/// A double is only accurate to a quarter of a microsecond for times since 1970, so the digits are parsed individually.
/// Digits below a nanosecond are cut off. Some writers put their numbers in quotes.
pub fn nanos(text: &str) -> Option<i64> {
    let text = text.trim_matches('"');
    let (negative, digits) = text.strip_prefix('-').map_or((false, text), |rest| (true, rest));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let is_plain = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit());
    if !is_plain(whole) || !is_plain(fraction) || whole.is_empty() {
        return rounded(text.parse().ok()?);
    }
    let whole: i64 = whole.parse().ok()?;
    let thousandths = fraction.bytes().chain(std::iter::repeat(b'0')).take(3);
    let fraction = thousandths.fold(0, |sum, digit| 10 * sum + i64::from(digit - b'0'));
    let nanos = whole.checked_mul(1_000)?.checked_add(fraction)?;
    Some(if negative { -nanos } else { nanos })
}

/// Microseconds with an exponent.
fn rounded(micros: f64) -> Option<i64> {
    let nanos = (micros * 1e3).round();
    (nanos.is_finite() && nanos.abs() < i64::MAX as f64).then_some(nanos as i64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_time_comes_back_to_the_nanosecond(time in 0..i64::MAX as u64) {
            prop_assert_eq!(nanos(&Micros(time).to_string()), Some(time as i64));
        }
    }

    #[test]
    fn microseconds_since_1970_keep_their_nanoseconds() {
        assert_eq!(nanos("1763197385123456.789"), Some(1_763_197_385_123_456_789));
    }

    #[test]
    fn other_spellings_are_understood() {
        assert_eq!(nanos("12"), Some(12_000));
        assert_eq!(nanos("1.5e3"), Some(1_500_000));
        assert_eq!(nanos("-0.25"), Some(-250));
        assert_eq!(nanos("\"7.25\""), Some(7_250));
        assert_eq!(nanos("0.12345"), Some(123));
    }

    #[test]
    fn invalid_times_are_rejected() {
        for text in ["", "null", "NaN", "1e400", "99999999999999999999", "1.2.3", "{}", "-", "\"\""] {
            assert_eq!(nanos(text), None, "{text}");
        }
    }
}
