//! What a span is, in the words of the profilers: a kernel, a copy, a launch, a wait.
//!
//! Readers keep the categories and names of their files (torch.profiler's where several formats say the same), and
//! what a span is follows from these. So a trace that was written and read again says the same.

use crate::{
    SYNC,
    trace::{Span, Trace},
    value::Value,
};

/// The categories that readers give, as torch.profiler writes them.
pub mod category {
    /// A kernel on a device stream.
    pub const KERNEL: &str = "kernel";
    /// A copy on a device stream.
    pub const COPY: &str = "gpu_memcpy";
    /// A graph of which the trace does not show the kernels.
    pub const GRAPH: &str = "cuda_graph";
    /// Memory being set on a device stream.
    pub const MEMSET: &str = "gpu_memset";
    /// A stage of the host, projected to a device stream.
    pub const DEVICE_STAGE: &str = "gpu_user_annotation";
    /// A synchronisation, as the device's driver saw it.
    pub const DEVICE_SYNC: &str = "cuda_sync";
    /// A call of the CUDA or HIP runtime.
    pub const RUNTIME: &str = "cuda_runtime";
    /// A call of the CUDA or HIP driver.
    pub const DRIVER: &str = "cuda_driver";
    /// An operation of the framework on the host.
    pub const OPERATION: &str = "cpu_op";
    /// A function of Python.
    pub const PYTHON: &str = "python_function";
    /// A stage that the user marked.
    pub const USER: &str = "user_annotation";
    /// A range of NVTX.
    pub const NVTX: &str = "nvtx";
    /// What the profiler or the driver held a thread up with.
    pub const OVERHEAD: &str = "overhead";
}

/// What a span is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Activity {
    /// A kernel on a device.
    Kernel,
    /// A graph on a device, as a whole: the trace does not show its kernels.
    Graph,
    /// A copy on a device.
    Copy,
    /// Memory being set on a device.
    Memset,
    /// A stage of the host, projected to a device: no work of its own.
    DeviceStage,
    /// A synchronisation, as the driver saw it: the device does no work for it.
    DeviceSync,
    /// A call that puts work on a device: a kernel, a graph, a copy, a memset.
    Launch,
    /// A call in which the host waits for a device.
    Wait,
    /// Another call of the runtime or the driver.
    Call,
    /// An operation of the framework.
    Operation,
    /// A function of Python.
    Python,
    /// A stage that somebody marked: ours, a user annotation, a range of NVTX.
    Stage,
    /// Anything else.
    Other,
}

impl Activity {
    /// What a span of this category and name is.
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

    /// Whether a device is busy with it.
    pub const fn is_device_work(self) -> bool {
        matches!(self, Self::Kernel | Self::Graph | Self::Copy | Self::Memset)
    }

    /// Whether its spans lie on tracks of a device.
    pub const fn is_on_device(self) -> bool {
        self.is_device_work() || matches!(self, Self::DeviceStage | Self::DeviceSync)
    }

    /// Whether it is a call of the runtime or the driver.
    pub const fn is_call(self) -> bool {
        matches!(self, Self::Launch | Self::Wait | Self::Call)
    }
}

/// A launch that had to wait, as CUPTI names it: the queue to the device was full.
const QUEUE_FULL: &str = "Command Buffer Full";

/// What a call of CUDA or HIP is, from its name: `cudaStreamSynchronize`, `cuLaunchKernelEx`, `hipMemcpyAsync`.
///
/// Nsight Systems adds versions (`_v3020`) and per-thread streams (`_ptsz`). A copy without `Async` in its name returns
/// when it is done, or nearly so, and is a wait. `hipMemcpyWithStream` is one too. Memsets and copies within a device or
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

/// What a call of Level Zero (`ze…`), of Unified Runtime (`ur…`) or of SYCL's older plugins (`pi…`) is; none if it is
/// none of these. Enqueued waits order work on the device, and the host does not wait in them.
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

/// Where memory lies that a copy reads or writes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MemoryKind {
    /// The host's, pageable: such a copy goes through a buffer of the driver and cannot overlap.
    Pageable,
    /// The host's, pinned.
    Pinned,
    /// The host's; the trace does not say which.
    Host,
    /// A device's.
    Device,
    /// Managed: it moves by itself.
    Managed,
    /// An array of a device, for textures.
    Array,
    /// The trace does not say.
    Unknown,
}

impl MemoryKind {
    const ALL: [(Self, &'static str); 7] = [
        (Self::Pageable, "Pageable"),
        (Self::Pinned, "Pinned"),
        (Self::Host, "Host"),
        (Self::Device, "Device"),
        (Self::Managed, "Managed"),
        (Self::Array, "Array"),
        (Self::Unknown, "Unknown"),
    ];

    /// The kind in a word, as the names of copies have it.
    pub fn word(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("Unknown", |(_, word)| word)
    }

    /// Which way a copy from here to there goes, as the names of copies have it: `HtoD`.
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

    /// The kind of a word in any case: `pageable`.
    pub(crate) fn from_word(word: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| known.eq_ignore_ascii_case(word)).map(|(kind, _)| *kind)
    }

    fn from_words(words: &str) -> Self {
        let is_first = |word: &str| words.trim_start().starts_with(word);
        Self::ALL.iter().find(|(_, word)| is_first(word)).map_or(Self::Unknown, |(kind, _)| *kind)
    }
}

/// A copy: from where to where, and how much.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyPath {
    /// Where the memory lies that is read.
    pub from: MemoryKind,
    /// Where the memory lies that is written.
    pub to: MemoryKind,
    /// How many bytes; none if the trace does not say.
    pub bytes: Option<u64>,
}

impl CopyPath {
    /// Reads the path out of a name such as `Memcpy HtoD (Pageable -> Device)`.
    fn of_name(name: &str) -> Self {
        let (from, to) = name
            .split_once('(')
            .and_then(|(_, ways)| ways.split_once("->"))
            .map_or((MemoryKind::Unknown, MemoryKind::Unknown), |(from, to)| {
                (MemoryKind::from_words(from), MemoryKind::from_words(to))
            });
        Self { from, to, bytes: None }
    }

    /// Whether it goes from the host to a device.
    pub fn is_upload(&self) -> bool {
        is_of_host(self.from) && !is_of_host(self.to)
    }

    /// Whether it goes from a device to the host.
    pub fn is_download(&self) -> bool {
        !is_of_host(self.from) && is_of_host(self.to)
    }

    /// Whether one of its ends is pageable memory of the host.
    pub fn is_pageable(&self) -> bool {
        self.from == MemoryKind::Pageable || self.to == MemoryKind::Pageable
    }
}

fn is_of_host(kind: MemoryKind) -> bool {
    matches!(kind, MemoryKind::Pageable | MemoryKind::Pinned | MemoryKind::Host)
}

impl Span<'_> {
    /// What it is.
    pub fn activity(&self) -> Activity {
        Activity::of(self.category, self.name)
    }

    /// Whether the host waits for a device in it.
    pub fn is_wait(&self) -> bool {
        self.activity() == Activity::Wait
    }

    /// The path of a copy; none if it is none.
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
    /// What each span is, by its place in the trace. Asks once for each pair of category and name.
    pub fn activities(&self) -> Vec<Activity> {
        let mut known = std::collections::HashMap::new();
        let pairs = self.spans.category.iter().zip(&self.spans.name);
        pairs
            .map(|(category, &name)| {
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
    fn calls_of_both_makers_are_told_apart() {
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
