//! What the gaps of a device say, in one word and its figures.

use crate::{
    gap_cause::Cause,
    gaps::{Part, PartKind},
    host_tree::HostPlace,
};

/// From this share of the window on, kernels count as continuous.
pub const BUSY: f64 = 0.9;

/// Less work than this is not judged.
pub const LEAST_WORK: u64 = 2;

/// A window that is a smaller share of the wall time is not judged.
pub const LEAST_EXTENT: f64 = 0.01;

/// A larger share is most of something.
const MOST: f64 = 0.5;

/// Syncs are part of the advice if they cost this share of what the host costs.
const NOTABLE: f64 = 0.1;

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
    /// What the host cost, by what it did.
    pub host: HostSplit,
    /// The time without kernels, in nanoseconds.
    pub rest: u64,
}

/// Idle time that is due to the host, by what it did; times in nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSplit {
    /// What would vanish had the host not waited.
    pub sync: u64,
    /// It loaded data.
    pub loading: u64,
    /// It did what is done once: cold laps, module loading, graph capture.
    pub starting: u64,
    /// It did anything else.
    pub other: u64,
    /// Where it loaded data.
    pub loading_place: Option<HostPlace>,
    /// What it did once, where that has a name.
    pub starting_place: Option<HostPlace>,
    /// Where it did most of anything else.
    pub place: Option<HostPlace>,
}

impl HostSplit {
    /// The time of a verdict that is the host's; zero of any other.
    pub const fn time(&self, kind: VerdictKind) -> u64 {
        match kind {
            VerdictKind::Host => self.other,
            VerdictKind::Sync => self.sync,
            VerdictKind::DataLoading => self.loading,
            VerdictKind::ColdStart => self.starting,
            _ => 0,
        }
    }

    /// All of it.
    pub const fn all(&self) -> u64 {
        self.sync + self.loading + self.starting + self.other
    }

    /// Where the time of a verdict was spent.
    pub const fn place(&self, kind: VerdictKind) -> Option<&HostPlace> {
        match kind {
            VerdictKind::Host => self.place.as_ref(),
            VerdictKind::DataLoading => self.loading_place.as_ref(),
            VerdictKind::ColdStart => self.starting_place.as_ref(),
            _ => None,
        }
    }
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
    /// The time of copies alone that stay on the device, memsets included, in nanoseconds.
    pub within: u64,
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
    /// The host is late with its launches.
    Host,
    /// The host waits for the device, and launches too late for it.
    Sync,
    /// The host loads data.
    DataLoading,
    /// The host does what is done once: the recording holds the warm-up.
    ColdStart,
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
    /// The verdicts that are the host's. Of equals the last is taken.
    pub const OF_HOST: [Self; 4] = [Self::ColdStart, Self::Sync, Self::DataLoading, Self::Host];

    /// The verdict in a word, for machines.
    pub const fn key(self) -> &'static str {
        match self {
            Self::Saturated => "saturated",
            Self::Host => "host",
            Self::Sync => "sync",
            Self::DataLoading => "data-loading",
            Self::ColdStart => "cold-start",
            Self::Copies => "copies",
            Self::Communication => "communication",
            Self::Streams => "streams",
            Self::Turnaround => "turnaround",
            Self::Unexplained => "unexplained",
            Self::TooLittle => "too_little",
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
    /// What it means: a sentence without a full stop.
    pub fn meaning(&self) -> &'static str {
        let is_most = self.share.is_some_and(|share| share > MOST);
        match self.kind {
            VerdictKind::Saturated => "The GPU is busy almost all the time",
            VerdictKind::Host => "The GPU waits for the host",
            VerdictKind::Sync => "The GPU waits because the host waited for it and launched the next work too late",
            VerdictKind::DataLoading => "The GPU waits for data",
            VerdictKind::ColdStart => "The recording holds one-off initialisation, during which the GPU was idle",
            VerdictKind::Copies if is_most => "The GPU waits for copies most of its time without kernels",
            VerdictKind::Copies => "Copies are the largest part of the GPU's time without kernels",
            VerdictKind::Communication => "Compute waits for communication",
            VerdictKind::Streams => "Streams of the GPU wait for each other",
            VerdictKind::Turnaround => "Kernels are short, and the GPU's own time between them is the bottleneck",
            VerdictKind::Unexplained if is_most => "The trace does not explain most of the GPU's idle time",
            VerdictKind::Unexplained => "The trace does not explain the largest part of the GPU's idle time",
            VerdictKind::TooLittle => "There is too little work to judge",
        }
    }

