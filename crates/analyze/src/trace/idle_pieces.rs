//! The idle time of a device by the finding that it belongs to. Every idle moment belongs to one finding.

use hashbrown::HashMap;

use laptime_trace::{Activity, SpanId, Trace, TrackId, activity::category};

use crate::devices::{Devices, WorkKind};
use crate::gap_cause::{Cause, Doing, Gap, Judge, Judged, whole_gaps};
use crate::host_tree::{HostPlace, HostTree, HostWork};
use crate::waits::Found;
use crate::{
    gap_verdict::{HostSplit, VerdictKind},
    intervals::Stretches,
    lap_unit::LapUnit,
    one_off::OneOffs,
    python_lines::loading_samples,
};

/// A host that is late by at most this much in a gap is busy launching; later ones do something else.
pub(crate) const LAUNCH_GAP: u64 = 200_000;

/// A shorter kernel ends before the host can launch the next one.
pub(crate) const TINY: u64 = 10_000;

/// A pageable copy of fewer bytes is a sync that reads or writes a value, like `.item()`.
const SMALL_COPY: u64 = 64 << 10;

laptime_trace::words! {
    /// Why a device was idle, as findings name it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub(crate) enum IdleKind: id {
        Sync = "sync-in-loop",
        Loading = "data-loading",
        Starting = "cold-start",
        Allocation = "allocation-in-loop",
        Profiler = "profiler-overhead",
        Interpreter = "interpreter-contention",
        Launch = "launch-bound",
        Tiny = "tiny-kernels",
        Host = "host-starved",
        PageableCopy = "pageable-copy",
        Copy = "exposed-copy",
        Stream = "stream-bound",
        Unexplained = "unexplained-idle",
    }
}

/// An idle interval with one reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) kind: IdleKind,
    pub(crate) from: u64,
    pub(crate) to: u64,
    /// What the host did: the sync, or the innermost span; or the work that the device waited for.
    pub(crate) span: Option<SpanId>,
}

/// The idle time of one device by reason, and the part that the host causes with its places.
#[derive(Debug, Default)]
pub(crate) struct IdlePieces {
    pub(crate) pieces: Vec<Piece>,
    pub(crate) host: HostSplit,
    /// The place with most of the time of [`IdleKind::Host`].
    pub(crate) late_place: Option<HostPlace>,
    /// The pieces in which the host was busy launching, by index, and whether they follow a kernel under [`TINY`].
    launches: Vec<(u32, bool)>,
}

/// What the pieces of all devices share.
pub(crate) struct Splitter<'a> {
    trace: &'a Trace,
    devices: &'a Devices,
    waits: &'a [Found],
    one_offs: &'a OneOffs,
    /// The most bytes that each launch copies.
    copied: HashMap<SpanId, u64>,
    /// Whether a name is a call that allocates or frees, by its index.
    allocates: Vec<bool>,
    /// When other threads ran Python code, by launching thread.
    contended: HashMap<TrackId, Stretches>,
    /// When the stack of a launching thread was sampled, and whether it was inside a data loader.
    samples: HashMap<TrackId, Vec<(u64, bool)>>,
}

impl<'a> Splitter<'a> {
    pub(crate) fn of(trace: &'a Trace, devices: &'a Devices, waits: &'a [Found], one_offs: &'a OneOffs) -> Self {
        let mut copied = HashMap::new();
        let work = || devices.work();
        for (work, launch) in work().filter_map(|work| Some((work, work.launch?))) {
            if work.kind == WorkKind::Copy {
                let bytes = trace.span(work.id).copy_path().and_then(|path| path.bytes).unwrap_or(0);
                let most: &mut u64 = copied.entry(launch).or_default();
                *most = bytes.max(*most);
            }
        }
        let mut launching: Vec<TrackId> = work().filter_map(|work| Some(trace.span_track(work.launch?))).collect();
        launching.sort_unstable();
        launching.dedup();
        let contended = contended(trace, &devices.activities, &launching);
        let samples = launching.iter().filter_map(|track| Some((*track, loading_samples(trace, *track)?))).collect();
        let allocates = trace.names().map(is_allocation).collect();
        Self { trace, devices, waits, one_offs, copied, allocates, contended, samples }
    }

