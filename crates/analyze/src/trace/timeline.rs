//! What several analyses of a trace share: devices, laps, syncs, and causes of idle time.

use laptime_trace::Trace;

use crate::{
    devices::Devices,
    gap_cause::{Judged, judged_gaps},
    idle_pieces::{IdlePieces, Splitter},
    lap_unit::{LapUnit, NoLaps, unit_if_any},
    one_off::OneOffs,
    overview::{Overview, overview_of},
    waits::{Found, waits},
};

/// The shared state of `gaps`, `syncs`, `laps` and `diagnose`.
pub(crate) struct Timeline<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) devices: &'a Devices,
    pub(crate) unit: Option<LapUnit>,
    pub(crate) waits: Vec<Found>,
    /// The gaps of each device, with the cost of syncs.
    pub(crate) idle: Vec<Judged<'a>>,
    /// The same idle time by finding.
    pub(crate) pieces: Vec<IdlePieces>,
    pub(crate) overview: Overview,
}

impl<'a> Timeline<'a> {
    /// Prepares a trace; `lap` names the unit of laps.
    ///
    /// # Errors
    ///
    /// If the named lap is not in the trace.
    pub(crate) fn of(trace: &'a Trace, devices: &'a Devices, lap: Option<&str>) -> Result<Self, NoLaps> {
        let unit = unit_if_any(trace, devices, lap)?;
        let waits = waits(trace, devices);
        let idle: Vec<Judged<'a>> =
            devices.devices.iter().map(|device| judged_gaps(trace, devices, device, &waits)).collect();
        let one_offs = OneOffs::of(trace, &devices.activities, unit.as_ref());
        let splitter = Splitter::of(trace, devices, &waits, &one_offs);
        let pieces = idle.iter().map(|idle| splitter.split(idle, unit.as_ref())).collect();
        let overview = overview_of(trace, devices, &waits);
        Ok(Self { trace, devices, unit, waits, idle, pieces, overview })
    }
}
