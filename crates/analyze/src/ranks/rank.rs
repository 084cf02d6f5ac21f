//! The summary of one rank: its collectives, its steps, and what it did before each collective.
//!
//! A job can have a thousand ranks, so a trace is dropped once it is summarised.

use std::collections::HashSet;

use laptime_stats::spread::median_of;
use laptime_trace::Trace;

use super::collective::{CollectiveKind, Communicator, Describer, communication, kind_of, step_of};
use crate::devices::{DeviceWork, Work, WorkKind};
use crate::idle_pieces::{IdleKind, IdlePieces};
use crate::timeline::{Prepared, Timeline};
use crate::{intervals::Stretches, lap_unit::LapUnit};

laptime_trace::words! {
    /// What a rank did with its time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum RankPart, ALL: key, words {
        /// Kernels computed.
        Compute = ("compute", "compute"),
        /// Communication ran, and no compute.
        Communication = ("communication", "communication"),
        /// Copies ran, or the GPU waited for one.
        Copy = ("copy", "copy"),
        /// The GPU was idle while the host loaded data.
        Loading = ("data_loading", "data loading"),
        /// The GPU was idle because the host launched too late.
        Host = ("host", "host"),
        /// The GPU was idle after a host sync.
        Sync = ("sync", "sync"),
        /// The GPU was idle for another reason.
        Other = ("other", "other"),
    }
}

impl RankPart {
    fn of_idle(kind: IdleKind) -> Self {
        match kind {
            IdleKind::Loading => Self::Loading,
            IdleKind::Sync => Self::Sync,
            IdleKind::PageableCopy | IdleKind::Copy => Self::Copy,
            IdleKind::Stream | IdleKind::Unexplained => Self::Other,
            IdleKind::Starting
            | IdleKind::Allocation
            | IdleKind::Profiler
            | IdleKind::Interpreter
            | IdleKind::Launch
            | IdleKind::Tiny
            | IdleKind::Host => Self::Host,
        }
    }
}

/// Time in nanoseconds by part, in the order of [`RankPart::ALL`].
pub type RankParts = [f32; 7];

/// One step of a rank.
#[derive(Debug, Clone, PartialEq)]
pub struct RankStep {
    /// Its number, as the program or the profiler counts.
    pub number: u64,
    /// When its first work began.
    pub start: u64,
    /// When the first work of the next step began.
    pub end: u64,
    /// Its time by part.
    pub parts: RankParts,
}

/// One collective of a rank.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Call {
    /// Its communicator, by index.
    pub(crate) communicator: u32,
    pub(crate) kind: CollectiveKind,
    pub(crate) sequence: Option<u64>,
    /// The index of its step.
    pub(crate) step: Option<u32>,
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) bytes: Option<u64>,
    pub(crate) peer: Option<u32>,
    /// The part of it in which the device computed, in nanoseconds.
    pub(crate) hidden: f32,
    /// The time since the previous collective of this rank ended; none for the first one.
    pub(crate) own: Option<u64>,
    /// That time by part.
    pub(crate) before: RankParts,
    /// The compute kernels that began in that time.
    pub(crate) kernels: u32,
}

/// The summary of the trace of one rank.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct RankTrace {
    /// The file, and the device if the file has several.
    pub label: String,
    /// The rank; none if neither the trace nor its name says.
    pub rank: Option<u32>,
    /// The number of ranks of the job.
    pub world: Option<u32>,
    /// The name of the job, if the trace has one.
    pub job: Option<String>,
    /// The host, if the trace has it. Ranks of one host share a clock.
    pub host: Option<String>,
    /// The name of the GPU.
    pub gpu: Option<String>,
    /// The zero of its clock in nanoseconds since 1970.
    pub origin: Option<i64>,
    /// Its steps.
    pub steps: Vec<RankStep>,
    /// The time in which communication ran.
    pub communication: u64,
    /// Communication kernels.
    pub kernels: u64,
    /// From its first work to the end of its last.
    pub window: u64,
    /// The time of that by part.
    pub parts: RankParts,
    /// Whether the file is cut off.
    pub is_cut_off: bool,
    pub(crate) communicators: Vec<Communicator>,
    pub(crate) calls: Vec<Call>,
    /// Which of the traces share one file, and so one clock.
    pub(crate) file: usize,
}

impl RankTrace {
    /// The length of its median step, in nanoseconds.
    pub(crate) fn median_step(&self) -> Option<f64> {
        median_of(self.steps.iter().map(|step| (step.end - step.start) as f64))
    }

