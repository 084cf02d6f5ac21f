//! When devices were idle, and why.

use hashbrown::HashMap;

use laptime_stats::Sorted;
use laptime_trace::{NameId, Nanos, Trace};

use crate::devices::{DeviceWork, Work, WorkKind};
use crate::fleet::{Figure, Unit};
use crate::gap_cause::{Cause, Doing, Gap, Judge, Judged, is_pageable, whole_gaps};
use crate::gap_verdict::{Basis, Verdict, verdict};
use crate::gap_whole::{drained, idlest, longest};
use crate::lap_unit::{LapSource, NoLaps, family};
use crate::launch_figures::{LaunchFigures, launch_figures};
use crate::python_lines::{LineShares, idle_lines};
use crate::timeline::{Prepared, Timeline};
use crate::{families::Families, finding::Finding, idle_pieces::IdlePieces, intervals::Stretches, overview::Overview};

/// When devices were idle, and why.
#[derive(Debug, Clone, PartialEq)]
pub struct Gaps {
    /// The devices, in order of their numbers.
    pub devices: Vec<DeviceGaps>,
    /// The unit of laps and its source; none if nothing repeats.
    pub laps: Option<(String, LapSource)>,
    /// The Python lines at which the devices were idle.
    pub idle_lines: Vec<LineShares>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// The time of one device by cause.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceGaps {
    /// Its name.
    pub name: String,
    /// Only stages on its streams were recorded: gaps are between stages.
    pub is_stages: bool,
    /// From the start of its first work, or of the lap that launched it long after, to the end of its last.
    pub window: Nanos,
    /// Work and idle time by cause; the times add up to the window.
    pub parts: Vec<Part>,
    /// What the host did while the device waited for it, most time first; the times add up to that cause.
    pub host: Vec<HostTime>,
    /// Launches.
    pub launches: LaunchFigures,
    /// The lap with the most idle time; none without laps, or if it exceeds the median by less than 1 % of the window.
    pub idlest: Option<LapIdle>,
    /// The longest gaps, longest first, as many as requested.
    pub longest: Vec<LongGap>,
    /// The number of gaps; a gap with several causes counts once.
    pub count: u64,
    /// Findings.
    pub findings: Vec<Finding>,
    /// The verdict.
    pub verdict: Verdict,
}

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PartKind {
    /// Kernels computed.
    Kernels,
    /// Communication kernels ran, and no compute kernel.
    Communication,
    /// Copies or memsets ran, and no kernel.
    Copies,
    /// Nothing ran.
    Gap(Cause),
}

impl PartKind {
    /// The part for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Communication => "communication",
            Self::Copies => "copies",
            Self::Gap(cause) => cause.key(),
        }
    }

    /// The part in words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Kernels => "kernels",
            Self::Communication => "exposed communication",
            Self::Copies => "exposed copies",
            Self::Gap(cause) => cause.words(),
        }
    }
}

/// A part of a window: all its intervals.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    /// What it is.
    pub kind: PartKind,
    /// Its time.
    pub time: Nanos,
    /// Its share of the window.
    pub share: f64,
    /// How many intervals.
    pub count: u64,
    /// The median interval, in nanoseconds.
    pub median: f64,
    /// The longest interval.
    pub longest: Nanos,
}

/// What the host did while the device waited for it.
#[derive(Debug, Clone, PartialEq)]
pub struct HostTime {
    /// The name of the innermost span; none if no span was open.
    pub name: Option<String>,
    /// The work was launched and on its way.
    pub is_launched: bool,
    /// The total time.
    pub time: Nanos,
    /// The share of the time in which the device waited for the host.
    pub share: f64,
    /// In how many gaps.
    pub count: u64,
}

/// The lap with the most idle time.
#[derive(Debug, Clone, PartialEq)]
pub struct LapIdle {
    /// Its name.
    pub label: String,
    /// Its idle time.
    pub idle: Nanos,
    /// The median idle time of all laps, in nanoseconds.
    pub median: f64,
}

