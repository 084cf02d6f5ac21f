//! How much of copies and communication is hidden behind compute on the same device.

mod findings;
mod path;

use std::collections::BTreeMap;

use laptime_trace::{Nanos, Trace};

pub use self::path::{Family, Path};
use crate::devices::{DeviceWork, Devices, Work, WorkKind};
use crate::fleet::{Figure, Unit};
use crate::{finding::Finding, intervals::Stretches, overview::Overview, timeline::Prepared};

/// The times of copies and communication, and how much of them is hidden.
#[derive(Debug, Clone, PartialEq)]
pub struct Overlap {
    /// The devices, in order of their numbers.
    pub devices: Vec<DeviceOverlap>,
    /// Findings.
    pub findings: Vec<Finding>,
    /// The trace as a whole.
    pub overview: Overview,
}

/// Copies and communication of one device.
#[derive(Debug, Clone, PartialEq)]
pub struct DeviceOverlap {
    /// Its name.
    pub name: String,
    /// From its first work to the end of its last, without the time in which recording was paused.
    pub window: Nanos,
    /// When it computed.
    pub compute: Nanos,
    /// Its work is stages on its streams, idle time included.
    pub is_stages: bool,
    /// Copies by path.
    pub copies: Vec<(Path, Traffic)>,
    /// All copies together; none if there are none.
    pub all_copies: Option<Traffic>,
    /// Communication by family.
    pub communication: Vec<(Family, Traffic)>,
    /// All communication together; none if there is none.
    pub all_communication: Option<Traffic>,
}

/// The copies of a path, or the communication of a family.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Traffic {
    /// How many.
    pub count: u64,
    /// How many bytes; none if unknown.
    pub bytes: Option<u64>,
    /// The time in which any of them was under way.
    pub time: Nanos,
    /// The part of that time in which the device computed.
    pub hidden: Nanos,
    /// The part in which the device did nothing else: no compute, and no communication next to copies or copies next to
    /// communication.
    pub alone: Nanos,
    /// The time of those with known bytes.
    pub time_of_bytes: Nanos,
}

impl Traffic {
    /// The part in which the device did not compute.
    pub fn exposed(&self) -> Nanos {
        self.time.saturating_sub(self.hidden)
    }

    /// The hidden part as a share.
    pub fn hidden_share(&self) -> Option<f64> {
        (self.time > Nanos(0)).then(|| self.hidden.0 as f64 / self.time.0 as f64)
    }

    /// GB/s while any was under way.
    pub fn gb_s(&self) -> Option<f64> {
        let bytes = self.bytes.filter(|_| self.time_of_bytes > Nanos(0))?;
        Some(bytes as f64 / self.time_of_bytes.0 as f64)
    }
}

/// Compares copies and communication of each device with its compute.
pub fn overlap(trace: &Trace) -> Overlap {
    let Prepared { devices, overview, .. } = Prepared::of(trace);
    overlap_of(trace, &devices, overview)
}

/// The same for a prepared trace.
pub(crate) fn overlap_of(trace: &Trace, found: &Devices, overview: Overview) -> Overlap {
    let mut overlaps = Vec::new();
    let mut findings = Vec::new();
    for device in &found.devices {
        let moves = Moves::of(trace, device);
        let overlap = moves.overlap();
        findings.extend(findings::findings(&moves, &overlap, found.devices.len() > 1));
        overlaps.push(overlap);
    }
    Overlap { devices: overlaps, findings, overview }
}

/// The traffic of a device, and its compute.
struct Moves<'a> {
    device: &'a DeviceWork,
    compute: Stretches,
    copying: Stretches,
    communicating: Stretches,
    copies: Vec<(Path, Move<'a>)>,
    communication: Vec<(Family, Move<'a>)>,
}

/// A copy or a collective, with its bytes.
#[derive(Clone, Copy)]
struct Move<'a> {
    work: &'a Work,
    bytes: Option<u64>,
}

impl<'a> Moves<'a> {
    fn of(trace: &Trace, device: &'a DeviceWork) -> Self {
        let mut moves = Self {
            device,
            compute: device.busy_with(WorkKind::Compute),
            copying: device.busy_with(WorkKind::Copy),
            communicating: device.busy_with(WorkKind::Communication),
            copies: Vec::new(),
            communication: Vec::new(),
        };
        for work in &device.work {
            match work.kind {
                WorkKind::Compute => {}
                WorkKind::Copy => {
                    let (path, bytes) = Path::of(&trace.span(work.id));
                    moves.copies.push((path, Move { work, bytes }));
                }
                WorkKind::Communication => {
                    let family = Family::of(trace.span(work.id).name);
                    moves.communication.push((family, Move { work, bytes: None }));
                }
            }
        }
        moves
    }

