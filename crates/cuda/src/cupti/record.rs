//! CUPTI's records as plain values.
//!
//! The structures grow at their end from version to version, and each is the beginning of the next. So fields are read
//! at offsets of the common beginning (those of CUPTI 13.0, checked against its header), never beyond the bytes given.

use std::sync::Arc;

/// One thing that CUPTI saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record {
    /// The device worked.
    Work(Work),
    /// The host waited for the device, or a stream for an event.
    Wait(Wait),
    /// A function of the runtime or of the driver was called.
    Call(Call),
    /// A call was made inside a stage of ours.
    Tie(Tie),
}

/// A kernel, a copy or a fill. Times are in nanoseconds of CUPTI's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work {
    /// What it was.
    pub kind: WorkKind,
    /// When it began.
    pub start_nanos: u64,
    /// When it ended.
    pub end_nanos: u64,
    /// The device's number.
    pub device: u32,
    /// The stream's number.
    pub stream: u32,
    /// The number it shares with the call that led to it.
    pub correlation: u32,
    /// The graph and the node it came from, if it did.
    pub graph: Option<GraphNode>,
}

/// Where in a graph work came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GraphNode {
    /// The graph's number.
    pub graph: u32,
    /// The node's number.
    pub node: u64,
}

/// What the device did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WorkKind {
    /// A kernel.
    Kernel {
        /// Its name, as it can be read.
        name: Arc<str>,
        /// Blocks.
        grid: [u32; 3],
        /// Threads a block.
        block: [u32; 3],
        /// Registers a thread.
        registers: u16,
        /// Bytes of shared memory a block.
        shared_bytes: u64,
    },
    /// A copy.
    Copy {
        /// From where to where.
        direction: Direction,
        /// Kind of memory it was from.
        from: MemoryKind,
        /// Kind of memory it was to.
        to: MemoryKind,
        /// How much.
        bytes: u64,
    },
    /// A fill.
    Fill {
        /// Kind of memory.
        memory: MemoryKind,
        /// How much.
        bytes: u64,
    },
}

/// From where to where a copy went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Host to device.
    HostToDevice,
    /// Device to host.
    DeviceToHost,
    /// Inside a device.
    DeviceToDevice,
    /// From one device to another.
    DeviceToPeer,
    /// Inside the host.
    HostToHost,
    /// Another, of arrays, or none that is known.
    Other,
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// The host's, as any program's.
    Pageable,
    /// The host's, that the device can copy without help.
    Pinned,
    /// The device's.
    Device,
    /// An array of the device.
    Array,
    /// Managed.
    Managed,
    /// Not known.
    Unknown,
}

/// A wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// For what.
    pub kind: WaitKind,
    /// When it began.
    pub start_nanos: u64,
    /// When it ended.
    pub end_nanos: u64,
    /// The stream; none if it was for all.
    pub stream: Option<u32>,
    /// The number it shares with the call.
    pub correlation: u32,
}

/// What was waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// The host for an event.
    Event,
    /// A stream for an event; the host went on.
    StreamForEvent,
    /// The host for a stream.
    Stream,
    /// The host for all streams.
    Context,
    /// Not known.
    Unknown,
}

/// A call of the runtime or of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whether it was of the driver.
    pub is_driver: bool,
    /// CUPTI's number of the function.
    pub function: u32,
    /// When it began.
    pub start_nanos: u64,
    /// When it returned.
    pub end_nanos: u64,
    /// The thread, by the system's number.
    pub thread: u32,
    /// The number it shares with the work it led to.
    pub correlation: u32,
}

/// A call and the stage of ours that it was made in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tie {
    /// The number of the call.
    pub correlation: u32,
    /// Our number, as it was pushed.
    pub stage: u64,
}

/// Numbers of kinds of records.
pub(crate) mod kind {
    pub const COPY: u32 = 1;
    pub const FILL: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const KERNEL: u32 = 10;
    pub const PEER_COPY: u32 = 22;
    pub const WAIT: u32 = 38;
    pub const TIE: u32 = 39;
}

