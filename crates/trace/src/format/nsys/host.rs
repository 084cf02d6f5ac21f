//! Host activity: runtime and driver calls, profiler overhead, NVTX ranges and marks.

use std::collections::HashMap;

use super::table::Row;
use super::{Reader, device::correlation_of, places::GlobalId};
use crate::fields::{FieldBlock, StoredValue};
use crate::format::pairing::NO_END;
use crate::{activity::category, builder::SpanEntry, names::NameId, time::Nanos};

/// The kinds of NVTX events that are read, as numbered by `ENUM_NSYS_EVENT_TYPE`; the text variants come from files.
mod event {
    pub const MARKS: [i64; 2] = [34, 65];
    pub const PUSH_POP: [i64; 2] = [59, 70];
    pub const START_END: [i64; 2] = [60, 71];
    pub const DOMAIN: i64 = 75;
    /// Names of categories, threads, devices and the like, and the end of a domain.
    pub const NAMES: [i64; 9] = [33, 39, 64, 72, 73, 74, 76, 97, 98];
}

const NVTX: [&str; 11] = [
    "start",
    "eventType",
    "end",
    "?text",
    "?textId",
    "globalTid",
    "?domainId",
    "?endGlobalTid",
    "?int64Value",
    "?jsonText",
    "?jsonTextId",
];

