//! A device stream: marks in order, written as the device reaches them.

use std::io::{self, Write};
use std::{collections::BTreeMap, sync::Arc};

use laptime_probe::{DeviceClock, LaneId, Resolved, Stamp, TickMap};

use super::thread::Key;
use super::timeline::{FlowEnd, Opening, Timeline};
use crate::{format::pftrace::Writer, time::Nanos};

enum Pending {
    Begin { opening: Opening, flow: u64 },
    End { key: Key },
}

/// A stream with its unresolved marks.
pub struct DeviceLane {
    clock: Arc<dyn DeviceClock>,
    timeline: Timeline,
    /// The events of the marks, and when the host placed them.
    pending: BTreeMap<Stamp, (Nanos, Pending)>,
    latest: Nanos,
    lost: u64,
}

/// The id of the flow from a host stage to the same stage on the device.
pub fn flow_number(lane: LaneId, stamp: Stamp) -> u64 {
    (u64::from(lane.0) << 44) | (stamp.0 & ((1 << 44) - 1))
}

impl DeviceLane {
    pub fn new(clock: Arc<dyn DeviceClock>, timeline: Timeline) -> Self {
        Self { clock, timeline, pending: BTreeMap::new(), latest: Nanos(0), lost: 0 }
    }

    pub fn begin(&mut self, stamp: Stamp, given: Nanos, opening: Opening, flow: u64) {
        self.pending.insert(stamp, (given, Pending::Begin { opening, flow }));
    }

    pub fn end(&mut self, stamp: Stamp, given: Nanos, key: Key) {
        self.pending.insert(stamp, (given, Pending::End { key }));
    }

    pub fn uncertainty(&self) -> u64 {
        self.clock.uncertainty_nanos()
    }

    pub fn has_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Writes the reached marks in order, up to the first that is unreached or that the host placed after `until`.
    pub fn ask<W: Write>(&mut self, until: Nanos, map: &TickMap, writer: &mut Writer<W>) -> io::Result<Nanos> {
        while let Some((&stamp, (given, _))) = self.pending.first_key_value() {
            if *given > until {
                break;
            }
            let moment = match self.clock.resolve(stamp) {
                Resolved::Pending => break,
                Resolved::Never => {
                    self.pending.remove(&stamp);
                    self.lost += 1;
                    continue;
                }
                Resolved::At(moment) => moment,
            };
            let anchor = map.nanos(moment.anchor.middle());
            let time = Nanos(anchor.saturating_add_signed(moment.nanos));
            self.latest = self.latest.max(time);
            match self.pending.remove(&stamp).map(|(_, pending)| pending) {
                Some(Pending::Begin { opening, flow }) => {
                    self.timeline.enter(time, opening, Some(FlowEnd::In(flow)), writer)?;
                }
                Some(Pending::End { key }) => self.timeline.exit(time, key, writer)?,
                None => {}
            }
        }
        Ok(self.latest)
    }

    /// Marks that the device never reached.
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Closes the open spans at the last known device time; unreached marks are dropped.
    pub fn close<W: Write>(&mut self, writer: &mut Writer<W>) -> io::Result<()> {
        self.lost += self.pending.len() as u64;
        self.pending.clear();
        self.timeline.close(self.latest, writer)
    }
}
