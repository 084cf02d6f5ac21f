//! CUPTI's records as plain values.
//!
//! The structures grow at their end from version to version. Fields are therefore read at offsets of the common
//! beginning (those of CUPTI 13.0, checked against its header), and never beyond the given bytes.

/// One record of CUPTI. `Name` is the name of a kernel: text, or the number of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Record<Name> {
    /// The device worked.
    Work(Work<Name>),
    /// The host waited for the device, or a stream for an event.
    Wait(Wait),
    /// A function of the runtime or of the driver was called.
    Call(Call),
    /// A call inside one of our stages.
    Tie(Tie),
    /// Device memory was allocated or freed.
    Memory(Memory),
}

/// A kernel, a copy or a memset. Times are in nanoseconds of CUPTI's clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Work<Name> {
    /// What it was.
    pub kind: WorkKind<Name>,
    /// When it began.
    pub start_nanos: u64,
    /// When it ended.
    pub end_nanos: u64,
    /// The device's number.
    pub device: u32,
    /// The stream's number.
    pub stream: u32,
    /// The correlation id shared with the launching call.
    pub correlation: u32,
    /// The graph and the node it came from, if any.
    pub graph: Option<GraphNode>,
}

impl<Name> Work<Name> {
    /// The same work with its name as something else.
    pub fn map_name<Other>(self, map: impl FnOnce(Name) -> Other) -> Work<Other> {
        let Self { kind, start_nanos, end_nanos, device, stream, correlation, graph } = self;
        let kind = match kind {
            WorkKind::Kernel { name, grid, block, registers, shared_bytes } => {
                WorkKind::Kernel { name: map(name), grid, block, registers, shared_bytes }
            }
            WorkKind::Copy { from, to, bytes } => WorkKind::Copy { from, to, bytes },
            WorkKind::Fill { memory, bytes } => WorkKind::Fill { memory, bytes },
            WorkKind::Graph => WorkKind::Graph,
        };
        Work { kind, start_nanos, end_nanos, device, stream, correlation, graph }
    }
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
pub enum WorkKind<Name> {
    /// A kernel.
    Kernel {
        /// Its demangled name.
        name: Name,
        /// Blocks.
        grid: [u32; 3],
        /// Threads per block.
        block: [u32; 3],
        /// Registers per thread.
        registers: u16,
        /// Bytes of shared memory per block.
        shared_bytes: u64,
    },
    /// A copy.
    Copy {
        /// The source memory.
        from: MemoryKind,
        /// The destination memory.
        to: MemoryKind,
        /// The number of bytes.
        bytes: u64,
    },
    /// A memset.
    Fill {
        /// Kind of memory.
        memory: MemoryKind,
        /// The number of bytes.
        bytes: u64,
    },
    /// A launch of a whole CUDA graph, where its nodes are not recorded one by one.
    Graph,
}

/// A kind of memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryKind {
    /// Unknown.
    Unknown,
    /// Pageable host memory.
    Pageable,
    /// Pinned host memory.
    Pinned,
    /// Device memory.
    Device,
    /// A device array.
    Array,
    /// Managed.
    Managed,
}

impl MemoryKind {
    pub(crate) const ALL: [Self; 6] =
        [Self::Unknown, Self::Pageable, Self::Pinned, Self::Device, Self::Array, Self::Managed];
}

/// A sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wait {
    /// The kind.
    pub kind: WaitKind,
    /// When it began.
    pub start_nanos: u64,
    /// When it ended.
    pub end_nanos: u64,
    /// The stream; none if it waited for all streams.
    pub stream: Option<u32>,
    /// The correlation id shared with the call.
    pub correlation: u32,
}

/// The kind of sync.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WaitKind {
    /// Unknown.
    Unknown,
    /// The host waited for an event.
    Event,
    /// A stream waited for an event; the host continued.
    StreamForEvent,
    /// The host waited for a stream.
    Stream,
    /// The host waited for all streams.
    Context,
}

impl WaitKind {
    pub(crate) const ALL: [Self; 5] = [Self::Unknown, Self::Event, Self::StreamForEvent, Self::Stream, Self::Context];
}

/// A call of the runtime or of the driver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whether it is a driver call.
    pub is_driver: bool,
    /// CUPTI's function id.
    pub function: u32,
    /// When it began.
    pub start_nanos: u64,
    /// When it returned.
    pub end_nanos: u64,
    /// The system thread id.
    pub thread: u32,
    /// The correlation id shared with the work it launched.
    pub correlation: u32,
}

