//! A translated kernel: instructions whose operands are rows of registers, constants and predicates.

use crate::lanes::{Compare, Elementwise};
use crate::rows::Row;

/// An operand that is absent.
pub(crate) const NONE: u32 = u32::MAX;
/// The predicates that always and never hold.
pub(crate) const ALWAYS: u32 = 0;
pub(crate) const NEVER: u32 = 1;

/// The first valid address of shared memory, as on a device.
pub(crate) const SHARED_BEGINS: u64 = 1024;
/// The generic address of shared memory.
pub(crate) const SHARED_WINDOW: u64 = 0x7a00_0000_0000_0000;
/// The generic address of local memory.
pub(crate) const LOCAL_WINDOW: u64 = 0x7b00_0000_0000_0000;
/// From this bit on, an address in shared memory has one more than the rank of another block of the cluster.
pub(crate) const RANK_SHIFT: u32 = 24;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Space {
    Generic,
    Global,
    Shared,
    Local,
}

/// A load or store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Access {
    pub space: Space,
    /// Bytes per element.
    pub bytes: u8,
    /// Elements of a vector.
    pub count: u8,
    pub is_signed: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Special {
    Thread(u8),
    Threads(u8),
    Block(u8),
    Blocks(u8),
    Lane,
    Warp,
    Rank,
    Timer,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reduce {
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    Exchange,
    CompareAndSwap,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Unsigned,
    Signed,
    Float,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Logic {
    And,
    Or,
    Xor,
    Not,
    Move,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shuffle {
    Up,
    Down,
    Butterfly,
    Index,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Vote {
    Ballot,
    Any,
    All,
}

/// What an instruction does. Its operands are listed with results first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Op {
    Lanes(Elementwise),
    Compare(Compare),
    /// Predicates: result, a, b.
    Logic(Logic),
    /// Result, a, b, predicate.
    Select {
        is_wide: bool,
    },
    Special(Special),
    /// The kernel's parameter at the offset.
    Parameter {
        bytes: u8,
        is_wide: bool,
    },
    /// The address of the parameter at the offset.
    ParameterAddress,
    /// Results, address.
    Load(Access),
    /// Address, values.
    Store(Access),
    /// Result or none, address, value, and what is compared.
    Atomic {
        space: Space,
        reduce: Reduce,
        kind: Kind,
        is_wide: bool,
    },
    /// To the instruction at the offset.
    Branch,
    Exit,
    Nothing,
    /// Barrier index, threads.
    Barrier,
    WarpBarrier,
    ClusterArrive,
    ClusterWait,
    /// Result, predicate or none, value, b, c, mask.
    Shuffle(Shuffle),
    /// Result, predicate, mask. A ballot's result is a row.
    Vote(Vote),
    /// Result, value, mask.
    Redux(Reduce, Kind),
    /// Four sums, four words of a, two of b, four sums before.
    Multiply {
        is_bf16: bool,
    },
    /// 32 sums, four words of a, the descriptor of b, whether the sums before count.
    MultiplyGroup {
        is_bf16: bool,
        is_transposed: bool,
    },
    /// Results, address.
    LoadMatrices {
        is_transposed: bool,
    },
    TransposeMatrix,
    /// Shared address, global address, bytes that are there or none.
    CopyAsync {
        bytes: u8,
    },
    /// Address, arrivals.
    SignalInit,
    /// Address, bytes that are expected or none.
    SignalArrive,
    /// Predicate, address, parity.
    SignalTest,
    /// Shared address, map, three coordinates, address of the signal.
    CopyTile,
    /// Result, address, rank.
    MapAddress,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct Instruction {
    pub op: Op,
    pub guard: u32,
    pub is_negated: bool,
    /// The index of its first operand in the program's list.
    pub first: u32,
    pub count: u16,
    pub offset: i64,
    /// The line of the source.
    pub line: u32,
}

/// A parameter's offset and size.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Parameter {
    pub offset: usize,
    pub bytes: usize,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Program {
    pub name: String,
    pub code: Vec<Instruction>,
    pub operands: Vec<u32>,
    pub constants: Vec<Row>,
    pub rows: usize,
    pub predicates: usize,
    pub parameters: Vec<Parameter>,
    pub parameter_bytes: usize,
    /// The end of the static shared memory, where dynamic shared memory begins.
    pub shared_end: u64,
    pub local_bytes: usize,
    pub cluster: [u32; 3],
}