    /// Splits the gaps of one device.
    pub(crate) fn split(&self, idle: &Judged<'_>, unit: Option<&LapUnit>) -> IdlePieces {
        let mut found = IdlePieces::default();
        let mut tree = HostTree::new(self.trace, &self.devices.activities, self.one_offs);
        let mut charges = idle.charges.clone();
        charges.sort_by_key(|charge| (charge.from, charge.to));
        let judge = &idle.judge;
        for parts in whole_gaps(&idle.gaps) {
            let late: u64 = parts.iter().filter(|part| part.cause == Cause::Host).map(Gap::length).sum();
            for gap in parts {
                match gap.cause {
                    Cause::Sync => {
                        let first = charges.partition_point(|charge| charge.to <= gap.from);
                        let of_gap = charges[first..].iter().take_while(|charge| charge.from < gap.to);
                        self.add_syncs(gap, of_gap.map(|charge| (charge.wait, charge.from, charge.to)), &mut found);
                    }
                    Cause::Host => self.add_host(judge, gap, late, &mut tree, &mut found),
                    Cause::Copy => found.add(self.copy_kind(judge, gap), gap.from, gap.to, copy_behind(judge, gap)),
                    Cause::Turnaround => {
                        found.add(IdleKind::Tiny, gap.from, gap.to, judge.before(gap).map(|work| work.id))
                    }
                    Cause::Stream => found.add(IdleKind::Stream, gap.from, gap.to, Some(judge.next(gap).id)),
                    Cause::StreamWait | Cause::HeldBack | Cause::NoLaunch => {
                        found.add(IdleKind::Unexplained, gap.from, gap.to, Some(judge.next(gap).id));
                    }
                }
            }
        }
        found.settle_launches();
        found.pieces.shrink_to_fit();
        found.launches = Vec::new();
        self.settle_loading(&mut found);
        found.host = found.host_split(idle);
        found.host.loading_place = tree.place_of(HostWork::Loading);
        found.host.starting_place = tree.place_of(HostWork::Starting);
        let unit = unit.map(|unit| unit.name.as_str());
        found.host.place = tree.place(unit);
        drop(tree);
        found.late_place = self.late_place(&found, unit);
        found
    }

    fn late_place(&self, found: &IdlePieces, unit: Option<&str>) -> Option<HostPlace> {
        let mut late = found.pieces.iter().filter(|piece| piece.kind == IdleKind::Host).peekable();
        late.peek()?;
        let mut tree = HostTree::new(self.trace, &self.devices.activities, self.one_offs);
        late.for_each(|piece| _ = tree.add(piece.span, piece.to - piece.from));
        tree.place(unit)
    }

    fn add_syncs(&self, gap: &Gap, charges: impl Iterator<Item = (usize, u64, u64)>, found: &mut IdlePieces) {
        let mut reached = gap.from;
        for (wait, from, to) in charges {
            let (from, to) = (from.max(reached), to.min(gap.to));
            if from >= to {
                continue;
            }
            found.add(IdleKind::Sync, reached, from, None);
            found.add(self.sync_kind(&self.waits[wait], from), from, to, self.waits[wait].span());
            reached = to;
        }
        found.add(IdleKind::Sync, reached, gap.to, None);
    }

    fn sync_kind(&self, wait: &Found, from: u64) -> IdleKind {
        let bytes = wait.span().and_then(|span| self.copied.get(&span).copied());
        if self.one_offs.is_at(wait.track, from) {
            IdleKind::Starting
        } else if is_allocation(wait.name(self.trace)) {
            IdleKind::Allocation
        } else if bytes.is_some_and(|bytes| bytes >= SMALL_COPY) {
            IdleKind::PageableCopy
        } else {
            IdleKind::Sync
        }
    }

    fn copy_kind(&self, judge: &Judge<'_>, gap: &Gap) -> IdleKind {
        let bytes = copy_behind(judge, gap).and_then(|span| self.trace.span(span).copy_path()?.bytes);
        match judge.is_pageable(gap) {
            true if bytes.is_some_and(|bytes| bytes < SMALL_COPY) => IdleKind::Sync,
            true => IdleKind::PageableCopy,
            false => IdleKind::Copy,
        }
    }

