//! The state of a launch: memory, blocks and warps.

use crate::program::{Program, SHARED_BEGINS};
use crate::rows::{LANES, Row};

/// Memory that kernels may touch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(C)]
pub struct Region {
    /// The first address.
    pub from: u64,
    /// The address behind the last byte.
    pub end: u64,
}

/// A kernel with its grid and memory.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Launch<'a> {
    /// How many there were before.
    pub number: u64,
    pub program: &'a Program,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// The end of shared memory.
    pub shared_end: u64,
    pub parameters: &'a [u8],
    /// In the order of their addresses.
    pub regions: &'a [Region],
}

impl Launch<'_> {
    pub fn threads(&self) -> u32 {
        self.block.iter().product()
    }

    /// The region of an address.
    pub fn region(&self, address: u64) -> Option<Region> {
        let behind = self.regions.partition_point(|region| region.from <= address);
        let region = *self.regions.get(behind.checked_sub(1)?)?;
        (address < region.end).then_some(region)
    }
}

/// What went wrong, and in which lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Fault {
    pub text: String,
    pub lane: usize,
}

impl Fault {
    pub fn new(text: impl Into<String>, mask: u32) -> Self {
        Self { text: text.into(), lane: mask.trailing_zeros() as usize % LANES }
    }
}

/// A barrier of a block.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Meeting {
    pub arrived: u32,
    /// Threads that it waits for; none for all.
    pub wanted: Option<u32>,
}

/// A block that runs.
#[derive(Debug)]
pub(crate) struct Block {
    pub at: [u32; 3],
    /// As words, so that all numbers are aligned.
    pub shared: Vec<u128>,
    pub meetings: [Meeting; 16],
    pub alive: u32,
}

/// Numbers that nobody wrote are not zero, so that a kernel that reads them computes nothing useful.
const UNWRITTEN: u128 = u128::MAX;

impl Block {
    pub fn new(launch: &Launch<'_>) -> Self {
        // The addresses of a descriptor or tile are multiples of 1024.
        let words = (launch.shared_end as usize + SHARED_BEGINS as usize).div_ceil(size_of::<u128>());
        Self { at: [0; 3], shared: vec![UNWRITTEN; words], meetings: [Meeting::default(); 16], alive: 0 }
    }

    pub fn begin(&mut self, at: [u32; 3], threads: u32) {
        self.shared.fill(UNWRITTEN);
        (self.at, self.alive, self.meetings) = (at, threads, [Meeting::default(); 16]);
    }
}

/// Why some lanes of a warp do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Ready,
    /// They wait for other lanes of the warp to come to the same instruction.
    Converging,
    Barrier(u8),
    Cluster,
}

/// Lanes that are at the same instruction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Group {
    pub at: usize,
    pub mask: u32,
    pub state: State,
}

/// A warp.
#[derive(Debug)]
pub(crate) struct Warp {
    pub rows: Vec<Row>,
    pub predicates: Vec<u32>,
    pub local: Vec<u8>,
    /// Its block in the cluster.
    pub block: usize,
    /// Its number in the block.
    pub number: u32,
    pub groups: Vec<Group>,
    pub alive: u32,
    /// The number of meetings of the cluster when it last arrived.
    pub cluster_phase: u32,
    /// The region that it last used.
    pub last: Region,
}

impl Warp {
    pub fn new(program: &Program, block: usize, number: u32) -> Self {
        Self {
            rows: vec![Row([0; LANES]); program.rows],
            predicates: vec![0; program.predicates],
            local: vec![0xff; program.local_bytes * LANES],
            block,
            number,
            groups: Vec::new(),
            alive: 0,
            cluster_phase: 0,
            last: Region { from: 0, end: 0 },
        }
    }

    pub fn begin(&mut self, threads: u32) {
        let lanes = (threads - self.number * LANES as u32).min(LANES as u32);
        self.alive = (u32::MAX).unbounded_shr(LANES as u32 - lanes);
        self.predicates.fill(0);
        self.predicates[crate::program::ALWAYS as usize] = !0;
        self.cluster_phase = 0;
        self.groups.clear();
        self.groups.push(Group { at: 0, mask: self.alive, state: State::Ready });
    }

    /// Takes the lanes that are furthest behind, with all that are at the same instruction.
    pub fn take(&mut self) -> Option<(usize, u32)> {
        let ready = self.groups.iter().filter(|group| group.state == State::Ready);
        let at = ready.map(|group| group.at).min()?;
        let mut mask = 0;
        self.groups.retain(|group| {
            let is_here = group.at == at && matches!(group.state, State::Ready | State::Converging);
            mask |= if is_here { group.mask } else { 0 };
            !is_here
        });
        Some((at, mask))
    }

    /// The next instruction at which other lanes wait to go on.
    pub fn next_after(&self, at: usize) -> usize {
        let others = self.groups.iter().filter(|group| matches!(group.state, State::Ready | State::Converging));
        others.map(|group| group.at).filter(|next| *next > at).min().unwrap_or(usize::MAX)
    }

    pub fn put(&mut self, at: usize, mask: u32, state: State) {
        if mask != 0 {
            self.groups.push(Group { at, mask, state });
        }
    }

    pub fn is_ready(&self) -> bool {
        self.groups.iter().any(|group| group.state == State::Ready)
    }

    /// Lets lanes go on that wait like this.
    pub fn release(&mut self, waiting: State) {
        let released = self.groups.iter_mut().filter(|group| group.state == waiting);
        released.for_each(|group| group.state = State::Ready);
    }
}
