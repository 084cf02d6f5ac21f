//! Device work: kernels, graphs, copies, memsets, synchronisations.

use super::table::Row;
use super::{Reader, places::GlobalId};
use crate::{activity::category, fields::StoredValue, names::NameId, value::Value};

/// The common columns of device work, in this order.
const COMMON: [&str; 7] = ["start", "end", "deviceId", "streamId", "correlationId", "?contextId", "?globalPid"];

/// Device work that is not on a track yet.
struct Work<'w> {
    category: &'static str,
    name: NameId,
    fields: &'w [(&'static str, Option<Value<'w>>)],
}

impl Reader<'_> {
    /// Reads the tables of device activity.
    pub fn device_tables(&mut self) {
        self.each("CUPTI_ACTIVITY_KIND_KERNEL", &KERNEL, Self::kernel);
        self.each("CUPTI_ACTIVITY_KIND_GRAPH_TRACE", &["?graphId"], Self::graph);
        self.each("CUPTI_ACTIVITY_KIND_MEMCPY", &["bytes", "copyKind", "?srcKind", "?dstKind"], Self::copy);
        self.each("CUPTI_ACTIVITY_KIND_MEMSET", &["bytes", "?value", "?memKind"], Self::memset);
        self.each("CUPTI_ACTIVITY_KIND_SYNCHRONIZATION", &["syncType", "?eventId"], Self::sync);
    }

    /// Passes the rows of a table to a function: all columns, and those after the common ones.
    fn each(&mut self, table: &str, columns: &[&str], accept: fn(&mut Self, &Row<'_>, &Row<'_>)) {
        let all: Vec<&str> = COMMON.iter().chain(columns).copied().collect();
        self.rows(table, &all, |reader, row| accept(reader, row, &row.after(COMMON.len())));
    }

    fn kernel(&mut self, row: &Row<'_>, own: &Row<'_>) {
        let name =
            self.strings.name(own.int(0), &mut self.builder).or(self.strings.name(own.int(1), &mut self.builder));
        let name = name.unwrap_or_else(|| self.builder.name("unnamed kernel"));
        let triple = |at: usize| Some(format!("[{}, {}, {}]", own.int(at)?, own.int(at + 1)?, own.int(at + 2)?));
        let (grid, block) = (triple(2), triple(5));
        let shared = own.int(9).map(|bytes| bytes.saturating_add(own.int(10).unwrap_or(0)));
        let fields = [
            ("registers per thread", own.int(8).map(Value::Int)),
            ("shared memory", shared.map(Value::Int)),
            ("grid", grid.as_deref().map(Value::Str)),
            ("block", block.as_deref().map(Value::Str)),
            ("graph id", own.int(11).filter(|&id| id != 0).map(Value::Int)),
            ("graph node id", own.int(12).filter(|&id| id != 0).map(Value::Int)),
        ];
        self.work(row, Work { category: category::KERNEL, name, fields: &fields });
    }

    fn graph(&mut self, row: &Row<'_>, own: &Row<'_>) {
        let id = own.int(0);
        let name = self.builder.name("CUDA graph");
        let fields = [("graph id", id.map(Value::Int))];
        self.work(row, Work { category: category::GRAPH, name, fields: &fields });
    }

    fn copy(&mut self, row: &Row<'_>, own: &Row<'_>) {
        let kind = copy_kind(own.int(1));
        let (from, to) = (memory_kind(own.int(2), kind.1), memory_kind(own.int(3), kind.2));
        let name = self.builder.name(&format!("Memcpy {} ({from} -> {to})", kind.0));
        let fields = [("bytes", own.int(0).map(Value::Int)), ("kind", Some(Value::Str(kind.0)))];
        self.work(row, Work { category: category::COPY, name, fields: &fields });
    }

    fn memset(&mut self, row: &Row<'_>, own: &Row<'_>) {
        let name = self.builder.name(&format!("Memset ({})", memory_kind(own.int(2), "Device")));
        let fields = [("bytes", own.int(0).map(Value::Int)), ("value", own.int(1).map(Value::Int))];
        self.work(row, Work { category: category::MEMSET, name, fields: &fields });
    }

    fn sync(&mut self, row: &Row<'_>, own: &Row<'_>) {
        let kind = match own.int(0) {
            Some(1) => "Event Sync",
            Some(2) => "Stream Wait Event",
            Some(3) => "Stream Sync",
            Some(4) => "Context Sync",
            _ => "Sync",
        };
        let name = self.builder.name(kind);
        let fields =
            [("cuda_sync_kind", Some(Value::Str(kind))), ("wait_on_cuda_event_id", own.int(1).map(Value::Int))];
        self.work(row, Work { category: category::DEVICE_SYNC, name, fields: &fields });
    }

    /// Puts work on the track of its stream, and stores its correlation id.
    fn work(&mut self, row: &Row<'_>, work: Work<'_>) {
        let Some((start, length)) = self.interval(row.int(0), row.int(1)) else { return };
        let (device, stream) = (row.int(2).unwrap_or(0), row.int(3).unwrap_or(0));
        let pid = row.int(6).map_or(0, |id| GlobalId(id).pid());
        let track = self.places.stream(pid, device, stream, &mut self.builder);
        let category = self.builder.name(work.category);
        let span = self.builder.span_named(track, start, length, work.name, category);
        let common = [
            ("device", Some(Value::Int(device))),
            ("context", row.int(5).map(Value::Int)),
            ("stream", Some(Value::Int(stream))),
            ("correlation", row.int(4).map(Value::Int)),
        ];
        let mut fields: Vec<(NameId, StoredValue)> = common
            .iter()
            .chain(work.fields)
            .filter_map(|(name, value)| Some((self.builder.name(name), self.builder.stored((*value)?))))
            .collect();
        self.builder.set_span_fields(span, &mut fields);
        if let Some(correlation @ 1..) = row.int(4) {
            self.launches.work(correlation_of(pid, correlation), span);
        }
    }
}