    fn add_host(&self, judge: &Judge<'_>, gap: &Gap, late: u64, tree: &mut HostTree<'_>, found: &mut IdlePieces) {
        let launch = judge.next(gap).launch;
        let track = launch.map(|launch| self.trace.span_track(launch));
        let is_tiny = judge.before(gap).is_some_and(|work| work.kind == WorkKind::Compute && work.length() < TINY);
        for (doing, from, to) in judge.doing(gap) {
            let is_start = track.is_some_and(|track| self.one_offs.is_at(track, from));
            let (span, work) = match doing {
                Doing::Launched => (launch, HostWork::Other),
                _ if is_start => (None, HostWork::Starting),
                Doing::Span(span) => (Some(span), tree.add(Some(span), to - from)),
                Doing::NothingRecorded => (None, tree.add(None, to - from)),
            };
            let kind = match work {
                HostWork::Starting => IdleKind::Starting,
                HostWork::Loading => IdleKind::Loading,
                HostWork::Other if span.is_some_and(|span| self.is_profiler(span)) => IdleKind::Profiler,
                HostWork::Other if span.is_some_and(|span| self.is_allocating(span)) => IdleKind::Allocation,
                HostWork::Other if self.is_contended(track, span, from, to) => IdleKind::Interpreter,
                HostWork::Other if late <= LAUNCH_GAP => IdleKind::Launch,
                HostWork::Other => IdleKind::Host,
            };
            found.add(kind, from, to, span);
            if kind == IdleKind::Launch && from < to {
                found.launches.push((found.pieces.len() as u32 - 1, is_tiny));
            }
        }
    }

    /// Host code in which the samples show a data loader is loading. Pieces without samples follow the majority.
    fn settle_loading(&self, found: &mut IdlePieces) {
        let of_piece = |piece: &Piece| {
            let inside = self.samples.values().flat_map(|samples| {
                let first = samples.partition_point(|(at, _)| *at < piece.from);
                samples[first..].iter().take_while(|(at, _)| *at < piece.to)
            });
            inside.fold((0_u64, 0_u64), |(all, loading), (_, loads)| (all + 1, loading + u64::from(*loads)))
        };
        let is_host = |piece: &&mut Piece| piece.kind == IdleKind::Host;
        let counts: Vec<(u64, u64)> =
            found.pieces.iter().filter(|piece| piece.kind == IdleKind::Host).map(of_piece).collect();
        let all = counts.iter().fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        for (piece, count) in found.pieces.iter_mut().filter(is_host).zip(counts) {
            let (samples, loading) = if count.0 > 0 { count } else { all };
            if 2 * loading > samples {
                piece.kind = IdleKind::Loading;
            }
        }
    }

    fn is_profiler(&self, span: SpanId) -> bool {
        self.trace.name(self.trace.span_category(span)) == category::OVERHEAD
    }

    fn is_allocating(&self, span: SpanId) -> bool {
        self.devices.activities[span.index()].is_call() && self.allocates[self.trace.span_name(span).index()]
    }

    /// Whether another thread ran Python code for most of an interval in which this one ran Python code or was idle.
    fn is_contended(&self, track: Option<TrackId>, span: Option<SpanId>, from: u64, to: u64) -> bool {
        let is_code = span.is_none_or(|span| self.devices.activities[span.index()] == Activity::Python);
        let others = track.and_then(|track| self.contended.get(&track)).filter(|_| is_code);
        others.is_some_and(|others| 2 * others.length_within(from, to) > to - from)
    }
}

impl IdlePieces {
    fn add(&mut self, kind: IdleKind, from: u64, to: u64, span: Option<SpanId>) {
        if from < to {
            self.pieces.push(Piece { kind, from, to, span });
        }
    }

    /// Launch gaps are the fault of short kernels if most of their time follows kernels under [`TINY`].
    fn settle_launches(&mut self) {
        let length = |at: u32| self.pieces[at as usize].to - self.pieces[at as usize].from;
        let all: u64 = self.launches.iter().map(|(at, _)| length(*at)).sum();
        let tiny: u64 = self.launches.iter().filter(|(_, is_tiny)| *is_tiny).map(|(at, _)| length(*at)).sum();
        if 2 * tiny > all {
            for (at, _) in &self.launches {
                self.pieces[*at as usize].kind = IdleKind::Tiny;
            }
        }
    }

