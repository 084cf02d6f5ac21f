//! A Markdown table, with facts as a list and notes as paragraphs below it.
//!
//! The source is aligned too, so that it can be read unrendered. A tree is
//! shown by indentation, because lines drawn with characters do not connect
//! between the rows of a rendered table.

use std::io;

use super::{escape_around_code, note_lines};
use crate::layout::{self, Shown, ShownCell};
use crate::table::Table;
use crate::visible::{visible, width};

/// One level of a tree; ordinary blanks at the start of a cell are dropped.
const INDENT: &str = "&emsp;";

pub(super) fn write(table: &Table, verbose: bool, out: &mut dyn io::Write) -> io::Result<()> {
    for sentence in &table.answer {
        writeln!(out, "{}\n", escape_prose(&visible(sentence)))?;
    }
    let columns: Vec<Rendered> = layout::columns(table).iter().map(Rendered::from).collect();
    if !columns.is_empty() {
        write_row(&columns, out, |column| column.pad(&column.header))?;
        write_row(&columns, out, Rendered::rule)?;
        for row in 0..table.rows.len() {
            write_row(&columns, out, |column| column.pad(&column.cells[row]))?;
        }
    }
    let facts = table.shown_facts().map(|(label, value)| format!("- {}: {}", escape(&visible(label)), escape(&value)));
    let facts: Vec<String> = facts.collect();
    if !facts.is_empty() {
        writeln!(out, "\n{}", facts.join("\n"))?;
    }
    for sentence in table.notes.iter().cloned().chain(note_lines(table, verbose)) {
        writeln!(out, "\n{}", escape_prose(&visible(&sentence)))?;
    }
    Ok(())
}

fn write_row(columns: &[Rendered], out: &mut dyn io::Write, cell: impl Fn(&Rendered) -> String) -> io::Result<()> {
    let cells: Vec<_> = columns.iter().map(cell).collect();
    writeln!(out, "| {} |", cells.join(" | "))
}

/// A column in the source of a Markdown table.
struct Rendered {
    header: String,
    cells: Vec<String>,
    is_numeric: bool,
    width: usize,
}

impl From<&Shown> for Rendered {
    fn from(column: &Shown) -> Self {
        let header = escape(&column.header);
        let source = |cell: &ShownCell| match column.is_numeric {
            true => cell.text.clone(),
            false => INDENT.repeat(cell.depth) + &escape(&cell.text),
        };
        let cells: Vec<_> = column.cells.iter().map(source).collect();
        let texts = cells.iter().chain([&header]);
        let width = texts.map(|text| width(text)).max().unwrap_or(0).max(3);
        Self { header, cells, is_numeric: column.is_numeric, width }
    }
}

impl Rendered {
    fn pad(&self, text: &str) -> String {
        let blanks = " ".repeat(self.width - width(text));
        if self.is_numeric { blanks + text } else { format!("{text}{blanks}") }
    }

    fn rule(&self) -> String {
        let dashes = "-".repeat(self.width - 1);
        if self.is_numeric { dashes + ":" } else { dashes + "-" }
    }
}

/// Escapes markup.
///
/// An underscore inside a word is not markup and stays: most stage names
/// have one.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    let mut before = ' ';
    let mut chars = text.chars().peekable();
    while let Some(char) = chars.next() {
        let is_word = |other: char| other.is_alphanumeric();
        let is_inside = is_word(before) && chars.peek().copied().is_some_and(is_word);
        match char {
            '<' => escaped.push_str("&lt;"),
            '&' => escaped.push_str("&amp;"),
            '_' if is_inside => escaped.push('_'),
            '\\' | '|' | '`' | '*' | '_' | '[' | ']' | '~' | '$' => escaped.extend(['\\', char]),
            char => escaped.push(char),
        }
        before = char;
    }
    escaped
}

/// Escapes a sentence, except for text in backticks.
pub(crate) fn escape_prose(sentence: &str) -> String {
    escape_around_code(sentence, escape, |code| format!("`{code}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_in_a_name_is_escaped() {
        let names = ["a|b", "</script>", "kv_fuse", "__init__", "R&D `x` *y*"];
        let expected = ["a\\|b", "&lt;/script>", "kv_fuse", "\\_\\_init\\_\\_", "R&amp;D \\`x\\` \\*y\\*"];
        assert_eq!(names.map(escape), expected);
    }

    #[test]
    fn text_in_backticks_is_not_escaped() {
        assert_eq!(escape_prose("Add `--by <KEY>` *now*"), "Add `--by <KEY>` \\*now\\*");
        assert_eq!(escape_prose("a ` b <c"), "a \\` b &lt;c");
    }
}
