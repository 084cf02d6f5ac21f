//! Classifies spans in profiler terms: a kernel, a copy, a launch, a host sync.
//!
//! Readers keep the categories and names of their files (torch.profiler's names if several formats have the same
//! concept), and the classification uses only these. A trace that is written and read again is therefore classified the
//! same.

use crate::trace::{Span, Trace};
use crate::{SYNC, value::Value};

/// The categories that readers assign, as torch.profiler writes them.
pub mod category {
    /// A kernel on a device stream.
    pub const KERNEL: &str = "kernel";
    /// A copy on a device stream.
    pub const COPY: &str = "gpu_memcpy";
    /// A graph launch whose kernels are not in the trace.
    pub const GRAPH: &str = "cuda_graph";
    /// A memset on a device stream.
    pub const MEMSET: &str = "gpu_memset";
    /// A host stage, projected to a device stream.
    pub const DEVICE_STAGE: &str = "gpu_user_annotation";
    /// A synchronisation, as reported by the driver.
    pub const DEVICE_SYNC: &str = "cuda_sync";
    /// A call of the CUDA or HIP runtime.
    pub const RUNTIME: &str = "cuda_runtime";
    /// A call of the CUDA or HIP driver.
    pub const DRIVER: &str = "cuda_driver";
    /// A framework operation on the host.
    pub const OPERATION: &str = "cpu_op";
    /// A Python function.
    pub const PYTHON: &str = "python_function";
    /// A user annotation.
    pub const USER: &str = "user_annotation";
    /// An NVTX range.
    pub const NVTX: &str = "nvtx";
    /// Overhead of the profiler or the driver on a thread.
    pub const OVERHEAD: &str = "overhead";
}

/// The kind of a span.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// A kernel on a device.
    Kernel,
    /// A graph on a device as a whole; its kernels are not in the trace.
    Graph,
    /// A copy on a device.
    Copy,
    /// A memset on a device.
    Memset,
    /// A host stage, projected to a device; not device work.
    DeviceStage,
    /// A synchronisation, as reported by the driver; not device work.
    DeviceSync,
    /// A call that submits work to a device: a kernel, a graph, a copy, a memset.
    Launch,
    /// A call in which the host waits for a device.
    Wait,
    /// Another runtime or driver call.
    Call,
    /// A framework operation.
    Operation,
    /// A Python function.
    Python,
    /// An annotated stage: ours, a user annotation, an NVTX range.
    Stage,
    /// Anything else.
    Other,
}

impl Activity {
    /// Classifies a category and a name.
    pub fn of(category: &str, name: &str) -> Self {
        match category {
            category::KERNEL | "Kernel" => Self::Kernel,
            category::GRAPH => Self::Graph,
            category::COPY | "Memcpy" => Self::Copy,
            category::MEMSET | "Memset" => Self::Memset,
            category::DEVICE_STAGE => Self::DeviceStage,
            category::DEVICE_SYNC | "xpu_sync" => Self::DeviceSync,
            category::RUNTIME | category::DRIVER => call_activity(name),
            "Runtime" | "hip_runtime" | "xpu_runtime" | "xpu_driver" => call_activity(name),
            "mtia_runtime" | "privateuse1_runtime" | "privateuse1_driver" => call_activity(name),
            category::OPERATION | "Operator" => Self::Operation,
            category::PYTHON | "Python" => Self::Python,
            SYNC => Self::Wait,
            category::OVERHEAD if name == QUEUE_FULL => Self::Wait,
            "" | crate::LAP | crate::STAMPED | category::USER | category::NVTX => Self::Stage,
            _ => Self::Other,
        }
    }

    /// Whether the device is busy during the span.
    pub const fn is_device_work(self) -> bool {
        matches!(self, Self::Kernel | Self::Graph | Self::Copy | Self::Memset)
    }

    /// Whether its spans are on device tracks.
    pub const fn is_on_device(self) -> bool {
        self.is_device_work() || matches!(self, Self::DeviceStage | Self::DeviceSync)
    }

    /// Whether it is a runtime or driver call.
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Launch | Self::Wait | Self::Call)
    }
}

/// A launch that had to wait because the queue to the device was full, as CUPTI names it.
const QUEUE_FULL: &str = "Command Buffer Full";

