//! The formats a table can be written in: one file each.

mod delimited;
pub mod html;
mod json;
mod markdown;
mod text;

pub(crate) use self::{markdown::escape_prose, text::PROSE};

use std::fmt;
use std::io;
use std::str::FromStr;

use laptime_analyze::Note;

use crate::table::Table;

laptime_trace::words! {
    /// An output format.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Format, ALL: name {
        /// Aligned columns for a terminal.
        Text = "text",
        /// A Markdown table.
        Md = "md",
        /// Comma-separated values with a header.
        Csv = "csv",
        /// Tab-separated values with a header.
        Tsv = "tsv",
        /// One object with the facts, the rows and the notes.
        Json = "json",
        /// One object per row and line.
        Jsonl = "jsonl",
    }
}

impl fmt::Display for Format {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(name: &str) -> Result<Self, UnknownFormat> {
        let known = Self::ALL.into_iter().find(|format| format.name() == name);
        known.ok_or_else(|| UnknownFormat { name: name.to_owned() })
    }
}

/// An unknown format.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown format `{name}`, expected {}", Format::ALL.map(Format::name).join(", "))]
pub struct UnknownFormat {
    /// The given name.
    pub name: String,
}

/// How a text table is drawn; other formats do not depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextStyle {
    /// How many columns the terminal has.
    pub width: usize,
    /// Whether the header is bold and lines are dim.
    pub colour: bool,
    /// Whether all notes and the legend are shown.
    pub verbose: bool,
}

impl TextStyle {
    /// Plain text of this width.
    pub fn plain(width: usize) -> Self {
        Self { width, colour: false, verbose: false }
    }
}

/// How many notes people see without `--verbose`.
pub(crate) const MOST_NOTES: usize = 3;

/// The notes and the legend for people: `note: … [id]`, then how many more there are.
pub(crate) fn note_lines(table: &Table, verbose: bool) -> Vec<String> {
    let is_shown = |note: &&Note| verbose || !note.is_minor;
    let most = if verbose { usize::MAX } else { MOST_NOTES };
    let shown: Vec<&Note> = table.warnings.iter().filter(is_shown).collect();
    let mut lines: Vec<String> = shown.iter().take(most).map(|note| format!("note: {note}")).collect();
    match shown.len().saturating_sub(most) {
        0 => {}
        1 => lines.push("1 more note: `--verbose` shows it".to_owned()),
        more => lines.push(format!("{more} more notes: `--verbose` shows them")),
    }
    if verbose {
        lines.extend(table.legend.iter().cloned());
    }
    lines
}

/// Escapes a sentence, except for text in backticks, which `code` writes.
fn escape_around_code(sentence: &str, escape: fn(&str) -> String, code: fn(&str) -> String) -> String {
    let parts: Vec<&str> = sentence.split('`').collect();
    if parts.len().is_multiple_of(2) {
        return escape(sentence);
    }
    parts.iter().enumerate().map(|(at, part)| if at % 2 == 0 { escape(part) } else { code(part) }).collect()
}

/// Writes a table.
pub fn write(table: &Table, format: Format, style: TextStyle, out: &mut dyn io::Write) -> io::Result<()> {
    match format {
        Format::Text => text::write(table, style, out),
        Format::Md => markdown::write(table, style.verbose, out),
        Format::Csv => delimited::write(table, b',', out),
        Format::Tsv => delimited::write(table, b'\t', out),
        Format::Json => json::write_object(table, out),
        Format::Jsonl => json::write_lines(table, out),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_format_is_parsed_from_its_name() {
        for format in Format::ALL {
            assert_eq!(format.to_string().parse(), Ok(format));
        }
    }

    #[test]
    fn an_unknown_format_lists_the_known_ones() {
        let error = "xml".parse::<Format>().unwrap_err();
        let expected = "unknown format `xml`, expected text, md, csv, tsv, json, jsonl";
        assert_eq!(error.to_string(), expected);
    }
}
