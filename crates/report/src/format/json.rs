//! JSON: one object for the whole table, or one object per row and line.
//!
//! Characters that are invisible or reorder text (C1 controls, direction marks) are written as JSON escapes, so that a
//! terminal or an editor shows the file as it is. Parsers see no difference.

use std::io;

use serde::{Serialize, Serializer};
use serde_json::json;

use crate::machine::{self, Machine};
use crate::table::{Cell, Table};
use crate::visible::is_hidden;

/// Writes facts, rows and notes as one indented object.
pub(super) fn write_object(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    write_escaped(&serde_json::to_string_pretty(&Whole(table))?, out)
}

/// Writes each row as an object on its own line.
pub(super) fn write_lines(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    for cells in &table.rows {
        write_escaped(&serde_json::to_string(&Row { table, cells })?, out)?;
    }
    Ok(())
}

/// Writes JSON on a line. Outside strings, JSON only has plain characters, so all others are inside strings.
fn write_escaped(json: &str, out: &mut dyn io::Write) -> io::Result<()> {
    let is_escaped = |letter: char| letter == '\u{7f}' || (!letter.is_ascii() && is_hidden(letter));
    for piece in json.split_inclusive(is_escaped) {
        let last = piece.chars().next_back().filter(|&letter| is_escaped(letter));
        let kept = last.map_or(piece.len(), |letter| piece.len() - letter.len_utf8());
        out.write_all(&piece.as_bytes()[..kept])?;
        for unit in last.iter().flat_map(|letter| letter.encode_utf16(&mut [0; 2]).to_vec()) {
            write!(out, "\\u{unit:04x}")?;
        }
    }
    out.write_all(b"\n")
}

struct Whole<'a>(&'a Table);

impl Serialize for Whole<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeMap;

        let Self(table) = self;
        let mut map = serializer.serialize_map(None)?;
        for fact in &table.facts {
            if let Some(key) = &fact.key {
                map.serialize_entry(key, &Machine::from(&fact.value))?;
            }
        }
        let rows: Vec<_> = table.rows.iter().map(|cells| Row { table, cells }).collect();
        map.serialize_entry(table.name, &rows)?;
        if !table.answer.is_empty() {
            map.serialize_entry("answer", &table.answer)?;
        }
        map.serialize_entry("notes", &table.notes)?;
        if !table.warnings.is_empty() {
            let warnings = table.warnings.iter().map(|note| json!({"id": note.id, "text": note.text}));
            map.serialize_entry("warnings", &warnings.collect::<Vec<_>>())?;
        }
        map.end()
    }
}

struct Row<'a> {
    table: &'a Table,
    cells: &'a [Cell],
}

impl Serialize for Row<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let cell = |at| Machine::from(self.cells.get(at).unwrap_or(&Cell::Empty));
        serializer.collect_map(machine::columns(self.table).map(|(at, column)| (&column.key, cell(at))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invisible_characters_are_escaped_and_parse_back() {
        let text = "a\u{9b}b\u{202e}c\u{7f}d\u{e0001}é層\n";
        let mut written = Vec::new();
        write_escaped(&serde_json::to_string(text).unwrap(), &mut written).unwrap();
        let written = String::from_utf8(written).unwrap();
        assert_eq!(written, "\"a\\u009bb\\u202ec\\u007fd\\udb40\\udc01é層\\n\"\n");
        assert_eq!(serde_json::from_str::<String>(&written).unwrap(), text);
    }
}