/// The stream's number where CUPTI means all of them.
const NO_STREAM: u32 = u32::MAX;

/// The fields of a record, read where they are.
#[derive(Clone, Copy)]
struct Fields<'a>(&'a [u8]);

impl Fields<'_> {
    fn bytes<const N: usize>(self, at: usize) -> Option<[u8; N]> {
        self.0.get(at..at.checked_add(N)?)?.try_into().ok()
    }

    fn u8(self, at: usize) -> Option<u8> {
        self.bytes::<1>(at).map(|[byte]| byte)
    }

    fn u16(self, at: usize) -> Option<u16> {
        self.bytes(at).map(u16::from_ne_bytes)
    }

    fn u32(self, at: usize) -> Option<u32> {
        self.bytes(at).map(u32::from_ne_bytes)
    }

    fn u64(self, at: usize) -> Option<u64> {
        self.bytes(at).map(u64::from_ne_bytes)
    }

    fn three(self, at: usize) -> Option<[u32; 3]> {
        Some([self.u32(at)?, self.u32(at + 4)?, self.u32(at + 8)?])
    }
}

/// Reads one record. None if it is of no kind we asked for, or cut short.
///
/// `name_at` reads the text at an address that a record holds.
pub(crate) fn decode(bytes: &[u8], name_at: impl Fn(u64) -> Arc<str>) -> Option<Record> {
    let fields = Fields(bytes);
    match fields.u32(0)? {
        kind::KERNEL => kernel(fields, name_at).map(Record::Work),
        kind::COPY => copy(fields, 44, 64).map(Record::Work),
        kind::PEER_COPY => copy(fields, 60, 72).map(Record::Work),
        kind::FILL => fill(fields).map(Record::Work),
        kind::WAIT => wait(fields).map(Record::Wait),
        found @ (kind::DRIVER | kind::RUNTIME) => call(fields, found == kind::DRIVER).map(Record::Call),
        kind::TIE => Some(Record::Tie(Tie { stage: fields.u64(8)?, correlation: fields.u32(16)? })),
        _ => None,
    }
}

fn kernel(fields: Fields<'_>, name_at: impl Fn(u64) -> Arc<str>) -> Option<Work> {
    let shared = u64::from(fields.u32(76)?) + u64::from(fields.u32(80)?);
    Some(Work {
        kind: WorkKind::Kernel {
            name: name_at(fields.u64(104)?),
            grid: fields.three(52)?,
            block: fields.three(64)?,
            registers: fields.u16(6)?,
            shared_bytes: shared,
        },
        start_nanos: fields.u64(16)?,
        end_nanos: fields.u64(24)?,
        device: fields.u32(40)?,
        stream: fields.u32(48)?,
        correlation: fields.u32(92)?,
        graph: graph_node(fields, 144, 156),
    })
}

/// A copy inside a device or to and from it, or between devices: the two differ from `correlation` on.
fn copy(fields: Fields<'_>, correlation: usize, node: usize) -> Option<Work> {
    Some(Work {
        kind: WorkKind::Copy {
            direction: direction(fields.u8(4)?),
            from: memory_kind(fields.u8(5)?.into()),
            to: memory_kind(fields.u8(6)?.into()),
            bytes: fields.u64(8)?,
        },
        start_nanos: fields.u64(16)?,
        end_nanos: fields.u64(24)?,
        device: fields.u32(32)?,
        stream: fields.u32(40)?,
        correlation: fields.u32(correlation)?,
        graph: graph_node(fields, node, node + 8),
    })
}

fn fill(fields: Fields<'_>) -> Option<Work> {
    Some(Work {
        kind: WorkKind::Fill { memory: memory_kind(fields.u16(50)?), bytes: fields.u64(8)? },
        start_nanos: fields.u64(16)?,
        end_nanos: fields.u64(24)?,
        device: fields.u32(32)?,
        stream: fields.u32(40)?,
        correlation: fields.u32(44)?,
        graph: graph_node(fields, 64, 72),
    })
}

