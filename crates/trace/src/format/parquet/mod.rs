//! Parquet tables of traces and runs, for query engines such as DuckDB and Spark. Write-only.
//!
//! A dataset is a folder with one folder per table. The files of a trace are in `TABLE/run=RUN/rank=RANK/`, and these two
//! partition columns are not repeated inside the files. A file appears whole or not at all.

mod columns;
mod tables;

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::{io, sync::Arc};

use ::parquet::basic::{Compression, Encoding};
use ::parquet::errors::ParquetError;
use ::parquet::file::{
    metadata::{KeyValue, ParquetMetaDataReader},
    properties::{EnabledStatistics, WriterProperties},
    writer::SerializedFileWriter,
};
use ::parquet::schema::types::{ColumnPath, Type};

use self::columns::Texts;
pub use self::{
    columns::{Cells, Column},
    tables::{flows, marks, spans, values},
};
use super::WriteError;

/// The version of the tables. New columns do not raise it.
pub const SCHEMA: u32 = 1;

/// The largest number of rows in a row group: it is in memory, encoded, until it is complete.
const GROUP_ROWS: usize = 1 << 20;

/// The largest number of rows in a file.
const FILE_ROWS: usize = 16 << 20;

/// The largest dictionary of a column. Beyond it, values are stored one by one.
const DICTIONARY_BYTES: usize = 4 << 20;

/// A dataset, and the run and rank whose files are written.
#[derive(Debug, Clone)]
pub struct Part {
    /// The folder of the dataset.
    pub dataset: PathBuf,
    /// The run.
    pub run: String,
    /// The rank, counted from 0.
    pub rank: u64,
    /// Entries for the metadata of every file, in addition to the schema version and the table.
    pub metadata: Vec<(String, String)>,
}

impl Part {
    /// The folder of a table.
    pub fn folder(&self, table: &str) -> PathBuf {
        self.dataset.join(table).join(format!("run={}", escaped(&self.run))).join(format!("rank={}", self.rank))
    }

    /// Replaces the rows of a table. Without rows, the table has no file.
    pub fn write(&self, table: &str, rows: usize, columns: &[Column<'_>]) -> Result<(), WriteError> {
        self.write_in_files_of(table, rows, columns, FILE_ROWS)
    }

    /// The same with another number of rows per file.
    fn write_in_files_of(
        &self,
        table: &str,
        rows: usize,
        columns: &[Column<'_>],
        most: usize,
    ) -> Result<(), WriteError> {
        let folder = self.folder(table);
        let failed = |path: &Path, source| WriteError::Write { path: path.to_owned(), source };
        let files = rows.div_ceil(most);
        if files > 0 {
            fs::create_dir_all(&folder).map_err(|source| failed(&folder, source))?;
        }
        for number in 0..files {
            let (path, first) = (folder.join(format!("part-{number}.parquet")), number * most);
            let written = write_file(&path, &self.entries(table), columns, first..rows.min(first + most));
            written.map_err(|source| failed(&path, source))?;
        }
        remove_others(&folder, files).map_err(|source| failed(&folder, source))
    }

    /// An entry of the metadata of a table's first file; none if there is no such file or entry.
    pub fn stored(&self, table: &str, key: &str) -> Option<String> {
        let file = File::open(self.folder(table).join("part-0.parquet")).ok()?;
        let metadata = ParquetMetaDataReader::new().parse_and_finish(&file).ok()?;
        let entries = metadata.file_metadata().key_value_metadata()?;
        entries.iter().find(|entry| entry.key == key)?.value.clone()
    }

    fn entries(&self, table: &str) -> Vec<KeyValue> {
        let own = [("laptime.schema", SCHEMA.to_string()), ("laptime.table", table.to_owned())];
        let own = own.map(|(key, value)| KeyValue::new(key.to_owned(), value));
        own.into_iter()
            .chain(self.metadata.iter().map(|(key, value)| KeyValue::new(key.clone(), value.clone())))
            .collect()
    }
}

/// A name as the value of a partition: Hive's escapes, which DuckDB and Spark decode.
fn escaped(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'+' | b',' | b'@' => {
                escaped.push(byte.into())
            }
            _ => escaped.push_str(&format!("%{byte:02X}")),
        }
    }
    escaped
}

/// Removes files of an earlier, longer export and those that a killed one left unfinished.
fn remove_others(folder: &Path, files: usize) -> io::Result<()> {
    let entries = match fs::read_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        entries => entries?,
    };
    for entry in entries {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        let number = name.strip_prefix("part-").and_then(|rest| rest.strip_suffix(".parquet")?.parse::<usize>().ok());
        if number.is_some_and(|number| number >= files) || (name.starts_with(".part-") && name.ends_with(".tmp")) {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Writes a file under a temporary name, flushes it to the disk and renames it.
fn write_file(
    path: &Path,
    entries: &[KeyValue],
    columns: &[Column<'_>],
    rows: std::ops::Range<usize>,
) -> io::Result<()> {
    let (folder, name) = (path.parent().unwrap_or(Path::new(".")), path.file_name().unwrap_or_default());
    let unfinished = folder.join(format!(".{}.{}.tmp", name.to_string_lossy(), std::process::id()));
    let written = fill(&unfinished, entries, columns, rows).and_then(|()| {
        fs::rename(&unfinished, path)?;
        // The new name is on the disk when the folder is.
        File::open(folder)?.sync_all()
    });
    if written.is_err() {
        // The incomplete file is useless; removing it fails only if it was never created.
        let _ = fs::remove_file(&unfinished);
    }
    written
}

fn fill(path: &Path, entries: &[KeyValue], columns: &[Column<'_>], rows: std::ops::Range<usize>) -> io::Result<()> {
    let mut schema = Vec::new();
    for column in columns {
        schema.push(Arc::new(column.schema().map_err(io_error)?));
    }
    let schema = Type::group_type_builder("table").with_fields(schema).build().map_err(io_error)?;
    let file = File::create(path)?;
    let mut writer =
        SerializedFileWriter::new(file, Arc::new(schema), Arc::new(properties(columns, entries))).map_err(io_error)?;
    let mut names = Texts::default();
    let mut first = rows.start;
    while first < rows.end {
        let next = rows.end.min(first + GROUP_ROWS);
        let mut group = writer.next_row_group().map_err(io_error)?;
        for column in columns {
            column.write(first..next, &mut group, &mut names).map_err(io_error)?;
        }
        group.close().map_err(io_error)?;
        first = next;
    }
    writer.into_inner().map_err(io_error)?.sync_all()
}

fn properties(columns: &[Column<'_>], entries: &[KeyValue]) -> WriterProperties {
    let builder = WriterProperties::builder()
        .set_compression(Compression::SNAPPY)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_dictionary_page_size_limit(DICTIONARY_BYTES)
        .set_offset_index_disabled(true)
        .set_created_by(format!("laptime {}", env!("CARGO_PKG_VERSION")))
        .set_key_value_metadata(Some(entries.to_vec()));
    let differences = columns.iter().filter(|column| matches!(column.cells, Cells::Delta(_)));
    differences
        .fold(builder, |builder, column| {
            let path = ColumnPath::from(&*column.name);
            builder
                .set_column_dictionary_enabled(path.clone(), false)
                .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED)
        })
        .build()
}

/// The cause, as the system reported it if it did.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(error) => *error,
            Err(source) => io::Error::other(source),
        },
        other => io::Error::other(other),
    }
}

#[cfg(test)]
mod tests;
