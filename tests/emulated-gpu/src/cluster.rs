//! Runs the blocks of a cluster, one warp after another.

use crate::execute::{self, Machine, Stop};
use crate::machine::{Block, Fault, Launch, State, Warp};
use crate::rows::LANES;

/// How often all warps may look for something in vain before they are said to wait forever.
const PATIENCE: u32 = 10_000;

/// The blocks of a cluster; a block without one is a cluster of its own.
#[derive(Debug)]
pub(crate) struct Cluster {
    blocks: Vec<Block>,
    warps: Vec<Warp>,
    arrived: u32,
    phase: u32,
}

impl Cluster {
    pub fn new(launch: &Launch<'_>) -> Self {
        let count: u32 = launch.program.cluster.iter().product();
        let warps = launch.threads().div_ceil(LANES as u32);
        let blocks = 0..count as usize;
        Self {
            warps: blocks
                .clone()
                .flat_map(|block| (0..warps).map(move |number| Warp::new(launch.program, block, number)))
                .collect(),
            blocks: blocks.map(|_| Block::new(launch)).collect(),
            arrived: 0,
            phase: 0,
        }
    }

    /// Runs the cluster with this number. Warps run from barrier to barrier, and in every other cluster the last one runs first.
    /// So a kernel computes something else if a barrier is missing, whichever warp should have waited for which.
    pub fn run(&mut self, launch: &Launch<'_>, number: u64) -> Result<(), String> {
        let is_reversed = (number + launch.number) % 2 == 1;
        self.begin(launch, number);
        let mut in_vain = 0;
        loop {
            let mut stops = [false; 2];
            for turn in 0..self.warps.len() {
                let warp = if is_reversed { self.warps.len() - 1 - turn } else { turn };
                if !self.warps[warp].is_ready() {
                    continue;
                }
                let stop = self.step(launch, warp).map_err(|fault| self.describe(launch, warp, &fault))?;
                stops[usize::from(stop == Stop::InVain)] = true;
            }
            let is_released = self.release();
            if self.warps.iter().all(|warp| warp.alive == 0) {
                return Ok(());
            }
            in_vain = if stops[0] || is_released { 0 } else { in_vain + 1 };
            if !(stops[1] || stops[0] || is_released) || in_vain > PATIENCE {
                return Err(self.stuck(launch));
            }
        }
    }

    fn begin(&mut self, launch: &Launch<'_>, number: u64) {
        let sides = launch.program.cluster;
        let clusters = [0, 1, 2].map(|side| u64::from(launch.grid[side].div_ceil(sides[side])));
        let first = [number % clusters[0], number / clusters[0] % clusters[1], number / clusters[0] / clusters[1]];
        let threads = launch.threads();
        for (rank, block) in self.blocks.iter_mut().enumerate() {
            let rank = rank as u32;
            let inside = [rank % sides[0], rank / sides[0] % sides[1], rank / sides[0] / sides[1]];
            block.begin([0, 1, 2].map(|side| first[side] as u32 * sides[side] + inside[side]), threads);
        }
        self.warps.iter_mut().for_each(|warp| warp.begin(threads));
        (self.arrived, self.phase) = (0, 0);
    }

    fn step(&mut self, launch: &Launch<'_>, warp: usize) -> Result<Stop, Fault> {
        let Self { blocks, warps, arrived, phase } = self;
        let mut machine = Machine { launch, blocks, arrived, phase: *phase };
        execute::run(&mut warps[warp], &mut machine)
    }

    /// Lets warps go on whose barriers are complete.
    fn release(&mut self) -> bool {
        let mut is_released = false;
        for (number, block) in self.blocks.iter_mut().enumerate() {
            let alive = block.alive;
            for (barrier, meeting) in block.meetings.iter_mut().enumerate() {
                if meeting.arrived > 0 && meeting.arrived >= meeting.wanted.unwrap_or(alive) {
                    *meeting = crate::machine::Meeting::default();
                    let of_block = self.warps.iter_mut().filter(|warp| warp.block == number);
                    of_block.for_each(|warp| warp.release(State::Barrier(barrier as u8)));
                    is_released = true;
                }
            }
        }
        let alive: u32 = self.blocks.iter().map(|block| block.alive).sum();
        if self.arrived > 0 && self.arrived >= alive {
            (self.arrived, self.phase) = (0, self.phase.wrapping_add(1));
            self.warps.iter_mut().for_each(|warp| warp.release(State::Cluster));
            is_released = true;
        }
        is_released
    }

    fn describe(&self, launch: &Launch<'_>, warp: usize, fault: &Fault) -> String {
        let (block, thread) = (self.blocks[self.warps[warp].block].at, self.thread(launch, warp, fault.lane));
        format!("`{}`, block {block:?}, thread {thread:?}: {}", launch.program.name, fault.text)
    }

    fn thread(&self, launch: &Launch<'_>, warp: usize, lane: usize) -> [u32; 3] {
        execute::thread(launch, self.warps[warp].number * LANES as u32 + lane as u32)
    }

    fn stuck(&self, launch: &Launch<'_>) -> String {
        let waiting =
            self.warps.iter().enumerate().flat_map(|(warp, of)| of.groups.iter().map(move |group| (warp, group)));
        let list = waiting.take(8).map(|(warp, group)| {
            let line = launch.program.code.get(group.at.saturating_sub(1)).map_or(0, |instruction| instruction.line);
            format!(
                "thread {:?} at line {line} ({:?})",
                self.thread(launch, warp, group.mask.trailing_zeros() as usize),
                group.state
            )
        });
        let list: Vec<String> = list.collect();
        format!("`{}`, block {:?}: no thread can go on: {}", launch.program.name, self.blocks[0].at, list.join(", "))
    }
}
