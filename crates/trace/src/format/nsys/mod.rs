//! SQLite exports of Nsight Systems (`nsys export --type sqlite`).
//!
//! Tables become spans in torch.profiler's terms: kernels, copies and memsets on the streams of their devices, calls on
//! host threads, connected by correlation id; NVTX ranges as stages. Exports differ by version and tracing
//! options: a missing column causes a warning, a missing table counts as empty.
//!
//! The file is opened as immutable: nothing is locked, and no file is created next to it.

mod about;
mod device;
mod host;
mod places;
mod table;

use std::path::Path;

use rusqlite::{Connection, OpenFlags, limits::Limit};

use self::{places::Places, table::Tables};
use crate::format::{ReadError, Unsupported, launches::Launches};
use crate::{builder::TraceBuilder, time::Nanos, trace::Trace};

/// A longer string or blob is not read.
const LONGEST_VALUE: i32 = 64 << 20;

/// Reads an export.
pub fn read(path: &Path) -> Result<Trace, ReadError> {
    let connection = open(path).map_err(|error| ReadError::Database(error.into()))?;
    let tables = Tables::of(&connection).map_err(|error| ReadError::Database(error.into()))?;
    let known = ["CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"];
    if !known.iter().any(|name| tables.has(name)) {
        if tables.has("META_DATA_EXPORT") {
            return Err(ReadError::Unsupported(Unsupported {
                format: "an Nsight Systems export without CUDA calls, kernels and NVTX ranges",
                way: "record them: `nsys profile --trace=cuda,nvtx PROGRAM`",
            }));
        }
        let found = "an SQLite database without the tables of an Nsight Systems export".to_owned();
        return Err(ReadError::NotATrace { found });
    }
    let mut reader = Reader::new(&connection, tables);
    reader.about();
    reader.device_tables();
    reader.host_tables();
    reader.finish()
}

fn open(path: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let connection = Connection::open_with_flags(address(path), flags)?;
    connection.set_limit(Limit::SQLITE_LIMIT_LENGTH, LONGEST_VALUE)?;
    // Definitions inside a damaged or hostile file are not executed.
    connection.pragma_update(None, "trusted_schema", false)?;
    connection.pragma_update(None, "query_only", true)?;
    Ok(connection)
}

/// The path as a URI that marks the file as immutable.
fn address(path: &Path) -> String {
    let absolute = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let mut address = "file:".to_owned();
    for &byte in absolute.as_os_str().as_encoded_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte) {
            address.push(char::from(byte));
        } else {
            address.push_str(&format!("%{byte:02X}"));
        }
    }
    address + "?immutable=1"
}

/// An export while it is converted.
struct Reader<'c> {
    connection: &'c Connection,
    tables: Tables,
    builder: TraceBuilder,
    places: Places,
    launches: Launches,
    strings: about::Strings,
    /// The offset of all times, so that none is negative.
    shift: i64,
    impossible_times: u64,
}

impl<'c> Reader<'c> {
    fn new(connection: &'c Connection, tables: Tables) -> Self {
        Self {
            connection,
            tables,
            builder: TraceBuilder::default(),
            places: Places::default(),
            launches: Launches::default(),
            strings: about::Strings::default(),
            shift: 0,
            impossible_times: 0,
        }
    }

    /// A time of the export as a time of the trace; none, and counted, if it cannot be represented.
    fn moment(&mut self, time: Option<i64>) -> Option<Nanos> {
        let shifted = time.and_then(|time| time.checked_add(self.shift)).and_then(|time| u64::try_from(time).ok());
        if shifted.is_none() {
            self.impossible_times += 1;
        }
        shifted.map(Nanos)
    }

    /// Start and length of a row; none, and counted, if they cannot be represented.
    fn interval(&mut self, start: Option<i64>, end: Option<i64>) -> Option<(Nanos, Nanos)> {
        let start = self.moment(start)?;
        let end = self.moment(end)?;
        if end < start {
            self.impossible_times += 1;
            return None;
        }
        Some((start, end.saturating_sub(start)))
    }

    fn finish(mut self) -> Result<Trace, ReadError> {
        let unexplained = self.launches.connect(&mut self.builder);
        let misplaced = self.builder.discard_misplaced();
        self.builder.warn(self.impossible_times, "rows without a valid time were skipped");
        self.builder.warn(misplaced, "rows do not fit their track and were skipped");
        self.builder.warn(unexplained, "device spans have no launching call");
        let passed_over = self.tables.passed_over(self.connection);
        self.builder.warnings.extend(self.tables.warnings);
        self.builder.warnings.extend(passed_over);
        Ok(self.builder.build()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_holds_any_path() {
        assert_eq!(address(Path::new("/a b/c?d#e%.sqlite")), "file:/a%20b/c%3Fd%23e%25.sqlite?immutable=1");
    }
}
