//! The metadata of an export: strings, processes, threads, devices, the clock.

use std::collections::HashMap;

use serde_json::{Map, Value as Json};

use super::{Reader, places::GlobalId};
use crate::metadata::{DEVICES, SOURCE};
use crate::{builder::TraceBuilder, names::NameId, time::Origin};

/// A longer string is the content of a captured file and not a name.
const LONGEST_NAME: usize = 1 << 16;

/// The strings of an export by id.
#[derive(Debug, Default)]
pub struct Strings {
    texts: HashMap<i64, Box<str>>,
    names: HashMap<i64, NameId>,
}

impl Strings {
    /// The name of an id.
    pub fn name(&mut self, id: Option<i64>, builder: &mut TraceBuilder) -> Option<NameId> {
        let id = id?;
        if let Some(&name) = self.names.get(&id) {
            return Some(name);
        }
        let name = builder.name(self.texts.get(&id)?);
        self.names.insert(id, name);
        Some(name)
    }

    pub fn text(&self, id: Option<i64>) -> Option<&str> {
        self.texts.get(&id?).map(|text| &**text)
    }
}

/// Times before the clock's zero are shifted by at most this much: an hour.
const FARTHEST_SHIFT: i64 = 3_600_000_000_000;

impl Reader<'_> {
    /// Reads the tables that events refer to.
    pub fn about(&mut self) {
        let Self { connection, tables, strings, .. } = self;
        tables.rows(connection, "StringIds", &["id", "value"], 2, |row| {
            if let (Some(id), Some(text)) = (row.int(0), row.text(1))
                && text.len() <= LONGEST_NAME
            {
                strings.texts.insert(id, text.into());
            }
        });
        self.processes();
        self.devices();
        self.clock();
    }

    fn processes(&mut self) {
        let Self { connection, tables, strings, places, .. } = self;
        tables.rows(connection, "PROCESSES", &["globalPid", "name", "?pid"], 2, |row| {
            if let (Some(id), Some(name)) = (row.int(0), row.text(1)) {
                places.name_process(GlobalId(id).pid(), name);
            }
        });
        tables.rows(connection, "ThreadNames", &["globalTid", "nameId"], 2, |row| {
            if let (Some(id), Some(name)) = (row.int(0), strings.text(row.int(1))) {
                places.name_thread(GlobalId(id), name);
            }
        });
    }

    fn devices(&mut self) {
        let Self { connection, tables, builder, .. } = self;
        let columns = ["id", "?name", "?totalMemory", "?smCount", "?computeMajor", "?computeMinor", "?threadsPerWarp"];
        let keys = ["id", "name", "totalGlobalMem", "numSms", "computeMajor", "computeMinor", "warpSize"];
        let mut devices = Vec::new();
        tables.rows(connection, "TARGET_INFO_GPU", &columns, 1, |row| {
            let value = |at: usize| row.int(at).map(Json::from).or_else(|| row.text(at).map(Json::from));
            let known = keys.iter().enumerate().filter_map(|(at, key)| Some(((*key).to_owned(), value(at)?)));
            devices.push(Json::Object(known.collect::<Map<_, _>>()));
        });
        if !devices.is_empty() {
            builder.metadata.set(DEVICES, &Json::from(devices).to_string());
        }
        let mut version = String::new();
        tables.rows(connection, "META_DATA_EXPORT", &["name", "value"], 2, |row| {
            if row.text(0) == Some("EXPORT_PRODUCT_VERSION") {
                version = format!(" {}", row.text(1).unwrap_or_default());
            }
        });
        builder.metadata.set_text(SOURCE, &format!("Nsight Systems{version}"));
    }

    /// Finds the origin. Times count from the start of the machine's clock, and some exports have a few before it.
    fn clock(&mut self) {
        let mut unix = None;
        let Self { connection, tables, .. } = self;
        let columns = ["utcEpochNs", "?systemClockNs"];
        tables.rows(connection, "TARGET_INFO_SESSION_START_TIME", &columns, 1, |row| {
            unix = row.int(0).and_then(|nanos| nanos.checked_sub(row.int(1).unwrap_or(0)));
        });
        let earliest = self.earliest().unwrap_or(0);
        self.shift = if (-FARTHEST_SHIFT..0).contains(&earliest) { -earliest } else { 0 };
        let name = if self.shift == 0 { "zero of the profiler's clock" } else { "first event of the trace" };
        let unix_nanos = unix.and_then(|nanos| nanos.checked_sub(self.shift));
        self.builder.origin = Origin { name: name.to_owned(), unix_nanos };
    }

    fn earliest(&self) -> Option<i64> {
        let tables = ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_KERNEL", "NVTX_EVENTS"];
        let earliest = |table: &&str| {
            let query = format!("SELECT min(start) FROM \"{table}\" WHERE start >= {}", -FARTHEST_SHIFT);
            self.connection.query_row(&query, [], |row| row.get::<_, Option<i64>>(0)).ok()?
        };
        tables.iter().filter_map(earliest).min()
    }
}
