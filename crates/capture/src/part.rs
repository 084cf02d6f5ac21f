//! Part files: the records of one process.
//!
//! A part is a chain of blocks. Each block has a header (a mark, the length and a checksum of its content) and was
//! written with one call, so a reader of a part whose process was killed finds whole blocks, and then perhaps a cut
//! one. Names, shapes of launches and streams are defined once per part and then referred to by number; times and
//! correlation numbers are differences to those before them in the block. A kernel takes about ten bytes.

mod read;
mod write;

#[cfg(test)]
mod tests;

pub use self::{
    read::{Part, read},
    write::Encoder,
};
use crate::cupti::{Memory, Wait, Work};

/// The first bytes of every block.
const BLOCK_MARK: u32 = u32::from_le_bytes(*b"LPT1");
const HEADER_BYTES: usize = 12;
/// No block of ours is longer; a longer one is damage.
const LONGEST_BLOCK: usize = 64 << 20;

/// One thing that a process reported.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// Something about the process.
    Info {
        /// What it is: `pid`, `name`, `rank`, `cupti`, `problem`, …
        key: String,
        /// Its value.
        value: String,
    },
    /// A GPU as the process numbers it.
    Device(Device),
    /// A moment on CUPTI's clock and on the monotonic clock.
    Anchor(Anchor),
    /// The recording state from here on.
    State {
        /// When, on the monotonic clock.
        host_nanos: u64,
        /// What.
        state: State,
    },
    /// A kernel, copy, fill or graph; the name is the number of a name.
    Work(Work<u32>),
    /// A wait.
    Wait(Wait),
    /// A call of the runtime or the driver.
    Call(Call),
    /// An allocation or a release.
    Memory(Memory),
    /// A range or a mark of NVTX.
    Range(Range),
    /// The name of a thread.
    Thread {
        /// The system's number of the thread.
        thread: u32,
        /// The number of its name.
        name: u32,
    },
    /// How many records of a kind were dropped since the process started.
    Dropped {
        /// What was dropped.
        kind: Kind,
        /// How many so far.
        count: u64,
    },
}

/// Kinds of records, for counting what was dropped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Records that CUPTI had no buffer for, of unknown kinds.
    Cupti,
    /// Kernels and graphs.
    Kernel,
    /// Copies.
    Copy,
    /// Fills.
    Fill,
    /// Syncs.
    Wait,
    /// Calls.
    Call,
    /// Allocations and releases.
    Memory,
    /// NVTX ranges and marks.
    Range,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 8] =
        [Self::Cupti, Self::Kernel, Self::Copy, Self::Fill, Self::Wait, Self::Call, Self::Memory, Self::Range];

    /// The kind in words, in the plural.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Cupti => "CUPTI records",
            Self::Kernel => "kernels",
            Self::Copy => "copies",
            Self::Fill => "memsets",
            Self::Wait => "syncs",
            Self::Call => "calls",
            Self::Memory => "allocations",
            Self::Range => "NVTX ranges",
        }
    }
}

/// A GPU as a process numbers it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Device {
    /// The number in that process.
    pub number: u32,
    /// Its name.
    pub name: String,
    /// Its address on the PCI bus, which is the same in every process.
    pub bus: String,
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Compute capability.
    pub capability: (u32, u32),
}

/// A moment on CUPTI's clock and on the monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Anchor {
    /// The middle of the two readings of the monotonic clock around it.
    pub host_nanos: u64,
    /// CUPTI's clock.
    pub cupti_nanos: u64,
    /// How far apart the two readings were.
    pub window_nanos: u64,
}

/// What a process records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Nothing, as requested.
    Paused,
    /// Everything.
    Recording,
    /// Copies and syncs only, to measure what recording costs.
    Light,
    /// Nothing, because another profiler in the process took over CUPTI.
    TakenOver,
    /// The process ended normally.
    Ended,
}

impl State {
    const ALL: [Self; 5] = [Self::Paused, Self::Recording, Self::Light, Self::TakenOver, Self::Ended];
}

/// A call of the runtime or the driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Call {
    /// Whether it was of the driver.
    pub is_driver: bool,
    /// The number of its name.
    pub name: u32,
    /// When it began, on CUPTI's clock.
    pub start_nanos: u64,
    /// When it returned.
    pub end_nanos: u64,
    /// The system's number of the thread.
    pub thread: u32,
    /// The number it shares with the work it led to.
    pub correlation: u32,
}

/// A range or a mark of NVTX. Names are numbers of names; zero is none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Range {
    /// When, on the monotonic clock.
    pub host_nanos: u64,
    /// The system's number of the thread.
    pub thread: u32,
    /// What happened.
    pub action: RangeAction,
    /// Its message.
    pub name: u32,
    /// Its domain.
    pub domain: u32,
    /// Its category.
    pub category: u32,
    /// Its payload.
    pub payload: Option<Payload>,
}

/// What happened to a range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RangeAction {
    /// A nested range began on the thread.
    Push,
    /// The innermost range of the thread and domain ended.
    Pop,
    /// A range of this number began.
    Start(u64),
    /// The range of this number ended.
    End(u64),
    /// A moment was marked.
    Mark,
}

/// A number that a range carries.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Payload {
    /// Unsigned.
    Unsigned(u64),
    /// Signed.
    Signed(i64),
    /// With a fraction.
    Float(f64),
}

/// FNV-1a over the content of a block.
fn checksum(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811C_9DC5, |sum: u32, byte| (sum ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// The first byte of each record.
mod tag {
    pub const INFO: u8 = 1;
    pub const NAME: u8 = 2;
    pub const SHAPE: u8 = 3;
    pub const QUEUE: u8 = 4;
    pub const THREAD: u8 = 5;
    pub const DEVICE: u8 = 6;
    pub const ANCHOR: u8 = 7;
    pub const STATE: u8 = 8;
    pub const DROPPED: u8 = 9;
    pub const KERNEL: u8 = 10;
    pub const GRAPH_KERNEL: u8 = 11;
    pub const COPY: u8 = 12;
    pub const GRAPH_COPY: u8 = 13;
    pub const FILL: u8 = 14;
    pub const GRAPH_FILL: u8 = 15;
    pub const GRAPH: u8 = 16;
    pub const WAIT: u8 = 17;
    pub const RUNTIME_CALL: u8 = 18;
    pub const DRIVER_CALL: u8 = 19;
    pub const MEMORY: u8 = 20;
    pub const PUSH: u8 = 21;
    pub const POP: u8 = 22;
    pub const START: u8 = 23;
    pub const END: u8 = 24;
    pub const MARK: u8 = 25;
    pub const THREAD_NAME: u8 = 26;
}
