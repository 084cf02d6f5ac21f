//! What devices did during a wait, and after it.

use std::collections::HashMap;

use laptime_trace::{Trace, TrackId};

use super::Idle;
use crate::{
    devices::{DeviceWork, Devices, uncertainty},
    intervals::Stretches,
    waits::Found,
};

/// What each device did, to be asked by time.
pub(super) struct Meanwhile<'a> {
    trace: &'a Trace,
    devices: Vec<(&'a DeviceWork, Stretches)>,
    apart: u64,
}

impl<'a> Meanwhile<'a> {
    pub(super) fn of(trace: &'a Trace, devices: &'a Devices) -> Self {
        let devices = devices.devices.iter().map(|device| (device, device.busy())).collect();
        Self { trace, devices, apart: uncertainty(trace) }
    }

    /// How long the busiest device was busy in a stretch; none if there is no device.
    pub(super) fn busy(&self, from: u64, to: u64) -> Option<u64> {
        self.devices.iter().map(|(_, busy)| busy.length_within(from, to)).max()
    }

    /// When a device stood idle after each wait.
    ///
    /// It does so until its next work begins, or the same thread waits again, where the next work was launched after the
    /// wait by the same process. Empty where work was launched before: the wait did not hold it up. Of several devices
    /// the one that was idle longest counts.
    pub(super) fn idle_after(&self, waits: &[Found]) -> Vec<Idle> {
        let mut next_wait: HashMap<TrackId, u64> = HashMap::new();
        let mut idle: Vec<Idle> = Vec::with_capacity(waits.len());
        for wait in waits.iter().rev() {
            let until = next_wait.insert(wait.track, wait.start);
            idle.push(wait.end.and_then(|end| self.idle_from(end, until, wait.track)));
        }
        idle.reverse();
        idle
    }

    fn idle_from(&self, end: u64, until: Option<u64>, track: TrackId) -> Idle {
        let ends = self.devices.iter().filter_map(|device| self.next_launched(device, end, track));
        let next = ends.max()?.min(until.unwrap_or(u64::MAX)).max(end);
        Some((end, next))
    }

    /// When the next work of a device begins that was launched after a moment; the moment itself where work was
    /// launched before. None where nothing follows or its launch is not known.
    fn next_launched(&self, (device, busy): &(&DeviceWork, Stretches), moment: u64, track: TrackId) -> Option<u64> {
        if busy.contains(moment) {
            return Some(moment);
        }
        let next = device.work.get(device.work.partition_point(|work| work.start < moment))?;
        let launch = self.trace.span(next.launch?);
        let process = |track: TrackId| self.trace.track(track).process;
        let is_after = launch.start.0 >= moment && process(launch.track) == process(track);
        let is_apart = next.start.saturating_sub(moment) > self.apart;
        Some(if is_after && is_apart { next.start } else { moment })
    }
}
