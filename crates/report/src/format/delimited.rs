//! Comma- and tab-separated values: a header and flat rows.
//!
//! Facts and notes are not written: every line after the header is a row.
//!
//! Names come from other people's programs, and spreadsheets execute cells that look like a formula. Text that starts
//! with `=`, `+`, `-`, `@` or `'` therefore gets a `'` in front; numbers are unchanged. Characters that are invisible or
//! reorder text are written as `\u{…}`, and so is a backslash before `u{`. Both are reversible: replace every
//! `\u{…}` by its character, then drop one leading `'`.

use std::{borrow::Cow, io};

use csv::WriterBuilder;

use crate::machine::{self, Machine};
use crate::table::{Cell, Table};
use crate::visible::is_hidden;

pub(super) fn write(table: &Table, delimiter: u8, out: &mut dyn io::Write) -> io::Result<()> {
    let columns = machine::columns(table);
    let mut writer = WriterBuilder::new().delimiter(delimiter).from_writer(out);
    writer.write_record(columns.clone().map(|(_, column)| column.key.as_bytes()))?;
    for row in &table.rows {
        let cells = columns.clone().map(|(at, _)| row.get(at).unwrap_or(&Cell::Empty));
        writer.write_record(cells.map(|cell| field(Machine::from(cell))))?;
    }
    writer.flush()
}

/// A cell as it is written.
fn field(cell: Machine<'_>) -> String {
    let is_text = matches!(cell, Machine::Text(_));
    let text = cell.into_field();
    if !is_text {
        return text.into_owned();
    }
    let text = escaped(&text);
    let is_formula = text.starts_with(['=', '+', '-', '@', '\'']) && text.parse::<f64>().is_err();
    if is_formula { format!("'{text}") } else { text.into_owned() }
}

/// Text with invisible characters as `\u{…}`. Line ends and tabs stay, because the text is quoted.
fn escaped(text: &str) -> Cow<'_, str> {
    let is_kept = |letter: char| matches!(letter, '\n' | '\r' | '\t') || !is_hidden(letter);
    if text.chars().all(is_kept) && !text.contains("\\u{") {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for (at, letter) in text.char_indices() {
        if is_kept(letter) && !text[at..].starts_with("\\u{") {
            shown.push(letter);
        } else {
            shown.push_str(&format!("\\u{{{:x}}}", letter as u32));
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spreadsheet_formulas_are_escaped_and_numbers_are_not() {
        let of = |text: &str| field(Machine::Text(text));
        let marked = ["=cmd|' /C calc'!A0", "+1+1", "-x", "@SUM(A1)", "'quoted"].map(of);
        assert_eq!(marked, ["'=cmd|' /C calc'!A0", "'+1+1", "'-x", "'@SUM(A1)", "''quoted"]);
        assert_eq!(["-1.5", "+3", "a=b", "", "aten::mm"].map(of), ["-1.5", "+3", "a=b", "", "aten::mm"]);
        assert_eq!(field(Machine::Digits("-1.5".to_owned())), "-1.5");
    }

    #[test]
    fn invisible_characters_are_written_as_reversible_escapes() {
        let of = |text: &str| field(Machine::Text(text));
        assert_eq!(of("a\u{9b}31mb\u{202e}c\u{1b}"), "a\\u{9b}31mb\\u{202e}c\\u{1b}");
        assert_eq!(of("literal \\u{9b} and \\n"), "literal \\u{5c}u{9b} and \\n");
        assert_eq!(of("two\nlines\tand a tab"), "two\nlines\tand a tab");
    }
}
