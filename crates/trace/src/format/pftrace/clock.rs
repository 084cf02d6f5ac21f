//! Clocks: converts packet timestamps to nanoseconds on the boot-time clock.

use std::ops::RangeInclusive;

use hashbrown::HashMap;

use super::{BOOTTIME, proto::ClockSnapshot};

/// The ids of clocks that belong to one sequence; all others are global.
const OWN: RangeInclusive<u32> = 64..=127;

/// The clocks of a sequence.
#[derive(Debug, Default)]
pub struct Clocks {
    /// The clock of packets that name none.
    pub default: Option<u32>,
    /// Nearly always one.
    own: Vec<(u32, Clock)>,
}

#[derive(Debug, Clone, Copy)]
struct Clock {
    is_incremental: bool,
    unit: u64,
    /// The clock's time at its snapshot.
    base: u64,
    /// Boot time at its snapshot; for an incremental clock, at its last packet.
    boot: u64,
}

impl Clocks {
    /// What stays when a sequence is reset: its clocks, but no default.
    pub fn cleared(self) -> Self {
        Self { default: None, ..self }
    }

    /// Reads the clocks of a snapshot with a known boot time.
    pub fn take(&mut self, snapshot: &ClockSnapshot) {
        let Some(boot) = boot_time(snapshot) else { return };
        for clock in &snapshot.clocks {
            if let (Some(id), Some(base)) = (clock.clock_id.filter(|id| OWN.contains(id)), clock.timestamp) {
                let is_incremental = clock.is_incremental.unwrap_or(false);
                let unit = clock.unit_multiplier_ns.unwrap_or(1);
                self.own.retain(|(known, _)| *known != id);
                self.own.push((id, Clock { is_incremental, unit, base, boot }));
            }
        }
    }

    /// The boot time of a timestamp; none if it is out of range.
    pub fn time(&mut self, clock: Option<u32>, stamp: u64, shared: &SharedClocks) -> Option<u64> {
        let clock = clock.or(self.default).unwrap_or(BOOTTIME);
        let own = self.own.iter_mut().find(|(id, _)| *id == clock);
        let Some((_, clock)) = own else { return shared.time(clock, stamp) };
        if clock.is_incremental {
            // A difference may be negative: it then wraps around, as in Perfetto's own arithmetic.
            clock.boot = clock.boot.wrapping_add(stamp.wrapping_mul(clock.unit));
            return Some(clock.boot);
        }
        let since = (i128::from(stamp) - i128::from(clock.base)).checked_mul(i128::from(clock.unit))?;
        u64::try_from(i128::from(clock.boot).checked_add(since)?).ok()
    }
}

/// The offsets of the global clocks to boot time, from the first snapshot.
#[derive(Debug, Default)]
pub struct SharedClocks(HashMap<u32, i128>);

impl SharedClocks {
    pub fn take(&mut self, snapshot: &ClockSnapshot) {
        let Some(boot) = boot_time(snapshot) else { return };
        for clock in &snapshot.clocks {
            if let (Some(id), Some(time)) = (clock.clock_id.filter(|id| !OWN.contains(id)), clock.timestamp) {
                self.0.entry(id).or_insert(i128::from(time) - i128::from(boot));
            }
        }
    }

    /// The boot time of a timestamp; a clock that is in no snapshot counts as boot time.
    fn time(&self, clock: u32, stamp: u64) -> Option<u64> {
        let ahead = self.0.get(&clock).copied().unwrap_or(0);
        u64::try_from(i128::from(stamp) - ahead).ok()
    }
}

/// The boot time of a snapshot, or of the first global clock if there is none.
fn boot_time(snapshot: &ClockSnapshot) -> Option<u64> {
    let has = |is: fn(u32) -> bool| snapshot.clocks.iter().find(|clock| clock.clock_id.is_some_and(is));
    has(|id| id == BOOTTIME).or_else(|| has(|id| !OWN.contains(&id)))?.timestamp
}

#[cfg(test)]
mod tests {
    use super::super::proto::Clock;
    use super::*;

    #[test]
    fn clocks_of_a_sequence_are_its_own_and_others_are_shared() {
        let snapshot =
            ClockSnapshot { clocks: [(BOOTTIME, 1_000), (70, 7), (200, 50)].map(|(id, at)| Clock::at(id, at)).into() };
        let (mut own, mut shared) = (Clocks::default(), SharedClocks::default());
        own.take(&snapshot);
        shared.take(&snapshot);
        assert_eq!([70, 200].map(|clock| own.time(Some(clock), 60, &shared)), [Some(1_053), Some(1_010)]);
        let other = |clock| Clocks::default().time(Some(clock), 60, &shared);
        assert_eq!([70, 200].map(other), [Some(60), Some(1_010)]);
    }
}
