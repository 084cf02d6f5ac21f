//! JSON: one object for the whole table, or one a line for each row.

use std::io;

use serde::{Serialize, Serializer};

use crate::machine::{self, Machine};
use crate::table::{Cell, Table};

/// Writes facts, rows and notes as one indented object.
pub(super) fn write_object(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut *out, &Whole(table))?;
    out.write_all(b"\n")
}

/// Writes each row as an object on a line of its own.
pub(super) fn write_lines(table: &Table, out: &mut dyn io::Write) -> io::Result<()> {
    for cells in &table.rows {
        serde_json::to_writer(&mut *out, &Row { table, cells })?;
        out.write_all(b"\n")?;
    }
    Ok(())
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
