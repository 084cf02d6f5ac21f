//! Runs a warp until it waits: one instruction after another, in all lanes that are at it.
#![allow(unsafe_code, reason = "rows are addressed by numbers that were checked when the kernel was translated")]

use std::sync::LazyLock;
use std::time::Instant;

use crate::machine::{Block, Fault, Launch, State, Warp};
use crate::program::{Instruction, Logic, NONE, Op, Special};
use crate::rows::{LANES, Rows};

mod access;
mod exchange;
mod matrix;
mod signal;

/// What a warp sees of its launch and cluster.
pub(crate) struct Machine<'a> {
    pub launch: &'a Launch<'a>,
    pub blocks: &'a mut Vec<Block>,
    /// Threads that arrived at the cluster's barrier.
    pub arrived: &'a mut u32,
    /// How often the cluster met.
    pub phase: u32,
}

/// Why a warp does not go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stop {
    /// It waits at a barrier, or is done.
    Waits,
    /// It looked for a signal that is not there yet.
    InVain,
}

/// What follows an instruction.
enum Next {
    On,
    /// Its lanes were put back.
    Away,
    Stop(Stop),
}

/// An instruction that runs.
struct Step<'a> {
    instruction: &'a Instruction,
    operands: &'a [u32],
    rows: Rows,
    /// The lanes in which it runs.
    mask: u32,
}

