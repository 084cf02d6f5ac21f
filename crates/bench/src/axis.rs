//! Axes: what a plan varies, and how values are written.
//!
//! `1024`, `f32,bf16`, several words, and ranges: `128-4096*2` doubles from 128 up to 4096, `1-8+1` counts from 1 to 8.

use std::collections::HashSet;

use laptime_trace::run::AxisValue;

/// Why the values of an axis cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "the messages say what the errors are")]
pub enum AxisError {
    #[error("a value is missing in `{text}`")]
    Missing { text: String },
    #[error("the range `{text}` ends before it starts")]
    Backwards { text: String },
    #[error("the range `{text}` never reaches its end: the step must be at least 1, the factor at least 2")]
    Endless { text: String },
    #[error("the range `{text}` starts at 0 and cannot grow by a factor")]
    FromZero { text: String },
    #[error("the range `{text}` has more than {MOST_VALUES} values")]
    TooMany { text: String },
}

/// The maximum number of values per axis.
pub const MOST_VALUES: usize = 100_000;

/// Parses the values of an axis from the words after its flag. Each word is a list of values and ranges.
///
/// A value given twice is used once.
pub fn parse_values<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Vec<AxisValue>, AxisError> {
    parse_values_by(words, AxisValue::parse)
}

/// Does the same for names: a word that is not a range is kept as text, even if it looks like a number.
pub(crate) fn parse_names<'a>(words: impl IntoIterator<Item = &'a str>) -> Result<Vec<AxisValue>, AxisError> {
    let values = parse_values_by(words, |name| AxisValue::Text(name.to_owned()))?;
    Ok(values.into_iter().map(|value| AxisValue::Text(value.to_string())).collect())
}

fn parse_values_by<'a>(
    words: impl IntoIterator<Item = &'a str>,
    single: impl Fn(&str) -> AxisValue,
) -> Result<Vec<AxisValue>, AxisError> {
    let mut values: Vec<AxisValue> = Vec::new();
    let mut seen = HashSet::new();
    for word in words {
        for part in word.split(',').map(str::trim) {
            if part.is_empty() {
                return Err(AxisError::Missing { text: word.to_owned() });
            }
            for value in Range::parse(part).map_or_else(|| Ok(vec![single(part)]), |range| range?.values())? {
                if seen.insert(value.to_string()) {
                    values.push(value);
                }
            }
        }
    }
    if values.is_empty() { Err(AxisError::Missing { text: String::new() }) } else { Ok(values) }
}

struct Range<'a> {
    text: &'a str,
    first: i64,
    last: i64,
    step: Step,
}

enum Step {
    Add(i64),
    Multiply(i64),
}

impl<'a> Range<'a> {
    /// Parses a range: two whole numbers with a dash between them, followed by a step or a factor. A name that contains
    /// a dash is not a range.
    fn parse(text: &'a str) -> Option<Result<Self, AxisError>> {
        let (ends, step) = match (text.split_once('*'), text.split_once('+')) {
            (Some((ends, factor)), _) => (ends, Step::Multiply(factor.parse().ok()?)),
            (None, Some((ends, step))) => (ends, Step::Add(step.parse().ok()?)),
            (None, None) => return None,
        };
        let (first, last) = ends.split_once('-')?;
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        Some(Self { text, first, last, step }.checked())
    }

    fn checked(self) -> Result<Self, AxisError> {
        let text = self.text.to_owned();
        match self.step {
            _ if self.first > self.last => Err(AxisError::Backwards { text }),
            Step::Add(step) if step < 1 => Err(AxisError::Endless { text }),
            Step::Multiply(factor) if factor < 2 => Err(AxisError::Endless { text }),
            Step::Multiply(_) if self.first < 1 => Err(AxisError::FromZero { text }),
            _ => Ok(self),
        }
    }

    fn values(&self) -> Result<Vec<AxisValue>, AxisError> {
        let next = |&at: &i64| match self.step {
            Step::Add(step) => at.checked_add(step),
            Step::Multiply(factor) => at.checked_mul(factor),
        };
        let all = std::iter::successors(Some(self.first), next).take_while(|&at| at <= self.last);
        let values: Vec<AxisValue> = all.take(MOST_VALUES + 1).map(AxisValue::Int).collect();
        if values.len() > MOST_VALUES { Err(AxisError::TooMany { text: self.text.to_owned() }) } else { Ok(values) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn values(words: &[&str]) -> Result<String, AxisError> {
        let values = parse_values(words.iter().copied())?;
        Ok(values.iter().map(ToString::to_string).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn every_form_of_values_is_parsed() {
        for (words, expected) in [
            (&["1024"][..], "1024"),
            (&["f32,bf16"], "f32 bf16"),
            (&["128", "256", "512"], "128 256 512"),
            (&["128-4096*2"], "128 256 512 1024 2048 4096"),
            (&["100-1000*3"], "100 300 900"),
            (&["1-8+1"], "1 2 3 4 5 6 7 8"),
            (&["1-8+3", "64"], "1 4 7 64"),
            (&["1-4*2,3,2"], "1 2 4 3"),
            (&["Qwen3-0.6B", "a-b*c"], "Qwen3-0.6B a-b*c"),
            (&["0.5, true"], "0.5 true"),
        ] {
            assert_eq!(values(words).unwrap(), expected, "{words:?}");
        }
    }

    #[test]
    fn invalid_values_are_reported() {
        let text = |text: &str| text.to_owned();
        assert_eq!(values(&["8-1+1"]), Err(AxisError::Backwards { text: text("8-1+1") }));
        assert_eq!(values(&["1-8+0"]), Err(AxisError::Endless { text: text("1-8+0") }));
        assert_eq!(values(&["1-8*1"]), Err(AxisError::Endless { text: text("1-8*1") }));
        assert_eq!(values(&["0-8*2"]), Err(AxisError::FromZero { text: text("0-8*2") }));
        assert_eq!(values(&["1,,2"]), Err(AxisError::Missing { text: text("1,,2") }));
        assert_eq!(values(&[]), Err(AxisError::Missing { text: text("") }));
        assert_eq!(values(&["1-10000000+1"]), Err(AxisError::TooMany { text: text("1-10000000+1") }));
    }

    proptest! {
        #[test]
        fn a_range_ascends_between_its_ends(first in 1_i64..1000, length in 0_i64..100_000, step in 1_i64..50) {
            for text in [format!("{first}-{}+{step}", first + length), format!("{first}-{}*{}", first + length, step + 1)] {
                let Ok(values) = parse_values([text.as_str()]) else { continue };
                let numbers: Vec<i64> =
                    values.iter().map(|value| if let AxisValue::Int(number) = value { *number } else { -1 }).collect();
                prop_assert_eq!(numbers[0], first);
                prop_assert!(numbers.is_sorted() && numbers.iter().all(|number| *number <= first + length));
            }
        }

        #[test]
        fn any_text_is_parsed_or_refused(text in ".{0,40}") {
            let _ = parse_values([text.as_str()]);
        }
    }
}