fn wait(fields: Fields<'_>) -> Option<Wait> {
    Some(Wait {
        kind: match fields.u32(4)? {
            1 => WaitKind::Event,
            2 => WaitKind::StreamForEvent,
            3 => WaitKind::Stream,
            4 => WaitKind::Context,
            _ => WaitKind::Unknown,
        },
        start_nanos: fields.u64(8)?,
        end_nanos: fields.u64(16)?,
        stream: Some(fields.u32(32)?).filter(|stream| *stream != NO_STREAM),
        correlation: fields.u32(24)?,
    })
}

fn call(fields: Fields<'_>, is_driver: bool) -> Option<Call> {
    Some(Call {
        is_driver,
        function: fields.u32(4)?,
        start_nanos: fields.u64(8)?,
        end_nanos: fields.u64(16)?,
        thread: fields.u32(28)?,
        correlation: fields.u32(32)?,
    })
}

/// Zeros stand for work that came from no graph.
fn graph_node(fields: Fields<'_>, node: usize, graph: usize) -> Option<GraphNode> {
    let found = GraphNode { graph: fields.u32(graph)?, node: fields.u64(node)? };
    (found.graph != 0 || found.node != 0).then_some(found)
}

fn direction(kind: u8) -> Direction {
    match kind {
        1 => Direction::HostToDevice,
        2 => Direction::DeviceToHost,
        8 => Direction::DeviceToDevice,
        9 => Direction::HostToHost,
        10 => Direction::DeviceToPeer,
        _ => Direction::Other,
    }
}

