//! What several analyses of a trace share: devices, laps, syncs, and causes of idle time.

use std::thread;

use laptime_trace::Trace;
use laptime_trace::run::{CaseResult, Peaks};

use crate::check::check;
use crate::devices::{Devices, devices};
use crate::diagnose::{Diagnosis, FindingLimits, diagnose_of};
use crate::gap_cause::{Gap, Judged, judged_gaps};
use crate::gaps::{Gaps, gaps_of};
use crate::idle_pieces::{IdlePieces, Splitter};
use crate::lap_unit::{LapUnit, NoLaps, unit_if_any};
use crate::one_off::OneOffs;
use crate::overview::{Overview, overview_of};
use crate::syncs::{Syncs, syncs_of};
use crate::waits::{Found, waits};

/// Two analyses of one trace, on two threads if it is large.
pub(crate) fn at_once<A: Send, B>(trace: &Trace, one: impl FnOnce() -> A + Send, other: impl FnOnce() -> B) -> (A, B) {
    // With fewer spans the thread costs more than it saves.
    const LARGE: usize = 4_000;
    if trace.span_count() < LARGE {
        return (one(), other());
    }
    thread::scope(|scope| {
        let one = scope.spawn(one);
        let other = other();
        (one.join().expect("the analysis does not panic"), other)
    })
}

/// What most analyses of a trace begin with: computed once, for any number of answers.
pub struct Prepared<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) devices: Devices,
    pub(crate) waits: Vec<Found>,
    pub(crate) overview: Overview,
}

impl<'a> Prepared<'a> {
    /// Prepares a trace.
    pub fn of(trace: &'a Trace) -> Self {
        let devices = devices(trace);
        let (findings, waits) = at_once(trace, || check(trace, &devices), || waits(trace, &devices));
        let overview = overview_of(trace, &waits, findings);
        Self { trace, devices, waits, overview }
    }

    /// Answers `diagnose`, `gaps`, `syncs` and where each gap is, all at once. `most` is the number of gaps to list.
    pub fn waiting(&self, results: &[CaseResult], peaks: Option<&Peaks>, most: usize) -> Waiting {
        let devices = &self.devices.devices;
        // Only a requested lap unit can be missing.
        let timeline = Timeline::of(self, None).expect("no lap was asked for");
        let gaps = || (!devices.is_empty()).then(|| gaps_of(&timeline, most));
        let diagnosis = || diagnose_of(Some(&timeline), results, peaks, &FindingLimits::default());
        let ((gaps, syncs), diagnosis) = at_once(self.trace, || (gaps(), syncs_of(&timeline)), diagnosis);
        let idle = std::iter::zip(devices, timeline.idle).map(|(device, idle)| (device.name.clone(), idle.gaps));
        Waiting { diagnosis, gaps, syncs, idle: idle.collect() }
    }
}

/// The shared state of `gaps`, `syncs` and `diagnose`.
pub(crate) struct Timeline<'a> {
    pub(crate) trace: &'a Trace,
    pub(crate) devices: &'a Devices,
    pub(crate) unit: Option<LapUnit>,
    pub(crate) waits: &'a [Found],
    /// The gaps of each device, with the cost of syncs.
    pub(crate) idle: Vec<Judged<'a>>,
    /// The same idle time by finding.
    pub(crate) pieces: Vec<IdlePieces>,
    pub(crate) overview: &'a Overview,
}

impl<'a> Timeline<'a> {
    /// Finds the causes of idle time; `lap` names the unit of laps.
    ///
    /// # Errors
    ///
    /// If the named lap is not in the trace.
    pub(crate) fn of(prepared: &'a Prepared<'a>, lap: Option<&str>) -> Result<Self, NoLaps> {
        let Prepared { trace, devices, waits, overview } = prepared;
        let unit = unit_if_any(trace, devices, lap)?;
        let idle: Vec<Judged<'a>> =
            devices.devices.iter().map(|device| judged_gaps(trace, devices, device, waits)).collect();
        let one_offs = OneOffs::of(trace, &devices.activities, unit.as_ref());
        let splitter = Splitter::of(trace, devices, waits, &one_offs);
        let pieces = idle.iter().map(|idle| splitter.split(idle, unit.as_ref())).collect();
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