    /// What to do next: a sentence without a full stop.
    pub fn next(&self) -> String {
        self.next_of(self.kind)
    }

    /// What to do next about one of the things that hold the device up.
    pub fn next_of(&self, kind: VerdictKind) -> String {
        let place = |kind| self.host.place(kind).map(|place| format!("`{}`", place.innermost()));
        let next = match kind {
            VerdictKind::Saturated => "`laptime top` shows which kernels to make faster",
            VerdictKind::Host => return self.next_of_host(),
            VerdictKind::Sync => {
                "launch the next work before waiting, or wait less often; `laptime syncs` shows where the host waits"
            }
            VerdictKind::DataLoading => {
                let place = place(kind).unwrap_or_else(|| "the data loader".to_owned());
                return format!(
                    "load batches ahead in other processes (`DataLoader(num_workers=…, prefetch_factor=…)`), and make \
                     {place} faster"
                );
            }
            VerdictKind::ColdStart => {
                "record after warm-up (`torch.profiler.schedule(wait=…, warmup=…)`, or start the recording later)"
            }
            VerdictKind::Copies if self.basis.within > self.basis.copies / 2 => {
                "these copies stay on the GPU: avoid them (`contiguous()`, `clone()`, `cat`, zeroing of gradients) or \
                 fuse them into kernels; `laptime top` shows them"
            }
            VerdictKind::Copies if self.basis.pageable > self.basis.copies / 2 => {
                "pin host memory, copy ahead on a separate stream; `laptime overlap` shows what is hidden"
            }
            VerdictKind::Copies => "copy ahead on a separate stream, copy less; `laptime overlap` shows what is hidden",
            VerdictKind::Communication => {
                "look for a straggler rank (`laptime gaps` of the traces of all ranks), communicate while computing \
                 (`laptime overlap`), send less"
            }
            VerdictKind::Streams => "look at the events between streams in a timeline",
            VerdictKind::Turnaround => "run fewer, longer kernels: fuse them, or use larger batches",
            VerdictKind::Unexplained => {
                "start the recording before the work, record runtime calls, and look for other users of the GPU"
            }
            VerdictKind::TooLittle => "record longer, or start the recording later, so that the work fills more of it",
        };
        next.to_owned()
    }

    fn next_of_host(&self) -> String {
        let mut next: Vec<String> = Vec::new();
        next.extend(self.host.place.as_ref().map(|place| format!("shorten `{}`", place.innermost())));
        next.push("launch less (larger batches, fused operations, CUDA graphs, `torch.compile`)".to_owned());
        if self.host.sync as f64 >= NOTABLE * self.host.all() as f64 && self.host.sync > 0 {
            next.push("wait less (`laptime syncs`)".to_owned());
        }
        if self.host.place.is_none() {
            next.push("record what the host does between launches".to_owned());
        }
        next.join(", ")
    }
}

/// Judges the parts of a window: saturated, or what takes most of the time without kernels.
pub fn verdict(parts: &[Part], mut host: HostSplit, basis: Basis) -> Verdict {
    let kernels = parts.iter().find(|part| part.kind == PartKind::Kernels);
    let busy = kernels.map_or(0.0, |part| part.share);
    let time = |wanted: Option<VerdictKind>| {
        parts.iter().filter(|part| VerdictKind::of(part.kind) == wanted).map(|part| part.time.0).sum::<u64>()
    };
    let is_sync = |part: &&Part| part.kind == PartKind::Gap(Cause::Sync);
    host.sync = parts.iter().filter(is_sync).map(|part| part.time.0).sum();
    let rest: u64 = parts.iter().map(|part| part.time.0).sum::<u64>() - time(None);
    let judged = |kind, share| Verdict { kind, busy, basis, share, host: host.clone(), rest };
    if basis.is_too_little() {
        return judged(VerdictKind::TooLittle, None);
    }
    if busy >= BUSY || rest == 0 {
        return judged(VerdictKind::Saturated, None);
    }
    use VerdictKind::{Communication, Copies, Host, Streams, Turnaround, Unexplained};
    // Of equals the last is taken: what the user can change comes last.
    let kinds = [Unexplained, Turnaround, Streams, Communication, Copies, Host];
    let kind = kinds.into_iter().max_by_key(|kind| time(Some(*kind))).unwrap_or(Unexplained);
    let share = |time: u64| Some(time as f64 / rest as f64);
    if kind == Host {
        let kind = VerdictKind::OF_HOST.into_iter().max_by_key(|kind| host.time(*kind)).unwrap_or(Host);
        return judged(kind, share(host.time(kind)));
    }
    judged(kind, share(time(Some(kind))))
}