/// One gap.
#[derive(Debug, Clone, PartialEq)]
pub struct LongGap {
    /// When it began, from the start of the trace.
    pub start: Nanos,
    /// How long it was.
    pub length: Nanos,
    /// The cause with the most time.
    pub cause: Cause,
    /// The work before it.
    pub before: Option<String>,
    /// The work after it.
    pub after: String,
    /// What the launching thread did for most of the time; none if the launch is unknown or no span was open.
    pub host: Option<String>,
    /// The lap that contains most of it.
    pub lap: Option<String>,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq)]
pub enum NoGaps {
    /// The trace has no device work.
    NoDevices,
    /// There is no such lap.
    NoLaps(NoLaps),
}

/// Splits the time of each device into work and idle time by cause. `lap` is the unit of laps, and `most` the number of
/// gaps to list.
pub fn gaps(trace: &Trace, lap: Option<&str>, most: usize) -> Result<Gaps, NoGaps> {
    let prepared = Prepared::of(trace);
    if prepared.devices.devices.is_empty() {
        return Err(NoGaps::NoDevices);
    }
    Ok(gaps_of(&Timeline::of(&prepared, lap).map_err(NoGaps::NoLaps)?, most))
}

/// The same for a prepared trace.
pub(crate) fn gaps_of(timeline: &Timeline<'_>, most: usize) -> Gaps {
    let devices = std::iter::zip(&timeline.devices.devices, std::iter::zip(&timeline.idle, &timeline.pieces));
    Gaps {
        devices: devices.map(|(device, (idle, pieces))| device_answer(timeline, device, idle, pieces, most)).collect(),
        laps: timeline.unit.as_ref().map(|unit| (unit.name.clone(), unit.source)),
        idle_lines: idle_lines(timeline),
        overview: timeline.overview.clone(),
    }
}

fn device_answer(
    timeline: &Timeline<'_>,
    device: &DeviceWork,
    idle: &Judged<'_>,
    pieces: &IdlePieces,
    most: usize,
) -> DeviceGaps {
    let (trace, unit) = (timeline.trace, timeline.unit.as_ref());
    let Judged { gaps, judge, .. } = idle;
    let window = device.recorded_length();
    let (parts, verdict) = parts_and_verdict(timeline, device, idle, pieces);
    DeviceGaps {
        name: device.name.clone(),
        is_stages: device.is_stages,
        window: Nanos(window),
        verdict,
        parts,
        host: host_times(trace, judge, gaps),
        launches: launch_figures(trace, device, unit),
        idlest: unit.and_then(|unit| idlest(gaps, unit, window)),
        longest: longest(trace, judge, gaps, unit, most),
        count: whole_gaps(gaps).count() as u64,
        findings: drained(timeline, idle, window).into_iter().collect(),
    }
}

/// The time of a device by part, and the verdict.
pub(crate) fn parts_and_verdict(
    timeline: &Timeline<'_>,
    device: &DeviceWork,
    idle: &Judged<'_>,
    pieces: &IdlePieces,
) -> (Vec<Part>, Verdict) {
    let parts = parts(device, &idle.gaps, device.recorded_length());
    let basis = basis(timeline.trace, device, &idle.judge, &idle.gaps, &parts);
    let verdict = verdict(&parts, pieces.host.clone(), basis);
    (parts, verdict)
}

fn parts(device: &DeviceWork, gaps: &[Gap], window: u64) -> Vec<Part> {
    let kernels = device.busy_with(WorkKind::Compute);
    let communication = device.busy_with(WorkKind::Communication).minus(&kernels);
    let copies = alone(device, |_| true);
    let lengths = |stretches: &Stretches| stretches.parts().iter().map(|(from, to)| to - from).collect();
    let mut parts = vec![
        Part::of(PartKind::Kernels, lengths(&kernels), window),
        Part::of(PartKind::Communication, lengths(&communication), window),
        Part::of(PartKind::Copies, lengths(&copies), window),
    ];
    for cause in Cause::ALL {
        let lengths = gaps.iter().filter(|gap| gap.cause == cause).map(Gap::length).collect();
        parts.push(Part::of(PartKind::Gap(cause), lengths, window));
    }
    parts.retain(|part| part.count > 0 || part.kind == PartKind::Kernels);
    parts
}

