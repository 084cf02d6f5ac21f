//! The direction of a copy, and the collective of a kernel.

use laptime_trace::{Activity, MemoryKind, Span};

use crate::fields::whole;

laptime_trace::words! {
    /// The direction of a copy.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Path: words {
        /// From pinned host memory to a device.
        UploadPinned = "HtoD pinned",
        /// From pageable host memory to a device.
        UploadPageable = "HtoD pageable",
        /// From host memory of unknown kind to a device.
        Upload = "HtoD",
        /// From a device to pinned host memory.
        DownloadPinned = "DtoH pinned",
        /// From a device to pageable host memory.
        DownloadPageable = "DtoH pageable",
        /// From a device to host memory of unknown kind.
        Download = "DtoH",
        /// Within a device.
        Within = "DtoD",
        /// From one device to another.
        Peer = "peer",
        Memset = "memset",
        Unknown = "unknown",
    }
}

impl Path {
    /// Whether it goes from the host to a device.
    pub fn is_upload(self) -> bool {
        matches!(self, Self::UploadPinned | Self::UploadPageable | Self::Upload)
    }

    /// Whether it goes from a device to the host.
    pub fn is_download(self) -> bool {
        matches!(self, Self::DownloadPinned | Self::DownloadPageable | Self::Download)
    }

    /// Whether its host memory is pageable.
    pub fn is_pageable(self) -> bool {
        matches!(self, Self::UploadPageable | Self::DownloadPageable)
    }

    /// The same direction with pinned host memory; none without host memory.
    pub fn pinned(self) -> Option<Self> {
        match self {
            _ if self.is_upload() => Some(Self::UploadPinned),
            _ if self.is_download() => Some(Self::DownloadPinned),
            _ => None,
        }
    }

    /// Whether a separate stream could hide it: it leaves or reaches the device.
    pub fn crosses(self) -> bool {
        self.is_upload() || self.is_download() || self == Self::Peer
    }

    /// The path and the bytes of a copy or memset.
    pub(super) fn of(span: &Span<'_>) -> (Self, Option<u64>) {
        if span.activity() == Activity::Memset {
            return (Self::Memset, whole(&span.fields, "bytes"));
        }
        let Some(path) = span.copy_path() else { return (Self::Unknown, None) };
        let way = match way(span.name) {
            Way::Unknown if path.is_upload() => Way::Upload,
            Way::Unknown if path.is_download() => Way::Download,
            way => way,
        };
        let found = match (way, path.from, path.to) {
            (Way::Upload, MemoryKind::Pinned, _) => Self::UploadPinned,
            (Way::Upload, MemoryKind::Pageable, _) => Self::UploadPageable,
            (Way::Upload, ..) => Self::Upload,
            (Way::Download, _, MemoryKind::Pinned) => Self::DownloadPinned,
            (Way::Download, _, MemoryKind::Pageable) => Self::DownloadPageable,
            (Way::Download, ..) => Self::Download,
            (Way::Within, ..) => Self::Within,
            (Way::Peer, ..) => Self::Peer,
            (Way::Unknown, ..) => Self::Unknown,
        };
        (found, path.bytes)
    }
}

enum Way {
    Upload,
    Download,
    Within,
    Peer,
    Unknown,
}

/// The direction by name: CUPTI's `HtoD`, ROCm's `CopyHostToDevice`.
fn way(name: &str) -> Way {
    let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
    match () {
        () if has(&["HtoD", "HtoA", "HostToDevice"]) => Way::Upload,
        () if has(&["DtoH", "AtoH", "DeviceToHost"]) => Way::Download,
        () if has(&["PtoP", "PeerToPeer", "Peer"]) => Way::Peer,
        () if has(&["DtoD", "AtoA", "AtoD", "DtoA", "DeviceToDevice"]) => Way::Within,
        () => Way::Unknown,
    }
}

laptime_trace::words! {
    /// The collective of a kernel.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum Family: word {
        AllReduce = "AllReduce",
        AllGather = "AllGather",
        ReduceScatter = "ReduceScatter",
        SendRecv = "SendRecv",
        AllToAll = "AllToAll",
        /// Any other: broadcast, barrier.
        Other = "other",
    }
}

impl Family {
    /// The family of a kernel by its name; the first match.
    pub(super) fn of(name: &str) -> Self {
        let name = name.to_ascii_lowercase();
        let has = |words: &[&str]| words.iter().any(|word| name.contains(word));
        match () {
            () if has(&["reducescatter", "reduce_scatter"]) => Self::ReduceScatter,
            () if has(&["allgather", "all_gather"]) => Self::AllGather,
            () if has(&["alltoall", "all_to_all", "all2all", "deepep"]) => Self::AllToAll,
            () if has(&["allreduce", "all_reduce", "cross_device_reduce", "oneshot", "twoshot"]) => Self::AllReduce,
            () if has(&["sendrecv", "send_recv", "_send", "_recv"]) => Self::SendRecv,
            () => Self::Other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use laptime_trace::{Nanos, TraceBuilder, activity::category};

    fn path(name: &str, category: &str) -> (&'static str, Option<u64>) {
        let mut builder = TraceBuilder::default();
        let stream = builder.stream(1, 7, "stream 7");
        let copy = builder.span(stream, Nanos(0), Nanos(10), name, category);
        builder.span_field(copy, "bytes", 640_i64);
        let trace = builder.build().unwrap();
        let (path, bytes) = Path::of(&trace.spans().next().unwrap());
        (path.words(), bytes)
    }

    #[test]
    fn copy_directions_are_read_from_names_of_several_profilers() {
        let of = |name: &str| path(name, category::COPY).0;
        assert_eq!(of("Memcpy HtoD (Pinned -> Device)"), "HtoD pinned");
        assert_eq!(of("Memcpy HtoD (Pageable -> Device)"), "HtoD pageable");
        assert_eq!(of("Memcpy HtoD (Host -> Device)"), "HtoD");
        assert_eq!(of("CopyHostToDevice"), "HtoD");
        assert_eq!(of("Memcpy DtoH (Device -> Pinned)"), "DtoH pinned");
        assert_eq!(of("Memcpy DtoH (Device -> Pageable)"), "DtoH pageable");
        assert_eq!(of("CopyDeviceToHost"), "DtoH");
        assert_eq!(of("Memcpy DtoD (Device -> Device)"), "DtoD");
        assert_eq!(of("Memcpy PtoP (Device -> Device)"), "peer");
        assert_eq!(of("copy (Pageable -> Device)"), "HtoD pageable");
        assert_eq!(of("Memcpy unknown (Unknown -> Unknown)"), "unknown");
        assert_eq!(path("Memset (Device)", category::MEMSET), ("memset", Some(640)));
    }

    #[test]
    fn collectives_are_grouped_by_family() {
        let of = |name: &str| Family::of(name).word();
        assert_eq!(of("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)"), "AllReduce");
        assert_eq!(of("ncclKernel_AllGather_RING_LL_Sum_int8_t"), "AllGather");
        assert_eq!(of("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL"), "ReduceScatter");
        assert_eq!(of("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)"), "SendRecv");
        assert_eq!(of("void deepep::internode::dispatch"), "AllToAll");
        assert_eq!(of("void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>"), "AllReduce");
        assert_eq!(of("ncclDevKernel_Broadcast_RING_LL"), "other");
    }
}
