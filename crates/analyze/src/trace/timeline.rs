//! What several analyses of a trace share: devices, laps, syncs, and causes of idle time.

use std::thread;

use laptime_trace::{
    Trace,
    run::{CaseResult, Peaks},
};

use crate::{
    devices::{Devices, devices},
    diagnose::{Diagnosis, diagnose_of},
    gap_cause::{Gap, Judged, judged_gaps},
    gaps::{Gaps, gaps_of},
    idle_pieces::{IdlePieces, Splitter},
    lap_unit::{LapUnit, NoLaps, unit_if_any},
    one_off::OneOffs,
    overview::{Overview, overview_of},
    syncs::{Syncs, syncs_of},
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

/// The bottlenecks of a run, and what its devices and its host waited for, from one reading of its trace.
#[derive(Debug, Clone)]
pub struct Waiting {
    /// The bottlenecks.
    pub diagnosis: Diagnosis,
    /// The time of each device by cause; none without device work.
    pub gaps: Option<Gaps>,
    /// The syncs.
    pub syncs: Syncs,
    /// The idle time of each device in order, by its name; each part has one cause.
    pub idle: Vec<(String, Vec<Gap>)>,
}

/// Answers `diagnose`, `gaps`, `syncs` and where each gap is, all at once. `most` is the number of gaps to list.
pub fn waiting(trace: &Trace, results: &[CaseResult], peaks: Option<&Peaks>, most: usize) -> Waiting {
    let devices = devices(trace);
    // Only a lap that was asked for can be missing.
    let timeline = Timeline::of(trace, &devices, None).expect("no lap was asked for");
    let (diagnosis, gaps, syncs) = thread::scope(|scope| {
        let others = scope.spawn(|| {
            let gaps = (!devices.devices.is_empty()).then(|| gaps_of(&timeline, most));
            (gaps, syncs_of(&timeline))
        });
        let diagnosis = diagnose_of(&timeline, results, peaks);
        let (gaps, syncs) = others.join().expect("the analysis does not panic");
        (diagnosis, gaps, syncs)
    });
    Waiting {
        diagnosis,
        gaps,
        syncs,
        idle: std::iter::zip(&devices.devices, &timeline.idle)
            .map(|(device, idle)| (device.name.clone(), idle.gaps.clone()))
            .collect(),
    }
}
