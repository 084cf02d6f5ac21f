//! What the gaps of a device say, in one word and its figures.

use crate::{
    gap_cause::Cause,
    gaps::{HostTime, Part, PartKind},
};

/// From this share of the window on, kernels count as continuous.
pub const BUSY: f64 = 0.9;

/// What holds a device up, with the figures behind it.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// What it is.
    pub kind: VerdictKind,
    /// The share of the window in which kernels ran; saturated from [`BUSY`] on.
    pub busy: f64,
    /// The share of the rest that speaks for it; none if there is no rest.
    pub share: Option<f64>,
    /// What the host did most where it was late.
    pub most: Option<HostTime>,
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
    /// Streams that wait for each other.
    Streams,
    /// The device's own time between kernels.
    Turnaround,
    /// The trace does not say.
    Unexplained,
}

impl VerdictKind {
    /// The verdict in a word, for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Host => "host",
            Self::Copies => "copies",
            Self::Streams => "streams",
            Self::Turnaround => "turnaround",
            Self::Unexplained => "unexplained",
        }
    }

    /// What it means: the end of a sentence.
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Saturated => "Continuous kernels, so the GPU is saturated",
            Self::Host => "Kernels with gaps, so the host is the bottleneck",
            Self::Copies => "Kernels with gaps, and copies are most of them",
            Self::Streams => "Kernels with gaps, and waiting for other streams is most of them",
            Self::Turnaround => "Short kernels with pauses, so the device's own time between kernels is the bottleneck",
            Self::Unexplained => "Kernels with gaps, and the trace does not explain most of them",
        }
    }

    /// What to do next: a sentence without a full stop.
    pub const fn next(self) -> &'static str {
        match self {
            Self::Saturated => "`laptime top` shows which kernels to make faster",
            Self::Host => {
                "shorten what the host does there, launch less (larger batches, fused operations, CUDA graphs, \
                 `torch.compile`), wait less (`laptime syncs`)"
            }
            Self::Copies => {
                "pin host memory, copy ahead on a stream of its own; `laptime overlap` shows what is hidden"
            }
            Self::Streams => "look at the events between streams in a timeline",
            Self::Turnaround => "make fewer, longer kernels: fuse them, or take larger batches",
            Self::Unexplained => {
                "begin the recording before the work, record calls of the runtime, and look for other users of the device"
            }
        }
    }

    fn of(kind: PartKind) -> Option<Self> {
        match kind {
            PartKind::Kernels => None,
            PartKind::Copies | PartKind::Gap(Cause::Copy) => Some(Self::Copies),
            PartKind::Gap(Cause::Host | Cause::Sync) => Some(Self::Host),
            PartKind::Gap(Cause::Stream) => Some(Self::Streams),
            PartKind::Gap(Cause::Turnaround) => Some(Self::Turnaround),
            PartKind::Gap(Cause::HeldBack | Cause::NoLaunch) => Some(Self::Unexplained),
        }
    }
}

/// Judges the parts of a window: saturated, or what takes most of the time without kernels.
pub fn verdict(parts: &[Part], host: &[HostTime]) -> Verdict {
    let kernels = parts.iter().find(|part| part.kind == PartKind::Kernels);
    let busy = kernels.map_or(0.0, |part| part.share);
    let time = |wanted: Option<VerdictKind>| {
        parts.iter().filter(|part| VerdictKind::of(part.kind) == wanted).map(|part| part.time.0).sum::<u64>()
    };
    let rest: u64 = parts.iter().map(|part| part.time.0).sum::<u64>() - time(None);
    let share = |kind: VerdictKind| (rest > 0).then(|| time(Some(kind)) as f64 / rest as f64);
    if busy >= BUSY || rest == 0 {
        return Verdict { kind: VerdictKind::Saturated, busy, share: None, most: None };
    }
    use VerdictKind::{Copies, Host, Streams, Turnaround, Unexplained};
    // Of equals the first is taken: what the user can change comes first.
    let kinds = [Unexplained, Turnaround, Streams, Copies, Host];
    let kind = kinds.into_iter().max_by_key(|kind| time(Some(*kind))).unwrap_or(Unexplained);
    let most = host.first().filter(|_| kind == Host).cloned();
    Verdict { kind, busy, share: share(kind), most }
}
