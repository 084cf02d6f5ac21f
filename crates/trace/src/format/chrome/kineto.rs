//! Conventions of torch.profiler: streams as threads of a process that is a device, launches by correlation, memory as
//! instants.

use super::{batch::Batch, row::Row};
use crate::names::{NameId, Names};
use crate::{activity::Activity, builder::SpanEntry, fields::StoredValue, format::launches::Launches};

/// What a category says about an event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It is on a device stream.
    Device,
    /// It is on a device stream if it says which: other programs use the word too.
    PerhapsDevice,
    /// It is a runtime or driver call.
    Call,
    /// It is a flow from a launch to its work.
    LaunchFlow,
    Other,
}

impl Class {
    pub fn of(category: &str) -> Self {
        let activity = Activity::of(category, "");
        match category {
            "kernel" | "Kernel" | "Memcpy" | "Memset" => Self::PerhapsDevice,
            "ac2g" | "async_gpu" => Self::LaunchFlow,
            _ if activity.is_on_device() => Self::Device,
            _ if activity.is_call() && category != crate::SYNC => Self::Call,
            _ => Self::Other,
        }
    }

    /// Whether an event of this class is on a stream.
    pub fn is_device(self, batch: &Batch, row: &Row, known: &Known) -> bool {
        let has = |name: Option<NameId>| name.is_some_and(|name| batch.field(row, name).is_some());
        match self {
            Self::Device => true,
            Self::PerhapsDevice => has(known.stream) || has(known.correlation) || has(known.device),
            _ => false,
        }
    }

    /// Remembers a call or work by its correlation id; zero connects nothing.
    pub fn correlate(self, batch: &Batch, row: &Row, known: &Known, span: SpanEntry, launches: &mut Launches) {
        if !matches!(self, Self::Device | Self::PerhapsDevice | Self::Call) {
            return;
        }
        let number = known.correlation.and_then(|name| batch.field(row, name));
        let Some(number @ 1..) = number.and_then(whole) else { return };
        match self {
            Self::Call => launches.call(number as u64, span),
            _ => launches.work(number as u64, span),
        }
    }
}

/// The relevant fields, by their names in a batch; none for a name that no event of the batch has.
#[derive(Debug, Default)]
pub struct Known {
    pub correlation: Option<NameId>,
    pub stream: Option<NameId>,
    pub device: Option<NameId>,
    pub span: Option<NameId>,
    memory: Option<NameId>,
    allocated: Option<NameId>,
    reserved: Option<NameId>,
    device_id: Option<NameId>,
    device_type: Option<NameId>,
}

impl Known {
    pub fn of(names: &Names) -> Self {
        Self {
            correlation: names.known("correlation"),
            stream: names.known("stream"),
            device: names.known("device"),
            span: names.known("span"),
            memory: names.known("[memory]"),
            allocated: names.known("Total Allocated"),
            reserved: names.known("Total Reserved"),
            device_id: names.known("Device Id"),
            device_type: names.known("Device Type"),
        }
    }
}

/// A point of the curve of a device's memory.
pub struct MemoryPoint {
    /// The name of the curve.
    pub name: String,
    /// None for host memory.
    pub device: Option<i64>,
    pub bytes: i64,
}

/// The points of a memory event; none for other events.
pub fn memory(batch: &Batch, row: &Row, known: &Known) -> Vec<MemoryPoint> {
    if known.memory != Some(row.name) {
        return Vec::new();
    }
    let field = |name: Option<NameId>| name.and_then(|name| batch.field(row, name)).and_then(whole);
    // In torch's numbering of device types zero is the CPU.
    let is_host = field(known.device_type) == Some(0);
    let device = field(known.device_id).filter(|device| !is_host && *device >= 0);
    let owner = device.map_or_else(|| "CPU".to_owned(), |device| format!("GPU {device}"));
    let totals = [("allocated", field(known.allocated)), ("reserved", field(known.reserved))];
    let point = |(what, bytes): (&str, Option<i64>)| {
        Some(MemoryPoint { name: format!("memory {what} ({owner})"), device, bytes: bytes? })
    };
    totals.into_iter().filter_map(point).collect()
}

pub fn whole(value: StoredValue) -> Option<i64> {
    match value {
        StoredValue::Int(value) => Some(value),
        _ => None,
    }
}