/// A call and our stage around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tie {
    /// The correlation id of the call.
    pub correlation: u32,
    /// Our stage number, as pushed.
    pub stage: u64,
}

/// An allocation or a release of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Memory {
    /// When it happened.
    pub nanos: u64,
    /// The device's number.
    pub device: u32,
    /// Kind of memory.
    pub memory: MemoryKind,
    /// How much.
    pub bytes: u64,
    /// Whether the memory was freed.
    pub is_release: bool,
}

/// Numbers of kinds of records.
#[allow(missing_docs, reason = "the names are those of CUPTI's kinds")]
pub mod kind {
    pub const COPY: u32 = 1;
    pub const FILL: u32 = 2;
    pub const DRIVER: u32 = 4;
    pub const RUNTIME: u32 = 5;
    pub const KERNEL: u32 = 10;
    pub const PEER_COPY: u32 = 22;
    pub const WAIT: u32 = 38;
    pub const TIE: u32 = 39;
    pub const MEMORY: u32 = 49;
    pub const GRAPH: u32 = 51;
}

/// CUPTI's stream id for all streams.
const NO_STREAM: u32 = u32::MAX;

/// Reads the fields of a record in place.
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

/// Parses one record. None if its kind was not requested, or if it is truncated.
///
/// `name_at` reads the text at an address that a record holds.
pub fn decode<Name>(bytes: &[u8], name_at: impl FnOnce(u64) -> Name) -> Option<Record<Name>> {
    let fields = Fields(bytes);
    match fields.u32(0)? {
        kind::KERNEL => kernel(fields, name_at).map(Record::Work),
        kind::COPY => copy(fields, 44, 64).map(Record::Work),
        kind::PEER_COPY => copy(fields, 60, 72).map(Record::Work),
        kind::FILL => fill(fields).map(Record::Work),
        kind::GRAPH => graph(fields).map(Record::Work),
        kind::MEMORY => memory(fields).map(Record::Memory),
        kind::WAIT => wait(fields).map(Record::Wait),
        found @ (kind::DRIVER | kind::RUNTIME) => call(fields, found == kind::DRIVER).map(Record::Call),
        kind::TIE => Some(Record::Tie(Tie { stage: fields.u64(8)?, correlation: fields.u32(16)? })),
        _ => None,
    }
}

fn kernel<Name>(fields: Fields<'_>, name_at: impl FnOnce(u64) -> Name) -> Option<Work<Name>> {
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

/// A copy within, to or from a device, or between devices. The two records differ from `correlation` on.
fn copy<Name>(fields: Fields<'_>, correlation: usize, node: usize) -> Option<Work<Name>> {
    Some(Work {
        kind: WorkKind::Copy {
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

fn fill<Name>(fields: Fields<'_>) -> Option<Work<Name>> {
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

/// A launch of a whole graph has a number but no node.
fn graph<Name>(fields: Fields<'_>) -> Option<Work<Name>> {
    Some(Work {
        kind: WorkKind::Graph,
        start_nanos: fields.u64(8)?,
        end_nanos: fields.u64(16)?,
        device: fields.u32(24)?,
        stream: fields.u32(36)?,
        correlation: fields.u32(4)?,
        graph: Some(GraphNode { graph: fields.u32(28)?, node: 0 }),
    })
}

fn memory(fields: Fields<'_>) -> Option<Memory> {
    Some(Memory {
        nanos: fields.u64(32)?,
        device: fields.u32(52)?,
        memory: memory_kind(u16::try_from(fields.u32(8)?).unwrap_or(0)),
        bytes: fields.u64(24)?,
        is_release: fields.u32(4)? == 2,
    })
}

fn wait(fields: Fields<'_>) -> Option<Wait> {
    Some(Wait {
        kind: WaitKind::ALL.get(fields.u32(4)? as usize).copied().unwrap_or(WaitKind::Unknown),
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

/// Zeros mean that the work came from no graph.
fn graph_node(fields: Fields<'_>, node: usize, graph: usize) -> Option<GraphNode> {
    let found = GraphNode { graph: fields.u32(graph)?, node: fields.u64(node)? };
    (found.graph != 0 || found.node != 0).then_some(found)
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
mod tests;
