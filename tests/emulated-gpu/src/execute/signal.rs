//! mbarriers, and TMA loads that arrive at them.

use super::{Machine, Step, set};
use crate::machine::{Fault, Warp};
use crate::program::{NONE, Space};
use crate::tensor_map::TensorMap;

/// The 64 bits of an mbarrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Signal {
    /// Arrivals per phase.
    wanted: u16,
    pending: u16,
    /// Expected bytes that have not arrived yet.
    bytes: i32,
}

/// The bit that changes with every phase. The bytes use 31 bits.
const PHASE: u64 = 1 << 63;
const BYTES: u64 = (1 << 31) - 1;

impl Signal {
    fn of(word: u64) -> (Self, bool) {
        // The sign of 31 bits.
        let bytes = ((word >> 32 & BYTES) as i32) << 1 >> 1;
        (Self { wanted: word as u16, pending: (word >> 16) as u16, bytes }, word & PHASE != 0)
    }

    /// Its bits, advanced to the next phase if this one is complete.
    fn word(mut self, mut phase: bool) -> u64 {
        if self.pending == 0 && self.bytes == 0 {
            (self.pending, phase) = (self.wanted, !phase);
        }
        let bytes = (self.bytes as u64 & BYTES) << 32;
        u64::from(self.wanted) | u64::from(self.pending) << 16 | bytes | if phase { PHASE } else { 0 }
    }
}

impl Step<'_> {
    /// Updates the mbarrier of each lane.
    fn change(
        &self,
        operand: usize,
        warp: &mut Warp,
        machine: &Machine<'_>,
        mut change: impl FnMut(usize, &mut Signal),
    ) -> Result<(), Fault> {
        let places = self.places((Space::Shared, operand), 8, warp, machine)?;
        for lane in self.lanes() {
            // SAFETY: the place was checked, and is aligned.
            let word = unsafe { &mut *places[lane].cast::<u64>() };
            let (mut signal, phase) = Signal::of(*word);
            change(lane, &mut signal);
            *word = signal.word(phase);
        }
        Ok(())
    }

    pub(super) fn signal_init(&self, warp: &mut Warp, machine: &Machine<'_>) -> Result<(), Fault> {
        let places = self.places((Space::Shared, 0), 8, warp, machine)?;
        for lane in self.lanes() {
            let wanted = self.word(1, lane) as u16;
            // SAFETY: the place was checked, and is aligned.
            unsafe { *places[lane].cast::<u64>() = Signal { wanted, pending: wanted, bytes: 0 }.word(false) }
        }
        Ok(())
    }

    pub(super) fn signal_arrive(&self, warp: &mut Warp, machine: &Machine<'_>) -> Result<(), Fault> {
        let mut is_too_often = false;
        self.change(0, warp, machine, |lane, signal| {
            if self.operands[1] != NONE {
                signal.bytes = signal.bytes.wrapping_add(self.word(1, lane) as i32);
            }
            is_too_often |= signal.pending == 0;
            signal.pending = signal.pending.saturating_sub(1);
        })?;
        match is_too_often {
            true => Err(self.fault("more threads arrive than the barrier waits for", self.mask)),
            false => Ok(()),
        }
    }

    /// Whether all lanes saw the end of their phase.
    pub(super) fn signal_test(&self, warp: &mut Warp, machine: &Machine<'_>) -> Result<bool, Fault> {
        let places = self.places((Space::Shared, 1), 8, warp, machine)?;
        let mut holds = 0;
        for lane in self.lanes() {
            // SAFETY: the place was checked, and is aligned.
            let (_, phase) = Signal::of(unsafe { *places[lane].cast::<u64>() });
            holds |= u32::from(u32::from(phase) != self.word(2, lane) & 1) << lane;
        }
        set(&mut warp.predicates[self.operands[0] as usize], self.mask, holds);
        Ok(holds & self.mask == self.mask)
    }

    pub(super) fn copy_tile(&self, warp: &mut Warp, machine: &Machine<'_>) -> Result<(), Fault> {
        let places = self.places((Space::Shared, 0), 16, warp, machine)?;
        let maps = self.places((Space::Generic, 1), 64, warp, machine)?;
        for lane in self.lanes() {
            // SAFETY: the place was checked; `emulator_map` wrote a map there.
            let map = unsafe { maps[lane].cast::<TensorMap>().read_unaligned() };
            let at = [2, 3, 4].map(|operand| self.word(operand, lane) as i32);
            let shared = self.long(0, lane);
            if !shared.is_multiple_of(1024) || shared + map.tile_bytes() > machine.launch.shared_end {
                return Err(self.fault(format!("a tile at {shared:#x} of shared memory"), 1 << lane));
            }
            // SAFETY: the tile is within shared memory, and what is read is checked.
            let copied = unsafe { map.copy(at, places[lane], |address| machine.launch.region(address)) };
            let outside = |address| format!("a tile reads {address:#x}, which is not allocated");
            copied.map_err(|address| self.fault(outside(address), 1 << lane))?;
            let bytes = map.tile_bytes() as i32;
            let one = Step { mask: 1 << lane, ..*self };
            one.change(5, warp, machine, |_, signal| signal.bytes = signal.bytes.wrapping_sub(bytes))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_ends_once_all_arrived_and_all_bytes_came() {
        let (mut signal, phase) = Signal::of(Signal { wanted: 1, pending: 1, bytes: 0 }.word(false));
        assert!(!phase);
        (signal.pending, signal.bytes) = (0, 100);
        let (mut signal, phase) = Signal::of(signal.word(phase));
        assert_eq!((phase, signal.bytes), (false, 100));
        signal.bytes -= 100;
        let (signal, phase) = Signal::of(signal.word(phase));
        assert_eq!((phase, signal), (true, Signal { wanted: 1, pending: 1, bytes: 0 }));
    }

    #[test]
    fn bytes_may_come_before_they_are_expected() {
        let early = Signal { wanted: 2, pending: 1, bytes: -4096 };
        assert_eq!(Signal::of(early.word(true)), (early, true));
    }
}
