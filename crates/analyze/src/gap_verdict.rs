//! What the gaps of a device say, in one word and its figures.

use crate::{
    gap_cause::Cause,
    gaps::{HostTime, Part, PartKind},
};

/// From this share of the window on, kernels count as continuous.
pub const BUSY: f64 = 0.9;

/// Less work than this is not judged.
pub const LEAST_WORK: u64 = 2;

/// A window that is a smaller share of the wall time is not judged.
pub const LEAST_EXTENT: f64 = 0.01;

/// What holds a device up, with the figures behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What it is.
    pub kind: VerdictKind,
    /// The share of the window in which kernels computed; saturated from [`BUSY`] on.
    pub busy: f64,
    /// What there was to judge.
    pub basis: Basis,
    /// The share of the rest that speaks for it; none if there is no rest.
    pub share: Option<f64>,
    /// What the host did most where it was late.
    pub most: Option<HostTime>,
}

/// What there is to judge.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Basis {
    /// Pieces of work.
    pub work: u64,
    /// The share of the wall time that the window is.
    pub extent: f64,
    /// The time of copies alone and of gaps by copies that is due to pageable memory, in nanoseconds.
    pub pageable: u64,
    /// All of that time.
    pub copies: u64,
}

impl Basis {
    fn is_too_little(&self) -> bool {
        self.work < LEAST_WORK || self.extent < LEAST_EXTENT
    }
}

/// What holds a device up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum VerdictKind {
    /// Kernels are continuous: the device itself.
    Saturated,
    /// The host: it is late, or it waits.
    Host,
    /// Copies.
    Copies,
    /// Kernels that exchange data with other devices.
    Communication,
    /// Streams that wait for each other.
    Streams,
    /// The device's own time between kernels.
    Turnaround,
    /// The trace does not say.
    Unexplained,
    /// There is too little work to judge.
    TooLittle,
}

impl VerdictKind {
    /// The verdict in a word, for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Host => "host",
            Self::Copies => "copies",
            Self::Communication => "communication",
            Self::Streams => "streams",
            Self::Turnaround => "turnaround",
            Self::Unexplained => "unexplained",
            Self::TooLittle => "too_little",
        }
    }

    /// What it means: the end of a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Saturated => "Continuous kernels, so the GPU is saturated",
            Self::Host => "Kernels with gaps, so the host is the bottleneck",
            Self::Copies => "Kernels with gaps, and copies are most of them",
            Self::Communication => "Compute waits for communication, so communication is the bottleneck",
            Self::Streams => "Kernels with gaps, and waiting for other streams is most of them",
            Self::Turnaround => "Short kernels with pauses, so the device's own time between kernels is the bottleneck",
            Self::Unexplained => "Kernels with gaps, and the trace does not explain most of them",
            Self::TooLittle => "Too little work to judge",
        }
    }

    fn of(kind: PartKind) -> Option<Self> {
        match kind {
            PartKind::Kernels => None,
            PartKind::Communication => Some(Self::Communication),
            PartKind::Copies | PartKind::Gap(Cause::Copy) => Some(Self::Copies),
            PartKind::Gap(Cause::Host | Cause::Sync) => Some(Self::Host),
            PartKind::Gap(Cause::Stream) => Some(Self::Streams),
            PartKind::Gap(Cause::Turnaround) => Some(Self::Turnaround),
            PartKind::Gap(Cause::ToldToWait | Cause::HeldBack | Cause::NoLaunch) => Some(Self::Unexplained),
        }
    }
}

impl Verdict {
    /// What to do next: a sentence without a full stop.
    pub fn next(&self) -> &'static str {
        match self.kind {
            VerdictKind::Saturated => "`laptime top` shows which kernels to make faster",
            VerdictKind::Host if self.most.as_ref().is_some_and(|most| most.name.is_some()) => {
                "shorten what the host does there, launch less (larger batches, fused operations, CUDA graphs, \
                 `torch.compile`), wait less (`laptime syncs`)"
            }
            VerdictKind::Host => {
                "wait less (`laptime syncs`), launch less (larger batches, fused operations, CUDA graphs, \
                 `torch.compile`), and record what the host does between launches"
            }
            VerdictKind::Copies if self.basis.pageable > self.basis.copies / 2 => {
                "pin host memory, copy ahead on a stream of its own; `laptime overlap` shows what is hidden"
            }
            VerdictKind::Copies => {
                "copy ahead on a stream of its own, copy less; `laptime overlap` shows what is hidden"
            }
            VerdictKind::Communication => {
                "look for a rank that comes late (`laptime gaps` of the traces of all ranks), communicate while \
                 computing (`laptime overlap`), send less"
            }
            VerdictKind::Streams => "look at the events between streams in a timeline",
            VerdictKind::Turnaround => "make fewer, longer kernels: fuse them, or take larger batches",
            VerdictKind::Unexplained => {
                "begin the recording before the work, record calls of the runtime, and look for other users of the device"
            }
            VerdictKind::TooLittle => "record longer, or begin the recording later, so that the work fills more of it",
        }
    }
}

/// Judges the parts of a window: saturated, or what takes most of the time without kernels.
pub fn verdict(parts: &[Part], host: &[HostTime], basis: Basis) -> Verdict {
    let kernels = parts.iter().find(|part| part.kind == PartKind::Kernels);
    let busy = kernels.map_or(0.0, |part| part.share);
    let time = |wanted: Option<VerdictKind>| {
        parts.iter().filter(|part| VerdictKind::of(part.kind) == wanted).map(|part| part.time.0).sum::<u64>()
    };
    let rest: u64 = parts.iter().map(|part| part.time.0).sum::<u64>() - time(None);
    let share = |kind: VerdictKind| (rest > 0).then(|| time(Some(kind)) as f64 / rest as f64);
    let plain = |kind| Verdict { kind, busy, basis, share: None, most: None };
    if basis.is_too_little() {
        return plain(VerdictKind::TooLittle);
    }
    if busy >= BUSY || rest == 0 {
        return plain(VerdictKind::Saturated);
    }
    use VerdictKind::{Communication, Copies, Host, Streams, Turnaround, Unexplained};
    // Of equals the last is taken: what the user can change comes last.
    let kinds = [Unexplained, Turnaround, Streams, Communication, Copies, Host];
    let kind = kinds.into_iter().max_by_key(|kind| time(Some(*kind))).unwrap_or(Unexplained);
    let most = host.first().filter(|_| kind == Host).cloned();
    Verdict { kind, busy, basis, share: share(kind), most }
}