    /// Summarises a trace: one rank, or one per device that communicates. `label` is the name of the file,
    /// and `file` its number.
    pub fn of(trace: &Trace, label: &str, file: usize) -> Vec<Self> {
        let prepared = Prepared::of(trace);
        let devices = &prepared.devices;
        // Only a requested lap unit can be missing.
        let Ok(timeline) = Timeline::of(&prepared, None) else { return Vec::new() };
        let describer = Describer::of(trace);
        let wanted = |at: &usize| communication(&devices.devices[*at]).next().is_some();
        let mut at: Vec<usize> = (0..devices.devices.len()).filter(wanted).collect();
        if at.is_empty() {
            at.extend((!devices.devices.is_empty()).then_some(0));
        }
        let is_single = at.len() == 1;
        at.iter()
            .map(|&at| {
                let device = &devices.devices[at];
                let spent = Spent::of(device, &timeline.pieces[at]);
                let unit = timeline.unit.as_ref().filter(|unit| is_unit_of(trace, device, unit));
                let steps = steps(trace, device, unit, &spent);
                let mut rank = about(trace, label, file);
                if !is_single {
                    rank.label = format!("{label} {}", device.name);
                    rank.rank = device.number.and_then(|number| u32::try_from(number).ok());
                }
                if let Some((first, last)) = device.window() {
                    (rank.window, rank.parts) = (last - first, spent.within(first, last));
                }
                rank.communication = spent.communicating.length();
                rank.add_calls(trace, device, unit, &describer, &spent);
                rank.steps = steps;
                rank
            })
            .collect()
    }

    fn add_calls(
        &mut self,
        trace: &Trace,
        device: &DeviceWork,
        unit: Option<&LapUnit>,
        describer: &Describer<'_>,
        spent: &Spent,
    ) {
        let mut ends: Vec<u64> = communication(device).map(|work| work.end).collect();
        ends.sort_unstable();
        let is_named =
            |work: &Work| describer.described(work).is_some_and(|described| described.communicator.is_some());
        let has_names = communication(device).any(is_named);
        for work in communication(device) {
            self.kernels += 1;
            let described = match has_names {
                true => describer.described(work),
                false => Some(describer.assumed(work, self.world)),
            };
            let Some(described) = described else { continue };
            let kind = kind_of(&described, trace.span(work.id).name);
            let Some(communicator) = described.communicator else { continue };
            let known = self.communicators.iter().position(|known| *known == communicator);
            let communicator = known.unwrap_or_else(|| {
                self.communicators.push(communicator);
                self.communicators.len() - 1
            });
            let ended = ends.partition_point(|end| *end <= work.start);
            let previous = ended.checked_sub(1).map(|at| ends[at]);
            self.calls.push(Call {
                communicator: communicator as u32,
                kind,
                sequence: described.sequence,
                step: step_of(trace, unit, work).map(|step| step as u32),
                start: work.start,
                end: work.end,
                bytes: described.bytes,
                peer: described.peer,
                hidden: spent.computing.length_within(work.start, work.end) as f32,
                own: previous.map(|previous| work.start - previous),
                before: previous.map_or_else(RankParts::default, |previous| spent.within(previous, work.start)),
                kernels: previous.map_or(0, |previous| spent.kernels_within(previous, work.start)),
            });
        }
    }
}

/// What the metadata says about a rank.
fn about(trace: &Trace, label: &str, file: usize) -> RankTrace {
    let metadata = &trace.metadata;
    let text = |keys: &[&str]| keys.iter().find_map(|key| metadata.text(key)).filter(|text| !text.is_empty());
    let small = |number: Option<u64>| number.and_then(|number| u32::try_from(number).ok());
    RankTrace {
        label: label.to_owned(),
        rank: small(metadata.rank()).or_else(|| rank_in_name(label)),
        world: small(metadata.world_size()),
        job: text(&["job_id", "SLURM_JOB_ID", "mast_job_name", "tw_job"]),
        host: text(&["host_name", "hostname", "host"]),
        gpu: metadata.devices().into_iter().map(|device| device.name).find(|name| !name.is_empty()),
        origin: trace.origin.unix_nanos,
        is_cut_off: trace.is_cut_off,
        file,
        ..RankTrace::default()
    }
}

