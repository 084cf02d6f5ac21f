//! What happened in each lap.

use std::collections::HashSet;

use laptime_trace::{Activity, SpanId, Trace};

use crate::devices::{Devices, Work};
use crate::intervals::Stretches;
use crate::lap_unit::{LapSource, LapUnit};
use crate::waits::{Found, waiting};

/// One lap.
#[derive(Debug, Clone, PartialEq)]
pub struct Lap {
    /// Its label.
    pub label: String,
    /// When it began.
    pub start: u64,
    /// When it ended.
    pub end: u64,
    /// Its time in which a device worked; none if the trace has no device.
    pub busy: Option<u64>,
    /// How many syncs started in it.
    pub waits: u64,
    /// Its time in which a host thread waited for a device.
    pub waiting: u64,
    /// Launches; none if the trace does not have them.
    pub launches: Option<u64>,
    /// It is longer than the limit.
    pub is_slow: bool,
    /// Whether it is slow, and all laps before it too.
    pub is_cold: bool,
}

impl Lap {
    /// How long it lasted.
    pub fn length(&self) -> u64 {
        self.end.saturating_sub(self.start)
    }

    /// Its time in which no device worked; none if the trace has no device.
    pub fn idle(&self) -> Option<u64> {
        Some(self.length().saturating_sub(self.busy?))
    }
}

/// Collects what happened in each lap.
pub fn each(trace: &Trace, devices: &Devices, unit: &LapUnit, waits: &[Found]) -> Vec<Lap> {
    let work = || devices.work();
    let busy = Stretches::union(work().map(|work| (work.start, work.end)).collect());
    let waiting = waiting(waits);
    let launches = launches(trace, devices, unit);
    let waits = unit.count(waits.iter().filter_map(|wait| unit.at(wait.start)));
    let laps = unit.laps.iter().enumerate();
    laps.map(|(at, lap)| Lap {
        label: lap.label.clone(),
        start: lap.start,
        end: lap.end,
        busy: work().next().map(|_| busy.length_within(lap.start, lap.end)),
        waits: waits[at],
        waiting: waiting.length_within(lap.start, lap.end),
        launches: launches.as_ref().map(|launches| launches[at]),
        is_slow: false,
        is_cold: false,
    })
    .collect()
}

/// Launches per lap: those that start in it; for laps detected on a device, those of the work that starts in
/// it.
fn launches(trace: &Trace, devices: &Devices, unit: &LapUnit) -> Option<Vec<u64>> {
    if unit.source == LapSource::Kernels {
        return launches_behind(devices, unit);
    }
    let is_launch = |id: SpanId| devices.activities[id.index()] == Activity::Launch;
    let starts = trace.spans().filter(|span| is_launch(span.id));
    Some(unit.count(starts.filter_map(|span| unit.at(span.start.0))))
}

fn launches_behind(devices: &Devices, unit: &LapUnit) -> Option<Vec<u64>> {
    let launched = |work: &Work| Some((unit.at(work.start)?, work.launch?));
    let work = devices.work();
    let behind: HashSet<(usize, SpanId)> = work.filter_map(launched).collect();
    (!behind.is_empty()).then(|| unit.count(behind.into_iter().map(|(at, _)| at)))
}
