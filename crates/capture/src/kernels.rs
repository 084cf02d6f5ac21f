//! Converts CUPTI's records to those of a trace.

use std::sync::Arc;

use laptime_trace::MemoryKind;
use laptime_trace::kernels::{DeviceWork, Stretch, WorkKind};

use crate::cupti::{self, Wait, WaitKind, Work};

/// A kernel, copy, memset or graph. `name` resolves the name of a kernel, `stretch` converts its two times.
pub fn device_work<N>(
    work: &Work<N>,
    name: impl FnOnce(&N) -> Arc<str>,
    stretch: impl FnOnce(u64, u64) -> Stretch,
) -> DeviceWork {
    let graph = work.graph.map(|node| u64::from(node.graph));
    let kind = match &work.kind {
        cupti::WorkKind::Kernel { name: kernel, grid, block, registers, shared_bytes } => WorkKind::Kernel {
            name: name(kernel),
            grid: *grid,
            block: *block,
            registers: Some(*registers),
            shared_bytes: Some(*shared_bytes),
            graph,
            node: work.graph.map(|node| node.node),
        },
        cupti::WorkKind::Copy { from, to, bytes, .. } => {
            WorkKind::Copy { from: memory(*from), to: memory(*to), bytes: *bytes, graph }
        }
        cupti::WorkKind::Fill { bytes, .. } => WorkKind::Memset { bytes: *bytes },
        cupti::WorkKind::Graph => WorkKind::Graph { graph: graph.unwrap_or(0) },
    };
    DeviceWork {
        time: stretch(work.start_nanos, work.end_nanos),
        device: work.device,
        stream: Some(work.stream),
        correlation: u64::from(work.correlation),
        kind,
    }
}

/// A wait of the host or of a stream.
pub fn device_wait(wait: &Wait, stretch: impl FnOnce(u64, u64) -> Stretch) -> DeviceWork {
    let name = match wait.kind {
        WaitKind::Event => "Event Sync",
        WaitKind::StreamForEvent => "Stream Wait Event",
        WaitKind::Stream => "Stream Sync",
        WaitKind::Context => "Context Sync",
        WaitKind::Unknown => "Sync",
    };
    DeviceWork {
        time: stretch(wait.start_nanos, wait.end_nanos),
        device: 0,
        stream: wait.stream,
        correlation: u64::from(wait.correlation),
        kind: WorkKind::Sync { name: name.to_owned() },
    }
}

fn memory(kind: cupti::MemoryKind) -> MemoryKind {
    match kind {
        cupti::MemoryKind::Pageable => MemoryKind::Pageable,
        cupti::MemoryKind::Pinned => MemoryKind::Pinned,
        cupti::MemoryKind::Device => MemoryKind::Device,
        cupti::MemoryKind::Array => MemoryKind::Array,
        cupti::MemoryKind::Managed => MemoryKind::Managed,
        cupti::MemoryKind::Unknown => MemoryKind::Unknown,
    }
}
