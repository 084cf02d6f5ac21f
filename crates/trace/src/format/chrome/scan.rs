//! Searches in bytes, eight at a time: white space, the ends of strings, numbers.

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGHS: u64 = 0x8080_8080_8080_8080;

/// The length from which strings are searched with wider registers, which have a higher initial cost.
const SHORT: usize = 32;

#[inline(always)]
fn word(bytes: &[u8], at: usize) -> Option<u64> {
    let word = bytes.get(at..at + 8)?;
    word.try_into().ok().map(u64::from_le_bytes)
}

/// The position of the first byte above the space; the end if there is none.
pub fn after_white_space(bytes: &[u8], mut at: usize) -> usize {
    while let Some(word) = word(bytes, at) {
        // Adding carries into the highest bit of each byte that is above the space.
        let above = (((word & !HIGHS) + 0x5f * ONES) | word) & HIGHS;
        if above != 0 {
            return at + (above.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
    at + bytes[at.min(bytes.len())..].iter().take_while(|&&byte| byte <= b' ').count()
}

/// The position of the first quote or backslash.
#[inline(always)]
pub fn quote_or_escape(bytes: &[u8], start: usize) -> Option<usize> {
    let mut at = start;
    while let Some(word) = word(bytes, at) {
        let hit = (zero_bytes(word ^ (ONES * b'"' as u64)) | zero_bytes(word ^ (ONES * b'\\' as u64))) & HIGHS;
        if hit != 0 {
            return Some(at + (hit.trailing_zeros() / 8) as usize);
        }
        at += 8;
        if at - start >= SHORT {
            break;
        }
    }
    memchr::memchr2(b'"', b'\\', bytes.get(at..)?).map(|found| at + found)
}

/// Sets the highest bit of the lowest byte that is zero; the bits of the bytes above it are meaningless.
const fn zero_bytes(word: u64) -> u64 {
    word.wrapping_sub(ONES) & !word
}

/// Whether a byte may follow a number.
fn ends_number(byte: u8) -> bool {
    matches!(byte, b',' | b'}' | b']') || byte <= b' '
}

/// A whole number of at most eighteen digits, and its end. Minus zero is not one.
#[inline(always)]
pub fn small_whole(bytes: &[u8], start: usize) -> Option<(i64, usize)> {
    let is_negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(is_negative);
    let (value, end) = digits(bytes, first);
    let is_number = end > first && end - first <= 18 && ends_number(*bytes.get(end)?);
    if !is_number || (is_negative && value == 0) {
        return None;
    }
    Some((if is_negative { -(value as i64) } else { value as i64 }, end))
}

/// The largest whole number of microseconds whose nanoseconds fit.
const MOST_MICROS: u64 = i64::MAX as u64 / 1_000 - 1;

/// Parses microseconds as nanoseconds: digits with an optional fraction, of which three digits count. Also returns the end.
#[inline(always)]
pub fn plain_micros(bytes: &[u8], start: usize) -> Option<(u64, usize)> {
    let (micros, mut end) = digits(bytes, start);
    if end == start || end - start > 16 || micros > MOST_MICROS {
        return None;
    }
    let mut nanos = 1_000 * micros;
    if bytes.get(end) == Some(&b'.') {
        let first = end + 1;
        let (_, last) = digits(bytes, first);
        if last == first {
            return None;
        }
        let places = [100, 10, 1].iter().zip(&bytes[first..last]);
        nanos += places.map(|(place, digit)| place * u64::from(digit - b'0')).sum::<u64>();
        end = last;
    }
    ends_number(*bytes.get(end)?).then_some((nanos, end))
}

/// A decimal fraction of at most fifteen digits, and its end. Both its digits as a whole number and the power of ten are
/// exact doubles, so their quotient is the nearest one.
#[inline(always)]
pub fn small_fraction(bytes: &[u8], start: usize) -> Option<(f64, usize)> {
    const POWERS: [f64; 16] = [1e0, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15];
    let is_negative = bytes.get(start) == Some(&b'-');
    let first = start + usize::from(is_negative);
    let (whole, point) = digits(bytes, first);
    if point == first || bytes.get(point) != Some(&b'.') {
        return None;
    }
    let (fraction, end) = digits(bytes, point + 1);
    let places = end - point - 1;
    if places == 0 || end - first > 16 || !ends_number(*bytes.get(end)?) {
        return None;
    }
    let value = (whole * 10_u64.pow(places as u32) + fraction) as f64 / POWERS[places];
    Some((if is_negative { -value } else { value }, end))
}

/// The value of the following digits, and their end. With more than nineteen digits the value is meaningless.
#[inline(always)]
fn digits(bytes: &[u8], start: usize) -> (u64, usize) {
    let (mut value, mut at) = (0_u64, start);
    while let Some(word) = word(bytes, at) {
        let (found, count) = digits_of(word);
        if count == 8 {
            value = value.wrapping_mul(100_000_000).wrapping_add(found);
            at += 8;
            continue;
        }
        const POWERS: [u64; 8] = [1, 10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000];
        return (value.wrapping_mul(POWERS[count]).wrapping_add(found), at + count);
    }
    while let Some(digit) = bytes.get(at).map(|byte| byte.wrapping_sub(b'0')).filter(|&digit| digit <= 9) {
        value = value.wrapping_mul(10).wrapping_add(u64::from(digit));
        at += 1;
    }
    (value, at)
}

/// The value of the digits at the beginning of a word, and their number.
#[inline(always)]
fn digits_of(word: u64) -> (u64, usize) {
    let digits = word ^ (ONES * b'0' as u64);
    // Adding carries into the highest bit of each byte that is above nine.
    let others = (((digits & !HIGHS) + 0x76 * ONES) | digits) & HIGHS;
    let count = (others.trailing_zeros() / 8) as usize;
    // Moves the digits to the end of the word, after leading zeros.
    let digits = if count == 0 { 0 } else { digits << (64 - 8 * count) };
    let pairs = (digits.wrapping_mul(10)).wrapping_add(digits >> 8);
    let pairs = [pairs, pairs >> 16].map(|pairs| pairs & 0x0000_00ff_0000_00ff);
    let high = pairs[0].wrapping_mul(100 + (1_000_000 << 32));
    let low = pairs[1].wrapping_mul(1 + (10_000 << 32));
    (high.wrapping_add(low) >> 32, count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn searches_agree_with_a_byte_by_byte_search(bytes in proptest::collection::vec(any::<u8>(), 0..80), start in 0..80_usize) {
            let start = start.min(bytes.len());
            let found = bytes[start..].iter().position(|byte| matches!(byte, b'"' | b'\\')).map(|at| start + at);
            prop_assert_eq!(quote_or_escape(&bytes, start), found);
            let found = bytes[start..].iter().position(|&byte| byte > b' ').map_or(bytes.len(), |at| start + at);
            prop_assert_eq!(after_white_space(&bytes, start), found);
        }

        #[test]
        fn digits_are_the_number_that_they_spell(number in "[0-9]{0,19}", tail in "[,./:} ]{1,9}") {
            let text = format!("{number}{tail}");
            let value = number.parse::<u64>().unwrap_or(0);
            prop_assert_eq!(digits(text.as_bytes(), 0), (value, number.len()));
        }

        #[test]
        fn a_short_fraction_is_the_nearest_double(text in "-?[0-9]{1,9}\\.[0-9]{1,8}") {
            let expected = (text.len() < 17).then(|| text.parse::<f64>().unwrap().to_bits());
            let found = small_fraction(format!("{text},").as_bytes(), 0);
            if let Some(expected) = expected {
                prop_assert_eq!(found.map(|(value, end)| (value.to_bits(), end)), Some((expected, text.len())));
            } else if let Some((value, _)) = found {
                prop_assert_eq!(value.to_bits(), text.parse::<f64>().unwrap().to_bits());
            }
        }

        #[test]
        fn blanks_and_quotes_are_found_among_their_neighbours(bytes in "[ \t\n\r!\"#\\\\\\]\u{7f}\u{80}é]{0,60}") {
            let bytes = bytes.as_bytes();
            prop_assert_eq!(quote_or_escape(bytes, 0), bytes.iter().position(|byte| matches!(byte, b'"' | b'\\')));
            let found = bytes.iter().position(|&byte| byte > b' ').unwrap_or(bytes.len());
            prop_assert_eq!(after_white_space(bytes, 0), found);
        }
    }

    #[test]
    fn numbers_end_where_something_else_begins() {
        assert_eq!(small_whole(b"12,", 0), Some((12, 2)));
        assert_eq!(small_whole(b"-7}", 0), Some((-7, 2)));
        assert_eq!(small_whole(b"999999999999999999 ", 0), Some((999_999_999_999_999_999, 18)));
        for other in [&b"12"[..], b"1.5,", b"-0,", b"-,", b"1234567890123456789,", b"\"1\","] {
            assert_eq!(small_whole(other, 0), None, "{other:?}");
        }
        assert_eq!(plain_micros(b"5000.25,", 0), Some((5_000_250, 7)));
        assert_eq!(plain_micros(b"7.1234567}", 0), Some((7_123, 9)));
        assert_eq!(plain_micros(b"12]", 0), Some((12_000, 2)));
        assert_eq!(plain_micros(b"1763197385123456.7,", 0), Some((1_763_197_385_123_456_700, 18)));
        for other in [&b"1."[..], b"1.,", b"-1,", b"1e3,", b"9223372036854775.807,", b"3"] {
            assert_eq!(plain_micros(other, 0), None, "{other:?}");
        }
    }
}