/// The columns of a kernel after the common ones.
const KERNEL: [&str; 13] = [
    "demangledName",
    "?shortName",
    "?gridX",
    "?gridY",
    "?gridZ",
    "?blockX",
    "?blockY",
    "?blockZ",
    "?registersPerThread",
    "?staticSharedMemory",
    "?dynamicSharedMemory",
    "?graphId",
    "?graphNodeId",
];

/// Correlation ids are unique per process; CUPTI counts them in 32 bits.
pub fn correlation_of(pid: i64, correlation: i64) -> u64 {
    (pid as u64) << 32 | correlation as u64 & 0xffff_ffff
}

/// The abbreviation of a kind of copy, and the kinds of memory that it implies.
fn copy_kind(kind: Option<i64>) -> (&'static str, &'static str, &'static str) {
    match kind {
        Some(1) => ("HtoD", "Host", "Device"),
        Some(2) => ("DtoH", "Device", "Host"),
        Some(3) => ("HtoA", "Host", "Array"),
        Some(4) => ("AtoH", "Array", "Host"),
        Some(5) => ("AtoA", "Array", "Array"),
        Some(6) => ("AtoD", "Array", "Device"),
        Some(7) => ("DtoA", "Device", "Array"),
        Some(8) => ("DtoD", "Device", "Device"),
        Some(9) => ("HtoH", "Host", "Host"),
        Some(10) => ("PtoP", "Device", "Device"),
        Some(11) => ("HtoD", "Managed", "Managed"),
        Some(12) => ("DtoH", "Managed", "Managed"),
        Some(13) => ("DtoD", "Managed", "Managed"),
        _ => ("unknown", "Unknown", "Unknown"),
    }
}

fn memory_kind(kind: Option<i64>, implied: &'static str) -> &'static str {
    match kind {
        Some(0) => "Pageable",
        Some(1) => "Pinned",
        Some(2 | 5) => "Device",
        Some(3) => "Array",
        Some(4 | 6) => "Managed",
        _ => implied,
    }
}