/// Classifies a CUDA or HIP call by its name: `cudaStreamSynchronize`, `cuLaunchKernelEx`, `hipMemcpyAsync`.
///
/// Nsight Systems adds versions (`_v3020`) and per-thread streams (`_ptsz`). A copy without `Async` in its name returns
/// when it is (nearly) done, so it counts as a host sync. So does `hipMemcpyWithStream`. Memsets and copies within or
/// between devices return at once, whatever their name.
fn call_activity(name: &str) -> Activity {
    if let Some(activity) = xpu_activity(name) {
        return activity;
    }
    let Some(call) = ["cuda", "hip", "cu"].iter().find_map(|prefix| name.strip_prefix(prefix)) else {
        return Activity::Call;
    };
    let returns_at_once = ["Async", "Batch", "Memset", "DtoD", "Peer"].iter().any(|word| call.contains(word));
    match call {
        _ if call.contains("Synchronize") => Activity::Wait,
        _ if call.starts_with("GraphLaunch") => Activity::Launch,
        _ if call.starts_with("Launch") && !call.starts_with("LaunchHostFunc") => Activity::Launch,
        _ if call.starts_with("ExtLaunch") || call.starts_with("ExtModuleLaunch") => Activity::Launch,
        _ if call.starts_with("ModuleLaunch") || call.starts_with("ModuleLaunchCooperative") => Activity::Launch,
        _ if call.starts_with("Memcpy") || call.starts_with("Memset") => {
            if returns_at_once {
                Activity::Launch
            } else {
                Activity::Wait
            }
        }
        _ => Activity::Call,
    }
}

/// Classifies a call of Level Zero (`ze…`), Unified Runtime (`ur…`) or SYCL's older plugins (`pi…`); none for other
/// names. Enqueued waits order work on the device and do not block the host.
fn xpu_activity(name: &str) -> Option<Activity> {
    let call = ["ze", "ur", "piext", "pi"].iter().find_map(|prefix| name.strip_prefix(prefix))?;
    if !call.starts_with(|letter: char| letter.is_ascii_uppercase()) {
        return None;
    }
    let waits = ["Synchronize", "QueueFinish", "EventWait", "EventsWait"];
    let is_enqueued = ["Enqueue", "Append", "ExecuteCommandLists"].iter().any(|word| call.contains(word));
    let is_work = ["Launch", "Mem", "USM", "Fill", "Copy", "ExecuteCommandLists", "CommandBuffer"];
    Some(match () {
        () if !is_enqueued && waits.iter().any(|word| call.contains(word)) => Activity::Wait,
        () if is_enqueued && is_work.iter().any(|word| call.contains(word)) => Activity::Launch,
        () => Activity::Call,
    })
}

crate::words! {
    /// The kind of memory that a copy reads or writes, with its word in the names of copies.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum MemoryKind, ALL: word {
        /// Pageable host memory: the copy goes through a driver buffer and cannot overlap.
        Pageable = "Pageable",
        Pinned = "Pinned",
        /// Host memory of unknown kind.
        Host = "Host",
        Device = "Device",
        Managed = "Managed",
        /// A device array, for textures.
        Array = "Array",
        Unknown = "Unknown",
    }
}

impl MemoryKind {
    /// The direction of a copy, as in the names of copies: `HtoD`.
    pub fn direction_to(self, to: Self) -> &'static str {
        match (self, to) {
            (from, to) if is_of_host(from) && is_of_host(to) => "HtoH",
            (from, Self::Array) if is_of_host(from) => "HtoA",
            (from, _) if is_of_host(from) => "HtoD",
            (Self::Array, to) if is_of_host(to) => "AtoH",
            (_, to) if is_of_host(to) => "DtoH",
            (Self::Array, Self::Array) => "AtoA",
            (Self::Array, _) => "AtoD",
            (_, Self::Array) => "DtoA",
            _ => "DtoD",
        }
    }

    /// Parses the kind, ignoring case: `pageable`.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.word().eq_ignore_ascii_case(word))
    }

    fn from_words(words: &str) -> Self {
        let is_first = |kind: &Self| words.trim_start().starts_with(kind.word());
        Self::ALL.into_iter().find(is_first).unwrap_or(Self::Unknown)
    }
}

/// A copy: source, destination and size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPath {
    /// The source memory.
    pub from: MemoryKind,
    /// The destination memory.
    pub to: MemoryKind,
    /// The number of bytes; none if unknown.
    pub bytes: Option<u64>,
}

impl CopyPath {
    /// Parses a name such as `Memcpy HtoD (Pageable -> Device)`.
    fn of_name(name: &str) -> Self {
        let (from, to) = name
            .split_once('(')
            .and_then(|(_, ways)| ways.split_once("->"))
            .map_or((MemoryKind::Unknown, MemoryKind::Unknown), |(from, to)| {
                (MemoryKind::from_words(from), MemoryKind::from_words(to))
            });
        Self { from, to, bytes: None }
    }

    /// Whether it is a copy from the host to a device.
    pub fn is_upload(&self) -> bool {
        is_of_host(self.from) && !is_of_host(self.to)
    }

    /// Whether it is a copy from a device to the host.
    pub fn is_download(&self) -> bool {
        !is_of_host(self.from) && is_of_host(self.to)
    }

    /// Whether source or destination is pageable host memory.
    pub fn is_pageable(&self) -> bool {
        self.from == MemoryKind::Pageable || self.to == MemoryKind::Pageable
    }
}

fn is_of_host(kind: MemoryKind) -> bool {
    matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned | MemoryKind::Host)
}

