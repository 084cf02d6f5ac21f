//! The clocks of one packet sequence: from what a packet says to nanoseconds on the boot-time clock.

use std::collections::HashMap;

use super::{BOOTTIME, proto::ClockSnapshot};

/// The clocks that a sequence has of its own; the others are taken for boot time.
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
    /// The clock's own time at its snapshot.
    base: u64,
    /// Boot time at its snapshot; of an incremental clock, at its last packet.
    boot: u64,
}

impl Clocks {
    /// What stays when a sequence begins anew: its clocks, and no default.
    pub fn cleared(self) -> Self {
        Self { default: None, ..self }
    }

    /// Takes the clocks of a snapshot that says what boot time it was.
    pub fn take(&mut self, snapshot: &ClockSnapshot) {
        const FIRST_OWN: u32 = 64;
        let boot = snapshot.clocks.iter().find(|clock| clock.clock_id == Some(BOOTTIME));
        let Some(boot) = boot.and_then(|clock| clock.timestamp) else { return };
        for clock in &snapshot.clocks {
            if let (Some(id @ FIRST_OWN..), Some(base)) = (clock.clock_id, clock.timestamp) {
                let is_incremental = clock.is_incremental.unwrap_or(false);
                let unit = clock.unit_multiplier_ns.unwrap_or(1);
                self.own.insert(id, Clock { is_incremental, unit, base, boot });
            }
        }
    }

    /// The boot time of a stamp; none if it lies outside all time.
    pub fn time(&mut self, clock: Option<u32>, stamp: u64) -> Option<u64> {
        let clock = clock.or(self.default).unwrap_or(BOOTTIME);
        let Some(clock) = self.own.get_mut(&clock) else { return Some(stamp) };
        if clock.is_incremental {
            // A difference may be negative: then it wraps around, as Perfetto's own arithmetic does.
            clock.boot = clock.boot.wrapping_add(stamp.wrapping_mul(clock.unit));
            return Some(clock.boot);
        }
        let since = (i128::from(stamp) - i128::from(clock.base)).checked_mul(i128::from(clock.unit))?;
        u64::try_from(i128::from(clock.boot).checked_add(since)?).ok()
    }
}