/// Copies that match a filter, while no kernel ran.
fn alone(device: &DeviceWork, is_wanted: impl Fn(&Work) -> bool) -> Stretches {
    let copies = device.stretches(|work| work.kind == WorkKind::Copy && is_wanted(work));
    copies.minus(&device.stretches(|work| work.kind != WorkKind::Copy))
}

/// The work that the verdict is based on.
fn basis(trace: &Trace, device: &DeviceWork, judge: &Judge<'_>, gaps: &[Gap], parts: &[Part]) -> Basis {
    let wall = trace.bounds().map_or(0, |(first, last)| last.saturating_sub(first).0);
    let window = device.window().map_or(0, |(first, last)| last - first);
    let held = gaps.iter().filter(|gap| gap.cause == Cause::Copy && judge.is_pageable(gap)).map(Gap::length);
    let is_copies = |part: &&Part| matches!(part.kind, PartKind::Copies | PartKind::Gap(Cause::Copy));
    Basis {
        work: device.work.len() as u64,
        extent: if wall == 0 { 1.0 } else { window as f64 / wall as f64 },
        is_since_lap: device.idle_since.is_some(),
        pageable: alone(device, |work| is_pageable(trace, work)).length() + held.sum::<u64>(),
        copies: parts.iter().filter(is_copies).map(|part| part.time.0).sum(),
        within: alone(device, |work| is_within_device(trace, work)).length(),
    }
}

/// Whether a copy stays on the device, or is a memset.
pub(crate) fn is_within_device(trace: &Trace, work: &Work) -> bool {
    let span = trace.span(work.id);
    let stays = |path: laptime_trace::CopyPath| {
        let is_here = |kind| matches!(kind, laptime_trace::MemoryKind::Device | laptime_trace::MemoryKind::Array);
        is_here(path.from) && is_here(path.to)
    };
    span.copy_path().is_some_and(stays) || span.activity() == laptime_trace::Activity::Memset
}

impl Part {
    fn of(kind: PartKind, lengths: Vec<u64>, window: u64) -> Self {
        let time: u64 = lengths.iter().sum();
        let lengths = Sorted::<u64>::from_unsorted(lengths);
        Self {
            kind,
            time: Nanos(time),
            share: time as f64 / window.max(1) as f64,
            count: lengths.len() as u64,
            median: lengths.median().unwrap_or(0.0),
            longest: Nanos(lengths.max().unwrap_or(0)),
        }
    }
}

