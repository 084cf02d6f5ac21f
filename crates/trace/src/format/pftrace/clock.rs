//! Clocks: converts packet timestamps to nanoseconds on the boot-time clock.

use hashbrown::HashMap;

use super::{BOOTTIME, proto::ClockSnapshot};

/// The first id of the clocks that belong to one sequence.
const FIRST_OWN: u32 = 64;

/// The clocks of a sequence.
#[derive(Debug, Default)]
pub struct Clocks {
    /// The clock of packets that name none.
    pub default: Option<u32>,
    own: HashMap<u32, Clock>,
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
            if let (Some(id @ FIRST_OWN..), Some(base)) = (clock.clock_id, clock.timestamp) {
                let is_incremental = clock.is_incremental.unwrap_or(false);
                let unit = clock.unit_multiplier_ns.unwrap_or(1);
                self.own.insert(id, Clock { is_incremental, unit, base, boot });
            }
        }
    }

    /// The boot time of a timestamp; none if it is out of range.
    pub fn time(&mut self, clock: Option<u32>, stamp: u64, shared: &SharedClocks) -> Option<u64> {
        let clock = clock.or(self.default).unwrap_or(BOOTTIME);
        let Some(clock) = self.own.get_mut(&clock) else { return shared.time(clock, stamp) };
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
            if let (Some(id @ ..FIRST_OWN), Some(time)) = (clock.clock_id, clock.timestamp) {
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
    let is =
        |clock: &&super::proto::Clock, ids: std::ops::Range<u32>| clock.clock_id.is_some_and(|id| ids.contains(&id));
    let boot = snapshot.clocks.iter().find(|clock| is(clock, BOOTTIME..BOOTTIME + 1));
    let stand_in = || snapshot.clocks.iter().find(|clock| is(clock, 0..FIRST_OWN));
    boot.or_else(stand_in)?.timestamp
}