/// The rank in the name of a file: `rank-12.json`, `trace_rank3.json.gz`, `rank_0/trace.json`.
pub(crate) fn rank_in_name(label: &str) -> Option<u32> {
    let name = label.to_ascii_lowercase();
    let after = |at: usize| {
        let rest = name[at + "rank".len()..].trim_start_matches(['-', '_', '=', '.', ' ']);
        let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
        rest[..end].parse().ok()
    };
    name.match_indices("rank").filter_map(|(at, _)| after(at)).last()
}

/// When a device did what.
struct Spent {
    computing: Stretches,
    communicating: Stretches,
    /// Disjoint, in the order of [`RankPart::ALL`].
    parts: [Stretches; 7],
    /// When compute kernels began, in order.
    kernels: Vec<u64>,
}

impl Spent {
    fn of(device: &DeviceWork, pieces: &IdlePieces) -> Self {
        let computing = device.busy_with(WorkKind::Compute);
        let communicating = device.busy_with(WorkKind::Communication);
        let mut idle: [Vec<(u64, u64)>; 7] = Default::default();
        for piece in &pieces.pieces {
            idle[RankPart::of_idle(piece.kind) as usize].push((piece.from, piece.to));
        }
        let copies = device.busy_with(WorkKind::Copy).minus(&computing).minus(&communicating);
        idle[RankPart::Copy as usize].extend_from_slice(copies.parts());
        let mut parts = idle.map(Stretches::union);
        parts[RankPart::Communication as usize] = communicating.minus(&computing);
        parts[RankPart::Compute as usize] = computing.clone();
        let is_compute = |work: &&crate::devices::Work| work.kind == WorkKind::Compute;
        let kernels = device.work.iter().filter(is_compute).map(|work| work.start).collect();
        Self { computing, communicating, parts, kernels }
    }

    fn within(&self, from: u64, to: u64) -> RankParts {
        std::array::from_fn(|at| self.parts[at].length_within(from, to) as f32)
    }

    fn kernels_within(&self, from: u64, to: u64) -> u32 {
        let before = |moment: u64| self.kernels.partition_point(|start| *start < moment);
        (before(to) - before(from)) as u32
    }
}

/// Whether most laps have work of a device: laps may be those of another process.
fn is_unit_of(trace: &Trace, device: &DeviceWork, unit: &LapUnit) -> bool {
    let laps: HashSet<usize> = device.work.iter().filter_map(|work| step_of(trace, Some(unit), work)).collect();
    2 * laps.len() > unit.laps.len()
}

/// The steps of a device: from the first work of a lap to the first work of the next.
fn steps(trace: &Trace, device: &DeviceWork, unit: Option<&LapUnit>, spent: &Spent) -> Vec<RankStep> {
    let Some(unit) = unit else { return Vec::new() };
    let mut firsts: Vec<Option<u64>> = vec![None; unit.laps.len()];
    for work in &device.work {
        if let Some(step) = step_of(trace, Some(unit), work) {
            firsts[step].get_or_insert(work.start);
        }
    }
    let last = device.window().map_or(0, |(_, last)| last);
    let numbers: Vec<Option<u64>> = unit.laps.iter().map(|lap| number_of(&lap.label)).collect();
    let is_counted = numbers.windows(2).all(|pair| matches!(pair, [Some(one), Some(next)] if one < next));
    let mut steps = Vec::with_capacity(firsts.len());
    for (at, number) in numbers.into_iter().enumerate() {
        let next = firsts[at + 1..].iter().find_map(|first| *first).unwrap_or(last);
        let start = firsts[at].unwrap_or(next);
        let end = next.max(start);
        let number = number.filter(|_| is_counted).unwrap_or(at as u64);
        steps.push(RankStep { number, start, end, parts: spent.within(start, end) });
    }
    steps
}

/// The number at the end of a label: `ProfilerStep#12`.
fn number_of(label: &str) -> Option<u64> {
    let digits = label.len() - label.trim_end_matches(|letter: char| letter.is_ascii_digit()).len();
    label[label.len() - digits..].parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rank_is_read_from_the_file_name() {
        let named = ["rank-12.json", "trace_rank3.json.gz", "rank_0/trace.json", "frank.json", "Rank=7"];
        assert_eq!(named.map(rank_in_name), [Some(12), Some(3), Some(0), None, Some(7)]);
    }

    #[test]
    fn the_step_number_is_read_from_the_end_of_its_name() {
        assert_eq!(["ProfilerStep#12", "step", "layer 3"].map(number_of), [Some(12), None, Some(3)]);
    }
}