impl Reader<'_> {
    /// Reads the tables of host activity.
    pub fn host_tables(&mut self) {
        let calls = ["start", "end", "nameId", "globalTid", "correlationId", "?eventClass", "?returnValue"];
        for table in ["CUPTI_ACTIVITY_KIND_RUNTIME", "CUPTI_ACTIVITY_KIND_DRIVER"] {
            self.rows(table, &calls, |reader, row| reader.call(row, table.ends_with("DRIVER")));
        }
        let overhead = ["start", "end", "nameId", "globalTid"];
        self.rows("CUPTI_ACTIVITY_KIND_OVERHEAD", &overhead, |reader, row| reader.overhead(row));
        self.nvtx();
    }

    pub fn rows(&mut self, table: &str, columns: &[&str], mut accept: impl FnMut(&mut Self, &Row<'_>)) {
        let mut tables = std::mem::take(&mut self.tables);
        tables.rows(self.connection, table, columns, 2, |row| accept(self, &row));
        self.tables = tables;
    }

    fn call(&mut self, row: &Row<'_>, is_driver: bool) {
        const DRIVER: i64 = 1;
        let Some((start, length)) = self.interval(row.int(0), row.int(1)) else { return };
        let name = self.strings.text(row.int(2)).map_or("unnamed call", without_version);
        let name = self.builder.name(name);
        let is_driver = is_driver || row.int(5) == Some(DRIVER);
        let category = if is_driver { category::DRIVER } else { category::RUNTIME };
        let id = GlobalId(row.int(3).unwrap_or(0));
        let span = self.host_span(id, start, length, name, category);
        let mut fields = Vec::new();
        if let Some(correlation) = row.int(4) {
            fields.push((self.builder.name("correlation"), StoredValue::Int(correlation)));
        }
        if let Some(error) = row.int(6).filter(|&value| value != 0) {
            fields.push((self.builder.name("return value"), StoredValue::Int(error)));
        }
        self.builder.set_span_fields(span, &mut fields);
        if let Some(correlation @ 1..) = row.int(4) {
            self.launches.call(correlation_of(id.pid(), correlation), span);
        }
    }

    fn overhead(&mut self, row: &Row<'_>) {
        let Some((start, length)) = self.interval(row.int(0), row.int(1)) else { return };
        let name = self.strings.name(row.int(2), &mut self.builder);
        let name = name.unwrap_or_else(|| self.builder.name("overhead"));
        self.host_span(GlobalId(row.int(3).unwrap_or(0)), start, length, name, category::OVERHEAD);
    }

    fn host_span(&mut self, id: GlobalId, start: Nanos, length: Nanos, name: NameId, category: &str) -> SpanEntry {
        let track = self.places.thread(id, &mut self.builder);
        let category = self.builder.name(category);
        self.builder.span_named(track, start, length, name, category)
    }

    /// Reads ranges and marks. Domains are read first: their names are in rows of the same table.
    fn nvtx(&mut self) {
        let mut domains: HashMap<(i64, i64), NameId> = HashMap::new();
        self.rows("NVTX_EVENTS", &NVTX, |reader, row| {
            if row.int(1) == Some(event::DOMAIN)
                && let (Some(domain), Some(name)) = (row.int(6), reader.nvtx_text(row))
            {
                domains.insert((GlobalId(row.int(5).unwrap_or(0)).pid(), domain), name);
            }
        });
        let before = self.tables.warnings.len();
        let (mut others, mut open) = (0_u64, Vec::new());
        let mut last = Nanos(0);
        self.rows("NVTX_EVENTS", &NVTX, |reader, row| match row.int(1) {
            Some(kind) if event::MARKS.contains(&kind) => reader.nvtx_mark(row),
            Some(kind) if event::PUSH_POP.contains(&kind) || event::START_END.contains(&kind) => {
                let Some((span, end)) = reader.nvtx_range(row, kind, &domains) else { return };
                match end {
                    Some(end) => last = last.max(end),
                    None => open.push(span),
                }
            }
            Some(kind) if kind == event::DOMAIN || event::NAMES.contains(&kind) => {}
            _ => others += 1,
        });
        // The second pass over the same table has the same missing columns.
        self.tables.warnings.truncate(before);
        self.close(&open, last);
        self.builder.warn(others, "NVTX events of other kinds were skipped");
    }

    fn nvtx_text(&mut self, row: &Row<'_>) -> Option<NameId> {
        let text = row.text(3).map(|text| self.builder.name(text));
        text.or_else(|| self.strings.name(row.int(4), &mut self.builder))
    }

    fn nvtx_mark(&mut self, row: &Row<'_>) {
        let Some(time) = self.moment(row.int(0)) else { return };
        let name = self.nvtx_text(row).unwrap_or(NameId::EMPTY);
        let track = self.places.thread(GlobalId(row.int(5).unwrap_or(0)), &mut self.builder);
        let category = self.builder.name(category::NVTX);
        self.builder.mark_named(track, time, name, category, FieldBlock::NONE);
    }

    /// Adds a range and its end; none if it was still open. A range that began and ended on its thread's stack goes on
    /// the thread, others on a track of their process.
    fn nvtx_range(
        &mut self,
        row: &Row<'_>,
        kind: i64,
        domains: &HashMap<(i64, i64), NameId>,
    ) -> Option<(SpanEntry, Option<Nanos>)> {
        let (start, length) = match row.int(2) {
            Some(end) => self.interval(row.int(0), Some(end))?,
            None => (self.moment(row.int(0))?, Nanos(0)),
        };
        let id = GlobalId(row.int(5).unwrap_or(0));
        let name = self.nvtx_text(row).unwrap_or(NameId::EMPTY);
        let is_on_thread = event::PUSH_POP.contains(&kind);
        let track = if is_on_thread {
            self.places.thread(id, &mut self.builder)
        } else {
            self.places.ranges(id.pid(), &mut self.builder)
        };
        let category = self.builder.name(category::NVTX);
        let span = self.builder.span_named(track, start, length, name, category);
        let mut fields = Vec::new();
        if let Some(&domain) = row.int(6).and_then(|domain| domains.get(&(id.pid(), domain))) {
            fields.push((self.builder.name("domain"), StoredValue::Str(domain)));
        }
        if let Some(value) = row.int(8) {
            fields.push((self.builder.name("payload"), StoredValue::Int(value)));
        }
        self.add_payload(row, &mut fields);
        self.builder.set_span_fields(span, &mut fields);
        Some((span, row.int(2).map(|_| start.saturating_add(length))))
    }

    /// Adds the members of a payload, such as NCCL's communicator and message size.
    fn add_payload(&mut self, row: &Row<'_>, fields: &mut Vec<(NameId, StoredValue)>) {
        let of_id = || self.strings.text(row.int(10)).map(str::to_owned);
        let Some(text) = row.text(9).map(str::to_owned).or_else(of_id) else { return };
        let Ok(members) = serde_json::from_str::<serde_json::Map<String, serde_json::Value>>(&text) else { return };
        for (name, value) in members {
            let value = match value {
                serde_json::Value::String(text) => StoredValue::Str(self.builder.name(&text)),
                serde_json::Value::Bool(value) => StoredValue::Bool(value),
                serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
                    (Some(number), _) => StoredValue::Int(number),
                    (None, Some(number)) => StoredValue::Uint(number),
                    (None, None) => StoredValue::Float(number.as_f64().unwrap_or(f64::NAN)),
                },
                _ => continue,
            };
            fields.push((self.builder.name(&name), value));
        }
    }

    /// Closes ranges that were still open at the end of the last one.
    fn close(&mut self, open: &[SpanEntry], last: Nanos) {
        for &span in open {
            let end = last.max(self.builder.start_of(span));
            self.builder.end_span(span, end);
            self.builder.leave_open(span);
        }
        self.builder.warn(open.len() as u64, NO_END);
    }
}

/// A call without its interface version: `cudaLaunchKernel_v7000`. A short version (`cuMemAlloc_v2`) is part of the
/// name.
fn without_version(name: &str) -> &str {
    match name.rsplit_once("_v") {
        Some((call, version)) if version.len() >= 4 && version.bytes().all(|byte| byte.is_ascii_digit()) => call,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_versions_are_removed_from_names() {
        for (name, call) in
            [("cudaMemcpyAsync_v3020", "cudaMemcpyAsync"), ("cuMemAlloc_v2", "cuMemAlloc_v2"), ("cudaFree", "cudaFree")]
        {
            assert_eq!(without_version(name), call);
        }
    }
}
