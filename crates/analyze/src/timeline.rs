//! What several questions about a trace share, computed once: its devices, laps and waits, and why devices were idle.

use laptime_trace::Trace;

use crate::{
    devices::Devices,
    gap_cause::{Judged, judged_gaps},
    lap_unit::{LapUnit, NoLaps, lap_unit},
    one_off::OneOffs,
    overview::{Overview, overview_of},
    waits::{Found, waits},
};

/// One account of a trace: `gaps`, `syncs` and `diagnose` read the same.
pub(crate) struct Timeline<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) devices: &'a Devices,
    pub(crate) unit: Option<LapUnit>,
    pub(crate) waits: Vec<Found>,
    /// The gaps of each device, with what waits are charged with.
    pub(crate) idle: Vec<Judged<'a>>,
    pub(crate) one_offs: OneOffs,
    pub(crate) overview: Overview,
}

impl<'a> Timeline<'a> {
    /// Prepares a trace; `lap` names the unit that laps are counted by.
    ///
    /// # Errors
    ///
    /// If a lap is named that the trace does not have.
    pub(crate) fn of(trace: &'a Trace, devices: &'a Devices, lap: Option<&str>) -> Result<Self, NoLaps> {
        let unit = match lap_unit(trace, devices, lap) {
            Ok(unit) => Some(unit),
            Err(NoLaps::NothingRepeats) => None,
            Err(error) => return Err(error),
        };
        let waits = waits(trace, devices);
        let idle = devices.devices.iter().map(|device| judged_gaps(trace, devices, device, &waits)).collect();
        let one_offs = OneOffs::of(trace, &devices.activities, unit.as_ref());
        let overview = overview_of(trace, devices, &waits);
        Ok(Self { trace, devices, unit, waits, idle, one_offs, overview })
    }
}