fn memory_kind(kind: u16) -> MemoryKind {
    match kind {
        1 => MemoryKind::Pageable,
        2 => MemoryKind::Pinned,
        3 | 6 => MemoryKind::Device,
        4 => MemoryKind::Array,
        5 | 7 => MemoryKind::Managed,
        _ => MemoryKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Bytes of a record, with values put where a structure of CUPTI has them.
    struct Bytes(Vec<u8>);

    impl Bytes {
        fn new(kind: u32, size: usize) -> Self {
            Self(vec![0; size]).put(0, &kind.to_ne_bytes())
        }

        fn put(mut self, at: usize, value: &[u8]) -> Self {
            self.0[at..at + value.len()].copy_from_slice(value);
            self
        }

        fn u32(self, at: usize, value: u32) -> Self {
            self.put(at, &value.to_ne_bytes())
        }

        fn u64(self, at: usize, value: u64) -> Self {
            self.put(at, &value.to_ne_bytes())
        }

        fn times(self, at: usize) -> Self {
            self.u64(at, 1_000).u64(at + 8, 1_500)
        }

        fn decode(&self) -> Option<Record> {
            decode(&self.0, |address| format!("name at {address}").into())
        }
    }

    fn a_kernel(size: usize) -> Bytes {
        let bytes = Bytes::new(kind::KERNEL, size).put(6, &40_u16.to_ne_bytes()).times(16).u32(40, 1).u32(48, 7);
        let bytes = bytes.u32(52, 2).u32(56, 3).u32(60, 4).u32(64, 128).u32(68, 1).u32(72, 1);
        bytes.u32(76, 100).u32(80, 28).u32(92, 55).u64(104, 4_096)
    }

    fn the_kernel(graph: Option<GraphNode>) -> Record {
        let kind = WorkKind::Kernel {
            name: "name at 4096".into(),
            grid: [2, 3, 4],
            block: [128, 1, 1],
            registers: 40,
            shared_bytes: 128,
        };
        let (start_nanos, end_nanos) = (1_000, 1_500);
        Record::Work(Work { kind, start_nanos, end_nanos, device: 1, stream: 7, correlation: 55, graph })
    }

    #[test]
    fn a_kernel_is_read_whatever_its_version_added_at_the_end() {
        for size in [160, 216, 224, 240] {
            assert_eq!(a_kernel(size).decode(), Some(the_kernel(None)), "{size} bytes");
        }
    }

    #[test]
    fn a_kernel_of_a_graph_names_its_node() {
        let bytes = a_kernel(216).u64(144, 9).u32(156, 3);
        assert_eq!(bytes.decode(), Some(the_kernel(Some(GraphNode { graph: 3, node: 9 }))));
    }

    #[test]
    fn a_copy_tells_its_direction_and_both_memories() {
        let bytes = Bytes::new(kind::COPY, 96).put(4, &[1, 2, 3]).u64(8, 4_096).times(16).u32(40, 7).u32(44, 56);
        let kind = WorkKind::Copy {
            direction: Direction::HostToDevice,
            from: MemoryKind::Pinned,
            to: MemoryKind::Device,
            bytes: 4_096,
        };
        let (start_nanos, end_nanos) = (1_000, 1_500);
        let work = Work { kind, start_nanos, end_nanos, device: 0, stream: 7, correlation: 56, graph: None };
        assert_eq!(bytes.decode(), Some(Record::Work(work)));
    }

    #[test]
    fn a_copy_between_devices_has_its_number_elsewhere() {
        let bytes = Bytes::new(kind::PEER_COPY, 96).put(4, &[10, 3, 3]).times(16).u32(44, 1).u32(60, 57);
        let Some(Record::Work(work)) = bytes.decode() else { panic!("no work") };
        assert_eq!(work.correlation, 57);
        assert!(matches!(work.kind, WorkKind::Copy { direction: Direction::DeviceToPeer, .. }));
    }

    #[test]
    fn a_fill_tells_its_memory() {
        let bytes = Bytes::new(kind::FILL, 88).u64(8, 64).times(16).u32(44, 58).put(50, &3_u16.to_ne_bytes());
        let Some(Record::Work(work)) = bytes.decode() else { panic!("no work") };
        assert_eq!((work.kind, work.correlation), (WorkKind::Fill { memory: MemoryKind::Device, bytes: 64 }, 58));
    }

    #[test]
    fn a_wait_for_all_streams_names_none() {
        let bytes = Bytes::new(kind::WAIT, 56).u32(4, 4).times(8).u32(24, 59).u32(32, u32::MAX);
        let (start_nanos, end_nanos) = (1_000, 1_500);
        let wait = Wait { kind: WaitKind::Context, start_nanos, end_nanos, stream: None, correlation: 59 };
        assert_eq!(bytes.decode(), Some(Record::Wait(wait)));
    }

    #[test]
    fn calls_of_the_driver_are_told_from_those_of_the_runtime() {
        for (number, is_driver) in [(kind::DRIVER, true), (kind::RUNTIME, false)] {
            let bytes = Bytes::new(number, 40).u32(4, 307).times(8).u32(28, 4_242).u32(32, 60);
            let (start_nanos, end_nanos) = (1_000, 1_500);
            let call = Call { is_driver, function: 307, start_nanos, end_nanos, thread: 4_242, correlation: 60 };
            assert_eq!(bytes.decode(), Some(Record::Call(call)));
        }
    }

    #[test]
    fn a_tie_joins_a_call_and_a_stage() {
        let bytes = Bytes::new(kind::TIE, 24).u64(8, 1 << 40).u32(16, 61);
        assert_eq!(bytes.decode(), Some(Record::Tie(Tie { correlation: 61, stage: 1 << 40 })));
    }

    proptest! {
        #[test]
        fn no_bytes_break_the_reading(bytes in prop::collection::vec(any::<u8>(), 0..240), first in 0_u8..40) {
            let mut bytes = bytes;
            if let Some(kind) = bytes.first_mut() {
                *kind = first;
            }
            bytes.iter_mut().skip(1).take(3).for_each(|byte| *byte = 0);
            decode(&bytes, |_| "".into());
        }
    }
}