/// Runs a warp until it waits.
pub(crate) fn run(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Stop, Fault> {
    #[cfg(target_arch = "x86_64")]
    {
        let has = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        if !has {
            return Err(Fault::new("the emulator needs a processor with AVX2 and FMA", 1));
        }
    }
    // SAFETY: the processor has the features.
    unsafe { run_with_features(warp, machine) }
}

#[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma,bmi1,bmi2,lzcnt,popcnt"))]
unsafe fn run_with_features(warp: &mut Warp, machine: &mut Machine<'_>) -> Result<Stop, Fault> {
    let program = machine.launch.program;
    let rows = Rows { own: warp.rows.as_mut_ptr(), constants: program.constants.as_ptr() };
    while let Some((mut at, mut active)) = warp.take() {
        let mut next = warp.next_after(at);
        loop {
            let instruction = &program.code[at];
            let guard = warp.predicates[instruction.guard as usize];
            let mask = active & if instruction.is_negated { !guard } else { guard };
            let first = instruction.first as usize;
            let operands = &program.operands[first..first + usize::from(instruction.count)];
            let step = Step { instruction, operands, rows, mask };
            match instruction.op {
                Op::Branch => {
                    let target = instruction.offset as usize;
                    if mask == active && warp.groups.is_empty() {
                        at = target;
                    } else {
                        warp.put(target, mask, State::Ready);
                        warp.put(at + 1, active & !mask, State::Ready);
                        break;
                    }
                    continue;
                }
                Op::Exit => {
                    warp.alive &= !mask;
                    machine.blocks[warp.block].alive -= mask.count_ones();
                    active &= !mask;
                    if active == 0 {
                        break;
                    }
                }
                _ if mask == 0 => {}
                // SAFETY: the operands are those that the translation gave the operation.
                Op::Lanes(op) => unsafe { op.run(&rows, operands, mask) },
                // SAFETY: as above.
                Op::Compare(op) => unsafe {
                    let holds = op.run(&rows, operands[1], operands[2]);
                    set(&mut warp.predicates[operands[0] as usize], mask, holds);
                },
                _ => match step.other(warp, machine, at, active)? {
                    Next::On => {}
                    Next::Away => break,
                    Next::Stop(stop) => return Ok(stop),
                },
            }
            at += 1;
            if at >= next {
                warp.put(at, active, State::Ready);
                next = 0;
            }
            if next == 0 {
                break;
            }
        }
    }
    if warp.alive != 0 && warp.groups.iter().all(|group| group.state == State::Converging) {
        return Err(Fault::new("lanes wait for others of their warp, which never come", warp.alive));
    }
    Ok(Stop::Waits)
}

/// Sets the bits of a mask.
fn set(to: &mut u32, mask: u32, values: u32) {
    *to = *to & !mask | values & mask;
}

/// The place of a thread of a block.
pub(crate) fn thread(launch: &Launch<'_>, number: u32) -> [u32; 3] {
    let [x, y, _] = launch.block;
    [number % x, number / x % y, number / x / y]
}

fn nanos() -> u64 {
    static START: LazyLock<Instant> = LazyLock::new(Instant::now);
    START.elapsed().as_nanos() as u64 + 1_000_000_000
}

impl Step<'_> {
    fn fault(&self, text: impl Into<String>, mask: u32) -> Fault {
        Fault::new(format!("line {}: {}", self.instruction.line, text.into()), mask)
    }

    fn lanes(&self) -> impl Iterator<Item = usize> + use<> {
        let mask = self.mask;
        (0..LANES).filter(move |lane| mask >> lane & 1 != 0)
    }

    #[inline(always)]
    fn row_of(&self, operand: usize) -> &[u32; LANES] {
        // SAFETY: the operand is a row of 32 bits, which nobody changes meanwhile.
        unsafe { &*self.rows.row::<u32>(self.operands[operand]) }
    }

    /// One lane of an operand.
    fn word(&self, operand: usize, lane: usize) -> u32 {
        // SAFETY: the operand is a row of 32 bits.
        unsafe { self.rows.lane::<u32>(self.operands[operand], lane) }
    }

    /// The same for 64 bits.
    fn long(&self, operand: usize, lane: usize) -> u64 {
        // SAFETY: the operand is a row of 64 bits.
        unsafe { self.rows.lane::<u64>(self.operands[operand], lane) }
    }

    /// An operand in the first lane that runs, for those that are the same in all.
    fn first_word(&self, operand: usize) -> u32 {
        self.word(operand, self.mask.trailing_zeros() as usize % LANES)
    }

    fn write(&self, operand: usize, values: &[u32; LANES]) {
        // SAFETY: the operand is a row of 32 bits and no constant.
        unsafe { self.rows.write::<u32>(self.operands[operand], self.mask, values) }
    }

    /// Parks the lanes unless all others that live are here too.
    fn converge(&self, warp: &mut Warp, wanted: u32, at: usize, active: u32) -> bool {
        let is_here = active & wanted & warp.alive == wanted & warp.alive;
        if !is_here {
            warp.put(at, active, State::Converging);
        }
        is_here
    }

    #[inline(always)]
    fn other(&self, warp: &mut Warp, machine: &mut Machine<'_>, at: usize, active: u32) -> Result<Next, Fault> {
        match self.instruction.op {
            Op::Load(access) => self.load(access, warp, machine)?,
            Op::Store(access) => self.store(access, warp, machine)?,
            Op::CopyAsync { bytes } => self.copy_async(bytes, warp, machine)?,
            Op::Select { is_wide } => self.select(is_wide, warp),
            Op::Logic(logic) => self.logic(logic, warp),
            Op::Multiply { is_bf16 } => {
                if !self.converge(warp, !0, at, active) {
                    return Ok(Next::Away);
                }
                self.multiply(is_bf16);
            }
            Op::MultiplyGroup { is_bf16, is_transposed } => {
                if !self.converge(warp, !0, at, active) {
                    return Ok(Next::Away);
                }
                self.multiply_group(is_bf16, is_transposed, warp, machine)?;
            }
            Op::LoadMatrices { is_transposed } => {
                if !self.converge(warp, !0, at, active) {
                    return Ok(Next::Away);
                }
                self.load_matrices(is_transposed, warp, machine)?;
            }
            Op::Shuffle(shuffle) => {
                if !self.converge(warp, self.first_word(5), at, active) {
                    return Ok(Next::Away);
                }
                self.shuffle(shuffle, warp);
            }
            _ => return self.rare(warp, machine, at, active),
        }
        Ok(Next::On)
    }

    #[inline(never)]
    fn rare(&self, warp: &mut Warp, machine: &mut Machine<'_>, at: usize, active: u32) -> Result<Next, Fault> {
        match self.instruction.op {
            Op::Special(special) => self.special(special, warp, machine),
            Op::Parameter { bytes, is_wide } => self.parameter(bytes, is_wide, machine),
            Op::ParameterAddress => {
                let address = machine.launch.parameters.as_ptr() as u64 + self.instruction.offset as u64;
                // SAFETY: the result is a row of 64 bits.
                unsafe { self.rows.write::<u64>(self.operands[0], self.mask, &[address; LANES]) }
            }
            Op::Atomic { space, reduce, kind, is_wide } => {
                self.atomic((space, reduce, kind, is_wide), warp, machine)?
            }
            Op::Nothing => {}
            Op::WarpBarrier | Op::Vote(_) | Op::Redux(..) | Op::TransposeMatrix => {
                let wanted = match self.instruction.op {
                    Op::Vote(_) | Op::Redux(..) => self.first_word(2),
                    _ => !0,
                };
                if !self.converge(warp, wanted, at, active) {
                    return Ok(Next::Away);
                }
                match self.instruction.op {
                    Op::Vote(vote) => self.vote(vote, warp),
                    Op::Redux(reduce, kind) => self.redux(reduce, kind),
                    Op::TransposeMatrix => self.transpose_matrix(),
                    _ => {}
                }
            }
            Op::Barrier => return self.barrier(warp, machine, at, active),
            Op::ClusterArrive => {
                *machine.arrived += self.mask.count_ones();
                warp.cluster_phase = machine.phase;
            }
            Op::ClusterWait if warp.cluster_phase == machine.phase => {
                warp.put(at + 1, active, State::Cluster);
                return Ok(Next::Away);
            }
            Op::ClusterWait => {}
            Op::CopyTile => self.copy_tile(warp, machine)?,
            Op::SignalInit => self.signal_init(warp, machine)?,
            Op::SignalArrive => self.signal_arrive(warp, machine)?,
            Op::SignalTest => {
                if !self.signal_test(warp, machine)? {
                    warp.put(at + 1, active, State::Ready);
                    return Ok(Next::Stop(Stop::InVain));
                }
            }
            Op::MapAddress => {
                let values = std::array::from_fn(|lane| {
                    let rank = self.word(2, lane).wrapping_add(1) & 0xff;
                    self.word(1, lane) & ((1 << crate::program::RANK_SHIFT) - 1) | rank << crate::program::RANK_SHIFT
                });
                self.write(0, &values);
            }
            other => return Err(self.fault(format!("{other:?} is not expected here"), self.mask)),
        }
        Ok(Next::On)
    }

    fn barrier(&self, warp: &mut Warp, machine: &mut Machine<'_>, at: usize, active: u32) -> Result<Next, Fault> {
        let number = self.first_word(0);
        let meetings = &mut machine.blocks[warp.block].meetings;
        let meeting = meetings.get_mut(number as usize).ok_or_else(|| self.fault("no such barrier", self.mask))?;
        meeting.arrived += self.mask.count_ones();
        meeting.wanted = (self.operands[1] != NONE).then(|| self.first_word(1));
        warp.put(at + 1, self.mask, State::Barrier(number as u8));
        warp.put(at + 1, active & !self.mask, State::Ready);
        Ok(Next::Away)
    }

    fn special(&self, special: Special, warp: &Warp, machine: &Machine<'_>) {
        let launch = machine.launch;
        let first = warp.number * LANES as u32;
        let all = |value: u32| [value; LANES];
        let values = match special {
            // Without a division where a block is a line.
            Special::Thread(0) if launch.block[0] == launch.threads() => {
                std::array::from_fn(|lane| first + lane as u32)
            }
            Special::Thread(side) => std::array::from_fn(|lane| thread(launch, first + lane as u32)[side as usize]),
            Special::Threads(side) => all(launch.block[side as usize]),
            Special::Block(side) => all(machine.blocks[warp.block].at[side as usize]),
            Special::Blocks(side) => all(launch.grid[side as usize]),
            Special::Lane => std::array::from_fn(|lane| lane as u32),
            Special::Warp => all(warp.number),
            Special::Rank => all(warp.block as u32),
            Special::Timer => {
                // SAFETY: the result is a row of 64 bits.
                return unsafe { self.rows.write::<u64>(self.operands[0], self.mask, &[nanos(); LANES]) };
            }
        };
        self.write(0, &values);
    }

    fn parameter(&self, bytes: u8, is_wide: bool, machine: &Machine<'_>) {
        let from = self.instruction.offset as usize;
        let mut value = [0; 8];
        value[..usize::from(bytes)].copy_from_slice(&machine.launch.parameters[from..from + usize::from(bytes)]);
        let value = u64::from_le_bytes(value);
        if is_wide {
            // SAFETY: the result is a row of 64 bits.
            unsafe { self.rows.write::<u64>(self.operands[0], self.mask, &[value; LANES]) }
        } else {
            self.write(0, &[value as u32; LANES]);
        }
    }

    #[inline(always)]
    fn select(&self, is_wide: bool, warp: &Warp) {
        let (holds, operands) = (warp.predicates[self.operands[3] as usize], self.operands);
        macro_rules! select {
            ($type:ty) => {{
                // SAFETY: the operands are rows of this width.
                unsafe {
                    let (a, b) = (&*self.rows.row::<$type>(operands[1]), &*self.rows.row::<$type>(operands[2]));
                    let mut out = [0; LANES];
                    for lane in 0..LANES {
                        out[lane] = if holds >> lane & 1 != 0 { a[lane] } else { b[lane] };
                    }
                    self.rows.write::<$type>(operands[0], self.mask, &out);
                }
            }};
        }
        if is_wide { select!(u64) } else { select!(u32) }
    }

    fn logic(&self, logic: Logic, warp: &mut Warp) {
        let [a, b] = [1, 2].map(|operand| warp.predicates[self.operands[operand] as usize]);
        let values = match logic {
            Logic::And => a & b,
            Logic::Or => a | b,
            Logic::Xor => a ^ b,
            Logic::Not => !a,
            Logic::Move => a,
        };
        set(&mut warp.predicates[self.operands[0] as usize], self.mask, values);
    }
}
