//! Comma- and tab-separated values: a header and flat rows.
//!
//! Facts and notes are not written: every line after the header is a row.

use std::io;

use csv::WriterBuilder;

use crate::machine::{self, Machine};
use crate::table::{Cell, Table};

pub(super) fn write(table: &Table, delimiter: u8, out: &mut dyn io::Write) -> io::Result<()> {
    let columns = machine::columns(table);
    let mut writer = WriterBuilder::new().delimiter(delimiter).from_writer(out);
    writer.write_record(columns.clone().map(|(_, column)| column.key.as_bytes()))?;
    for row in &table.rows {
        let cells = columns.clone().map(|(at, _)| row.get(at).unwrap_or(&Cell::Empty));
        writer.write_record(cells.map(|cell| Machine::from(cell).into_field().into_owned()))?;
    }
    writer.flush()
}