/// What the host did in the gaps that it causes, by name.
fn host_times(trace: &Trace, judge: &Judge<'_>, gaps: &[Gap]) -> Vec<HostTime> {
    let mut times: HashMap<HostName, (u64, u64)> = HashMap::new();
    let mut families = Families::default();
    for parts in whole_gaps(gaps) {
        let mut of_gap: HashMap<HostName, u64> = HashMap::new();
        for (name, time) in doing_by_name(trace, judge, parts, Cause::Host) {
            *of_gap.entry(name.family(trace, &mut families)).or_default() += time;
        }
        for (name, time) in of_gap {
            let entry = times.entry(name).or_default();
            *entry = (entry.0 + time, entry.1 + 1);
        }
    }
    let all: u64 = times.values().map(|(time, _)| time).sum();
    let mut found: Vec<HostTime> = times
        .into_iter()
        .map(|(name, (time, count))| HostTime {
            name: name.text(trace).map(|name| family(&name).into_owned()),
            is_launched: name == HostName::Launched,
            time: Nanos(time),
            share: time as f64 / all.max(1) as f64,
            count,
        })
        .collect();
    found.sort_by(|a, b| (b.time, &a.name, a.is_launched).cmp(&(a.time, &b.name, b.is_launched)));
    found
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum HostName {
    Named(NameId),
    NothingRecorded,
    Launched,
}

impl HostName {
    fn of(trace: &Trace, doing: Doing) -> Self {
        match doing {
            Doing::Span(span) => Self::Named(trace.span_name(span)),
            Doing::NothingRecorded => Self::NothingRecorded,
            Doing::Launched => Self::Launched,
        }
    }

    /// The same with counters in names ignored.
    fn family(self, trace: &Trace, families: &mut Families) -> Self {
        match self {
            Self::Named(name) => Self::Named(families.of(trace, name)),
            other => other,
        }
    }

    pub(crate) fn text(self, trace: &Trace) -> Option<String> {
        match self {
            Self::Named(name) => Some(trace.name(name).to_owned()),
            _ => None,
        }
    }
}

/// What the launching thread did in the parts of a gap with this cause.
pub(crate) fn doing_by_name(trace: &Trace, judge: &Judge<'_>, parts: &[Gap], cause: Cause) -> HashMap<HostName, u64> {
    let mut times = HashMap::new();
    for (doing, from, to) in parts.iter().filter(|part| part.cause == cause).flat_map(|part| judge.doing(part)) {
        *times.entry(HostName::of(trace, doing)).or_default() += to - from;
    }
    times
}

impl Gaps {
    /// The names of [`DeviceGaps::values`].
    pub const FIGURES: [Figure; 11] = [
        Figure { key: "kernels_share", label: "kernels", unit: Unit::Share },
        Figure { key: "communication_share", label: "communication", unit: Unit::Share },
        Figure { key: "host_share", label: "host late", unit: Unit::Share },
        Figure { key: "sync_share", label: "sync", unit: Unit::Share },
        Figure { key: "copies_share", label: "copies", unit: Unit::Share },
        Figure { key: "unexplained_share", label: "unexplained", unit: Unit::Share },
        Figure { key: "stream_share", label: "stream", unit: Unit::Share },
        Figure { key: "turnaround_share", label: "turnaround", unit: Unit::Share },
        Figure { key: "launches", label: "launches", unit: Unit::Count },
        Figure { key: "latency_median_ms", label: "latency", unit: Unit::Time },
        Figure { key: "window_ms", label: "window", unit: Unit::Time },
    ];
}

impl DeviceGaps {
    /// The idle time.
    pub fn idle(&self) -> Nanos {
        let gaps = self.parts.iter().filter(|part| matches!(part.kind, PartKind::Gap(_)));
        Nanos(gaps.map(|part| part.time.0).sum())
    }

    /// The figures of the device, for comparing devices.
    pub fn values(&self) -> Vec<Option<f64>> {
        let share = |kinds: &[PartKind]| {
            // An empty sum would be a negative zero.
            let parts = self.parts.iter().filter(|part| kinds.contains(&part.kind));
            Some(parts.fold(0.0, |sum, part| sum + part.share))
        };
        let gap = PartKind::Gap;
        vec![
            share(&[PartKind::Kernels]),
            share(&[PartKind::Communication]),
            share(&[gap(Cause::Host)]),
            share(&[gap(Cause::Sync)]),
            share(&[PartKind::Copies, gap(Cause::Copy)]),
            share(&[gap(Cause::StreamWait), gap(Cause::HeldBack), gap(Cause::NoLaunch)]),
            share(&[gap(Cause::Stream)]),
            share(&[gap(Cause::Turnaround)]),
            Some(self.launches.launches as f64),
            self.launches.latency.map(|latency| latency.median),
            Some(self.window.0 as f64),
        ]
    }
}

#[cfg(test)]
mod tests;