    fn overlap(&self) -> DeviceOverlap {
        DeviceOverlap {
            name: self.device.name.clone(),
            window: Nanos(self.device.recorded_length()),
            compute: Nanos(self.compute.length()),
            is_stages: self.device.is_stages,
            copies: by_kind(&self.copies, |moves| self.copy_traffic(moves)),
            all_copies: whole(&self.copies, |moves| self.copy_traffic(moves)),
            communication: by_kind(&self.communication, |moves| self.communication_traffic(moves)),
            all_communication: whole(&self.communication, |moves| self.communication_traffic(moves)),
        }
    }

    fn copy_traffic(&self, moves: &[Move<'_>]) -> Traffic {
        self.traffic(moves, &self.communicating)
    }

    fn communication_traffic(&self, moves: &[Move<'_>]) -> Traffic {
        self.traffic(moves, &self.copying)
    }

    fn traffic(&self, moves: &[Move<'_>], beside: &Stretches) -> Traffic {
        let stretches = |moves: &mut dyn Iterator<Item = &Move<'_>>| {
            Stretches::union(moves.map(|one| (one.work.start, one.work.end)).collect())
        };
        let all = stretches(&mut moves.iter());
        let with_bytes = || moves.iter().filter(|one| one.bytes.is_some());
        let bytes = with_bytes().filter_map(|one| one.bytes).fold(0_u64, u64::saturating_add);
        let exposed = all.minus(&self.compute);
        Traffic {
            count: moves.len() as u64,
            bytes: with_bytes().next().map(|_| bytes),
            time: Nanos(all.length()),
            hidden: Nanos(all.and(&self.compute).length()),
            alone: Nanos(exposed.minus(beside).length()),
            time_of_bytes: Nanos(stretches(&mut with_bytes()).length()),
        }
    }
}

fn by_kind<'a, K: Copy + Ord>(moves: &[(K, Move<'a>)], traffic: impl Fn(&[Move<'a>]) -> Traffic) -> Vec<(K, Traffic)> {
    let mut kinds: BTreeMap<K, Vec<Move<'a>>> = BTreeMap::new();
    for (kind, one) in moves {
        kinds.entry(*kind).or_default().push(*one);
    }
    kinds.into_iter().map(|(kind, moves)| (kind, traffic(&moves))).collect()
}

fn whole<'a, K>(moves: &[(K, Move<'a>)], traffic: impl Fn(&[Move<'a>]) -> Traffic) -> Option<Traffic> {
    let moves: Vec<Move<'a>> = moves.iter().map(|(_, one)| *one).collect();
    (!moves.is_empty()).then(|| traffic(&moves))
}

impl DeviceOverlap {
    /// The values of the figures of [`Overlap::figures`].
    pub fn values(&self) -> Vec<Option<f64>> {
        let time = |traffic: Option<Traffic>| traffic.map(|traffic| traffic.time.0 as f64);
        let hidden = |traffic: Option<Traffic>| traffic.and_then(|traffic| traffic.hidden_share());
        let (communication, copies) = (self.all_communication, self.all_copies);
        vec![
            time(communication),
            hidden(communication),
            time(copies),
            hidden(copies),
            self.gb_s(Path::is_upload),
            self.gb_s(Path::is_download),
        ]
    }

    /// GB/s over several paths: bytes / summed time.
    fn gb_s(&self, wanted: fn(Path) -> bool) -> Option<f64> {
        let paths = || self.copies.iter().filter(|(path, _)| wanted(*path)).map(|(_, traffic)| traffic);
        let bytes: f64 = paths().filter_map(|traffic| traffic.bytes).map(|bytes| bytes as f64).sum();
        let time: f64 = paths().map(|traffic| traffic.time_of_bytes.0 as f64).sum();
        (time > 0.0).then(|| bytes / time)
    }
}

impl Overlap {
    /// The figures for comparing traces.
    pub fn figures() -> [Figure; 6] {
        let figure = |key, label, unit| Figure { key, label, unit };
        [
            figure("communication_ms", "communication", Unit::Time),
            figure("communication_hidden", "hidden", Unit::Share),
            figure("copies_ms", "copies", Unit::Time),
            figure("copies_hidden", "copies hidden", Unit::Share),
            figure("upload_gb_s", "HtoD GB/s", Unit::Number),
            figure("download_gb_s", "DtoH GB/s", Unit::Number),
        ]
    }
}