    /// The idle time that the host causes: the parts of gaps with the causes host and sync.
    fn host_split(&self, idle: &Judged<'_>) -> HostSplit {
        let of_host = |gap: &&Gap| matches!(gap.cause, Cause::Host | Cause::Sync);
        let of_host = Stretches::union(idle.gaps.iter().filter(of_host).map(|gap| (gap.from, gap.to)).collect());
        let time = |kinds: &[IdleKind]| {
            let pieces = self.pieces.iter().filter(|piece| kinds.contains(&piece.kind));
            pieces.map(|piece| of_host.length_within(piece.from, piece.to)).sum::<u64>()
        };
        // Among equals the last one is the verdict.
        let times = vec![
            (VerdictKind::ColdStart, time(&[IdleKind::Starting])),
            (VerdictKind::Turnaround, time(&[IdleKind::Tiny])),
            (VerdictKind::Launch, time(&[IdleKind::Launch])),
            (VerdictKind::Allocation, time(&[IdleKind::Allocation])),
            (VerdictKind::Sync, time(&[IdleKind::Sync, IdleKind::PageableCopy])),
            (VerdictKind::DataLoading, time(&[IdleKind::Loading])),
            (VerdictKind::Host, time(&[IdleKind::Host, IdleKind::Interpreter, IdleKind::Profiler])),
        ];
        HostSplit { times, ..HostSplit::default() }
    }
}

/// The copy that a gap waits for: the one before it or the one after it.
fn copy_behind(judge: &Judge<'_>, gap: &Gap) -> Option<SpanId> {
    let before = judge.before(gap).filter(|before| before.kind == WorkKind::Copy);
    Some(before.unwrap_or_else(|| judge.next(gap)).id)
}

/// Calls that allocate or free memory of a device, or pinned memory.
pub(crate) fn is_allocation(name: &str) -> bool {
    const PARTS: [&str; 9] =
        ["Malloc", "Free", "MemAlloc", "HostAlloc", "HostRegister", "MemCreate", "MemMap", "MemUnmap", "MemRelease"];
    ["cuda", "hip", "cu"].iter().any(|prefix| name.starts_with(prefix)) && PARTS.iter().any(|part| name.contains(part))
}

/// When threads other than each launching thread ran Python code in its process. Only threads that run Python compete.
fn contended(trace: &Trace, activities: &[Activity], launching: &[TrackId]) -> HashMap<TrackId, Stretches> {
    let mut running: HashMap<TrackId, Stretches> = HashMap::new();
    for (track, _) in trace.tracks().filter(|(_, track)| !track.kind.is_device()) {
        let spans = || trace.spans_on(track).map(|span| (span.id, span.start.0, span.end().0, span.name));
        let runs = |id: SpanId, name: &str| activities[id.index()] == Activity::Python && !is_blocked(name);
        let python = spans().filter(|(id, _, _, name)| runs(*id, name)).map(|(_, from, to, _)| (from, to));
        let python = Stretches::union(python.collect());
        if python.length() > 0 {
            let other = spans().filter(|(id, _, _, name)| !runs(*id, name)).filter(|(id, ..)| {
                // A stage around Python code does not stop it.
                trace.span_parent(*id).is_some_and(|parent| activities[parent.index()] == Activity::Python)
            });
            let other = Stretches::union(other.map(|(_, from, to, _)| (from, to)).collect());
            running.insert(track, python.minus(&other));
        }
    }
    let process = |track: TrackId| trace.track(track).process;
    let rivals = |track: TrackId| {
        let others = running.iter().filter(|(other, _)| **other != track && process(**other) == process(track));
        Stretches::union(others.flat_map(|(_, stretches)| stretches.parts().iter().copied()).collect())
    };
    launching.iter().filter(|track| running.contains_key(*track)).map(|track| (*track, rivals(*track))).collect()
}

/// Whether a Python function blocks without the interpreter lock, by its name; built-in functions may.
fn is_blocked(name: &str) -> bool {
    const WORDS: [&str; 10] =
        ["wait", "acquire", "select", "sleep", "poll", "recv", "accept", "join", "queue.py", "synchronize"];
    name.starts_with('<') || WORDS.iter().any(|word| name.contains(word))
}