impl Span<'_> {
    /// The classification.
    pub fn activity(&self) -> Activity {
        Activity::of(self.category, self.name)
    }

    /// Whether the host waits for a device in it.
    pub fn is_wait(&self) -> bool {
        self.activity() == Activity::Wait
    }

    /// The path of a copy; none for other spans.
    pub fn copy_path(&self) -> Option<CopyPath> {
        if self.activity() != Activity::Copy {
            return None;
        }
        let bytes = match self.fields.get("bytes") {
            Some(Value::Int(bytes)) => u64::try_from(bytes).ok(),
            Some(Value::Uint(bytes)) => Some(bytes),
            _ => None,
        };
        Some(CopyPath { bytes, ..CopyPath::of_name(self.name) })
    }
}

impl Trace {
    /// Classifies all spans of a trace, once per pair of category and name.
    pub fn activities(&self) -> Vec<Activity> {
        let mut known = hashbrown::HashMap::new();
        let pairs = self.spans.category.iter().zip(self.spans.name.iter());
        pairs
            .map(|(category, name)| {
                let activity = || Activity::of(self.name(category), self.name(name));
                *known.entry((category, name)).or_insert_with(activity)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_of_both_makers_are_distinguished() {
        let of = |name| Activity::of(category::RUNTIME, name);
        for name in ["cudaDeviceSynchronize", "cudaStreamSynchronize_v3020", "cuCtxSynchronize", "hipEventSynchronize"]
        {
            assert_eq!(of(name), Activity::Wait, "{name}");
        }
        for name in ["cudaMemcpy", "cuMemcpyDtoH_v2", "hipMemcpyWithStream"] {
            assert_eq!(of(name), Activity::Wait, "{name}");
        }
        for name in [
            "cudaLaunchKernel",
            "cudaLaunchKernelExC_v11060",
            "cuLaunchKernel",
            "hipModuleLaunchKernel",
            "hipExtModuleLaunchKernel",
            "cudaGraphLaunch",
            "cudaMemcpyAsync",
            "hipMemsetAsync",
            "cudaMemset",
            "cuMemsetD32_v2",
            "cuMemcpyDtoD_v2",
            "cudaMemcpyPeer",
        ] {
            assert_eq!(of(name), Activity::Launch, "{name}");
        }
        for name in ["cudaMalloc", "cudaEventRecord", "cudaStreamWaitEvent", "cudaLaunchHostFunc", "poll"] {
            assert_eq!(of(name), Activity::Call, "{name}");
        }
    }

    #[test]
    fn calls_of_xpus_are_launches_waits_and_others() {
        let of = |name| Activity::of("xpu_runtime", name);
        for name in [
            "urEnqueueKernelLaunch",
            "urEnqueueKernelLaunchWithArgsExp",
            "urEnqueueUSMMemcpy",
            "urEnqueueUSMFill",
            "urEnqueueMemBufferRead",
            "zeCommandListAppendLaunchKernel",
            "zeCommandListAppendMemoryCopy",
            "zeCommandQueueExecuteCommandLists",
            "piEnqueueKernelLaunch",
            "piextUSMEnqueueMemcpy",
        ] {
            assert_eq!(of(name), Activity::Launch, "{name}");
        }
        for name in [
            "zeEventHostSynchronize",
            "zeCommandQueueSynchronize",
            "zeFenceHostSynchronize",
            "zeCommandListHostSynchronize",
            "urQueueFinish",
            "urEventWait",
            "piEventsWait",
        ] {
            assert_eq!(of(name), Activity::Wait, "{name}");
        }
        for name in
            ["urEnqueueEventsWaitWithBarrier", "zeEventQueryStatus", "urKernelCreate", "zeMemAllocDevice", "zero"]
        {
            assert_eq!(of(name), Activity::Call, "{name}");
        }
    }

    #[test]
    fn our_own_waits_are_waits() {
        assert_eq!(Activity::of(SYNC, "read_token"), Activity::Wait);
    }

    #[test]
    fn a_launch_that_finds_the_queue_full_waits() {
        assert_eq!(Activity::of(category::OVERHEAD, "Command Buffer Full"), Activity::Wait);
        assert_eq!(Activity::of(category::OVERHEAD, "Buffer Flush"), Activity::Other);
    }

    #[test]
    fn the_path_of_a_copy_is_in_its_name() {
        let path = CopyPath::of_name("Memcpy HtoD (Pageable -> Device)");
        assert_eq!((path.from, path.to), (MemoryKind::Pageable, MemoryKind::Device));
        assert!(path.is_upload() && path.is_pageable() && !path.is_download());
        let path = CopyPath::of_name("Memcpy DtoH (Device -> Pinned)");
        assert!(path.is_download() && !path.is_pageable());
        assert_eq!(CopyPath::of_name("CopyDeviceToHost").from, MemoryKind::Unknown);
    }
}
