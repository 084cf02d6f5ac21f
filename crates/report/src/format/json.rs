//! JSON: one object for the whole table, or one a line for each row. Characters that could act on a terminal (U+009B, marks
//! that reverse text) are written as `\u` escapes, which every reader turns back.

use std::io;

use serde::{Serialize, Serializer};

use crate::machine::{self, Machine};
use crate::table::{Cell, Table};
use crate::visible::is_hidden;

/// Writes facts, rows and notes as one indented object.
pub(super) fn write_object(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(Escaped(&mut *out), &Whole(table))?;
    out.write_all(b"\n")
}

/// Writes each row as an object on a line of its own.
pub(super) fn write_lines(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    for cells in &table.rows {
        serde_json::to_writer(Escaped(&mut *out), &Row { table, cells })?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Writes what serde_json writes, with escapes for hidden characters. These occur in strings only, and serde_json never
/// splits a character between two writes.
struct Escaped<'a>(&'a mut dyn io::Write);

impl io::Write for Escaped<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.write_all(bytes)?;
        Ok(bytes.len())
    }

    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let is_escaped = |char: char| !char.is_ascii_whitespace() && is_hidden(char);
        let Some(text) = std::str::from_utf8(bytes).ok().filter(|text| text.contains(is_escaped)) else {
            return self.0.write_all(bytes);
        };
        for part in text.split_inclusive(is_escaped) {
            let last = part.chars().next_back().filter(|char| is_escaped(*char));
            self.0.write_all(&part.as_bytes()[..part.len() - last.map_or(0, char::len_utf8)])?;
            for unit in last.into_iter().flat_map(|char| char.encode_utf16(&mut [0; 2]).to_vec()) {
                write!(self.0, "\\u{unit:04x}")?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
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
        map.serialize_entry("notes", &table.notes)?;
        if !table.warnings.is_empty() {
            let warnings = table.warnings.iter().map(|note| Warning { id: note.id, text: &note.text });
            map.serialize_entry("warnings", &warnings.collect::<Vec<_>>())?;
        }
        map.end()
    }
}

#[derive(Serialize)]
struct Warning<'a> {
    id: &'static str,
    text: &'a str,
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
    use crate::table::Column;

    #[test]
    fn hidden_characters_are_escapes_that_a_reader_turns_back() {
        let name = "a\u{9b}2J\u{202e}b\u{e0041}\u{feff}\tc é";
        let mut table = Table::new("rows", [Column::new("name", "name")]);
        table.push([Cell::text(name)]);
        let (mut whole, mut lines) = (Vec::new(), Vec::new());
        write_object(&table, &mut whole).unwrap();
        write_lines(&table, &mut lines).unwrap();
        let line = String::from_utf8(lines).unwrap();
        assert_eq!(line, "{\"name\":\"a\\u009b2J\\u202eb\\udb40\\udc41\\ufeff\\tc é\"}\n");
        let read: serde_json::Value = serde_json::from_slice(&whole).unwrap();
        assert_eq!(read["rows"][0]["name"], name);
    }
}
