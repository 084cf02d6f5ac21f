//! Cells for programs: exact, unrounded, unit in the key of the column.
//!
//! The csv, tsv, json and jsonl formats share this, so that a value has the
//! same digits in all four.

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use crate::table::{Cell, Column, Show, Table};

/// A cell for programs.
#[derive(Debug, PartialEq)]
pub(crate) enum Machine<'a> {
    Missing,
    Text(&'a str),
    Bool(bool),
    Json(&'a serde_json::Value),
    /// A number in digits: milliseconds are exact, which an `f64` is not.
    Digits(String),
}

impl<'a> From<&'a Cell> for Machine<'a> {
    fn from(cell: &'a Cell) -> Self {
        match cell {
            cell if cell.is_empty() => Self::Missing,
            // Only people see intervals.
            Cell::Empty | Cell::Range(_) => Self::Missing,
            Cell::Text(text) | Cell::Name(text) => Self::Text(text),
            Cell::Tree { path, .. } => Self::Text(path),
            Cell::Bool(yes) => Self::Bool(*yes),
            Cell::Json(value) => Self::Json(value),
            Cell::Count(number) | Cell::Bytes(number) => Self::Digits(number.to_string()),
            Cell::Whole(number) => Self::Digits(number.to_string()),
            Cell::Number(number) | Cell::Share(number) | Cell::Change(number) => Self::Digits(shortest(*number)),
            Cell::Nanos(nanos) => Self::Digits(milliseconds(*nanos)),
            Cell::Shift(nanos) => {
                let sign = if *nanos < 0 { "-" } else { "" };
                Self::Digits(format!("{sign}{}", milliseconds(nanos.unsigned_abs())))
            }
        }
    }
}

impl<'a> Machine<'a> {
    /// Returns the field of a delimited file: nothing where the value is missing.
    pub(crate) fn into_field(self) -> Cow<'a, str> {
        match self {
            Self::Missing => "".into(),
            Self::Text(text) => text.into(),
            Self::Bool(yes) => yes.to_string().into(),
            Self::Json(value) => value.to_string().into(),
            Self::Digits(digits) => digits.into(),
        }
    }
}

impl Serialize for Machine<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Missing => serializer.serialize_none(),
            Self::Text(text) => serializer.serialize_str(text),
            Self::Bool(yes) => serializer.serialize_bool(*yes),
            Self::Json(value) => value.serialize(serializer),
            Self::Digits(digits) => {
                RawValue::from_string(digits.clone()).map_err(serde::ser::Error::custom)?.serialize(serializer)
            }
        }
    }
}

/// Returns the columns that programs see, each with its place in the table.
pub(crate) fn columns(table: &Table) -> impl Iterator<Item = (usize, &Column)> + Clone {
    table.columns.iter().enumerate().filter(|(_, column)| column.show != Show::HumanOnly)
}

/// Writes nanoseconds as milliseconds, exactly and without trailing zeros.
fn milliseconds(nanos: u64) -> String {
    let (whole, rest) = (nanos / 1_000_000, nanos % 1_000_000);
    if rest == 0 {
        return whole.to_string();
    }
    format!("{whole}.{rest:06}").trim_end_matches('0').to_owned()
}

/// Writes the shortest digits that read back as the same number.
fn shortest(number: f64) -> String {
    let plain = number == 0.0 || (1e-5..1e16).contains(&number.abs());
    if plain { format!("{number}") } else { format!("{number:e}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nanoseconds_are_written_as_exact_milliseconds() {
        let nanos = [0, 1, 1_234_567, 1_500_000, 42_000_000, u64::MAX];
        let expected = ["0", "0.000001", "1.234567", "1.5", "42", "18446744073709.551615"];
        assert_eq!(nanos.map(milliseconds), expected);
    }

    #[test]
    fn a_shift_keeps_its_sign() {
        let shown = [-1_500_000, 0, 250_000].map(|nanos| Machine::from(&Cell::Shift(nanos)).into_field().into_owned());
        assert_eq!(shown, ["-1.5", "0", "0.25"]);
    }

    #[test]
    fn numbers_are_written_in_the_fewest_digits() {
        let numbers = [0.0, 0.1, 3.0, -2.5, 1e300, 2.5e-9];
        assert_eq!(numbers.map(shortest), ["0", "0.1", "3", "-2.5", "1e300", "2.5e-9"]);
    }

    #[test]
    fn a_missing_value_is_an_empty_field_and_a_null() {
        for cell in [Cell::Empty, Cell::Number(f64::NAN)] {
            assert_eq!(serde_json::to_string(&Machine::from(&cell)).unwrap(), "null");
            assert_eq!(Machine::from(&cell).into_field(), "");
        }
    }
}
