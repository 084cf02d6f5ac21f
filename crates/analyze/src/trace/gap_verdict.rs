//! The verdict on the gaps of a device, with its figures.

use crate::gaps::{Part, PartKind};
use crate::{gap_cause::Cause, host_tree::HostPlace};

/// From this share of the window on, the device counts as saturated.
pub const BUSY: f64 = 0.9;

/// Fewer kernels and copies than this get no verdict.
pub const LEAST_WORK: u64 = 2;

/// A window that is a smaller share of the wall time gets no verdict.
pub const LEAST_EXTENT: f64 = 0.01;

/// A larger share is the majority.
const MOST: f64 = 0.5;

/// The advice mentions syncs if they cause this share of the idle time that the host causes.
const NOTABLE: f64 = 0.1;

/// The main cause of a device's idle time, with its figures.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The cause.
    pub kind: VerdictKind,
    /// The share of the window in which kernels computed; saturated from [`BUSY`] on.
    pub busy: f64,
    /// The work that the verdict is based on.
    pub basis: Basis,
    /// The share of the time without kernels that it explains; none if kernels ran all the time.
    pub share: Option<f64>,
    /// Idle time caused by the host, by what it did.
    pub host: HostSplit,
    /// The time without kernels, in nanoseconds.
    pub rest: u64,
}

/// Idle time caused by the host, by what it did.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct HostSplit {
    /// The idle time behind each verdict about the host, in nanoseconds.
    pub times: Vec<(VerdictKind, u64)>,
    /// Where it loaded data.
    pub loading_place: Option<HostPlace>,
    /// The initialisation with the most time, if it has a name.
    pub starting_place: Option<HostPlace>,
    /// The place with the most other time.
    pub place: Option<HostPlace>,
}

impl HostSplit {
    /// The idle time behind a verdict about the host; zero for all others.
    pub fn time(&self, kind: VerdictKind) -> u64 {
        self.times.iter().find(|(known, _)| *known == kind).map_or(0, |(_, time)| *time)
    }

    /// The sum.
    pub fn all(&self) -> u64 {
        self.times.iter().map(|(_, time)| time).sum()
    }

    /// Where the time of a verdict was spent.
    pub const fn place(&self, kind: VerdictKind) -> Option<&HostPlace> {
        match kind {
            VerdictKind::Host | VerdictKind::Launch => self.place.as_ref(),
            VerdictKind::DataLoading => self.loading_place.as_ref(),
            VerdictKind::ColdStart => self.starting_place.as_ref(),
            _ => None,
        }
    }
}

/// The work that a verdict is based on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Basis {
    /// Kernels and copies.
    pub work: u64,
    /// The window as a share of the wall time.
    pub extent: f64,
    /// Whether the window begins with a lap, before the first work.
    pub is_since_lap: bool,
    /// The time of exposed copies and of gaps caused by copies that use pageable memory, in nanoseconds.
    pub pageable: u64,
    /// The same for all copies.
    pub copies: u64,
    /// The time of exposed copies within the device, memsets included, in nanoseconds.
    pub within: u64,
}

impl Basis {
    fn is_too_little(&self) -> bool {
        self.work < LEAST_WORK || self.extent < LEAST_EXTENT
    }
}

laptime_trace::words! {
    /// The main cause of a device's idle time.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum VerdictKind, ALL: key, id {
        /// The device is busy almost all the time.
        Saturated = ("saturated", "saturated"),
        /// The host launches work too late.
        Host = ("host", "host-starved"),
        /// The host waits for the device and launches the next work only then.
        Sync = ("sync", "sync-in-loop"),
        /// The host loads data.
        DataLoading = ("data-loading", "data-loading"),
        /// One-off initialisation: the recording includes the warm-up.
        ColdStart = ("cold-start", "cold-start"),
        /// The host allocates or frees memory.
        Allocation = ("allocation", "allocation-in-loop"),
        /// The host is busy launching.
        Launch = ("launch", "launch-bound"),
        Copies = ("copies", "exposed-copy"),
        /// Kernels that exchange data with other devices.
        Communication = ("communication", "exposed-communication"),
        /// Streams that wait for each other.
        Streams = ("streams", "stream-bound"),
        /// The device's own time between kernels.
        Turnaround = ("turnaround", "tiny-kernels"),
        /// The trace does not explain it.
        Unexplained = ("unexplained", "unexplained-idle"),
        /// There is too little work for a verdict.
        TooLittle = ("too-little", "too-little"),
    }
}

impl VerdictKind {
    fn of(kind: PartKind) -> Option<Self> {
        match kind {
            PartKind::Kernels => None,
            PartKind::Communication => Some(Self::Communication),
            PartKind::Copies | PartKind::Gap(Cause::Copy) => Some(Self::Copies),
            PartKind::Gap(Cause::Host | Cause::Sync) => Some(Self::Host),
            PartKind::Gap(Cause::Stream) => Some(Self::Streams),
            PartKind::Gap(Cause::Turnaround) => Some(Self::Turnaround),
            PartKind::Gap(Cause::StreamWait | Cause::HeldBack | Cause::NoLaunch) => Some(Self::Unexplained),
        }
    }
}

impl Verdict {
    /// The verdict in words: a sentence without a full stop.
    pub fn meaning(&self) -> &'static str {
        let is_most = self.share.is_some_and(|share| share > MOST);
        match self.kind {
            VerdictKind::Saturated => "The GPU is busy almost all the time",
            VerdictKind::Host => "The GPU waits for the host",
            VerdictKind::Sync => "Host syncs make the GPU idle",
            VerdictKind::DataLoading => "The GPU waits for data",
            VerdictKind::ColdStart => "The recording includes one-off initialisation",
            VerdictKind::Allocation => "The GPU waits for memory allocations",
            VerdictKind::Launch => "The host launches kernels more slowly than the GPU runs them",
            VerdictKind::Copies if is_most => "The GPU waits for copies",
            VerdictKind::Copies => "Copies are the largest part of the time without kernels",
            VerdictKind::Communication => "Compute waits for communication",
            VerdictKind::Streams => "GPU streams wait for each other",
            VerdictKind::Turnaround => "Kernels are so short that the pauses between them are the bottleneck",
            VerdictKind::Unexplained if is_most => "The trace does not explain most of the GPU's idle time",
            VerdictKind::Unexplained => "The trace does not explain the largest part of the GPU's idle time",
            VerdictKind::TooLittle => "There is too little GPU work for a verdict",
        }
    }

    /// What to try: a clause in the imperative, without a full stop.
    pub fn next(&self) -> String {
        self.next_of(self.kind)
    }

    /// What to try about one of the causes.
    pub fn next_of(&self, kind: VerdictKind) -> String {
        let place = |kind| self.host.place(kind).map(|place| format!("`{}`", place.innermost()));
        let next = match kind {
            VerdictKind::Saturated => "optimise the kernels at the top of `laptime top`",
            VerdictKind::Host | VerdictKind::Launch => return self.next_of_host(),
            VerdictKind::Sync => {
                "launch the next work before the sync, or sync less often; `laptime syncs` shows where the host waits"
            }
            VerdictKind::DataLoading => {
                let place = place(kind).unwrap_or_else(|| "the data loader".to_owned());
                return format!(
                    "load batches ahead in other processes (`DataLoader(num_workers=…, prefetch_factor=…)`), or make \
                     {place} faster"
                );
            }
            VerdictKind::ColdStart => {
                "record after warm-up (`torch.profiler.schedule(wait=…, warmup=…)`, or start the recording later)"
            }
            VerdictKind::Allocation => "allocate before the loop, and reuse the memory",
            VerdictKind::Copies if self.basis.within > self.basis.copies / 2 => {
                "avoid copies within the GPU (`contiguous()`, `clone()`, `cat`, zeroing of gradients) or fuse them into \
                 kernels; `laptime top` shows them"
            }
            VerdictKind::Copies if self.basis.pageable > self.basis.copies / 2 => {
                "pin the host memory and copy ahead on a separate stream; `laptime overlap` shows the exposed copies"
            }
            VerdictKind::Copies => {
                "copy ahead on a separate stream, or copy less; `laptime overlap` shows the exposed copies"
            }
            VerdictKind::Communication => {
                "look for a straggler (`laptime gaps` with the traces of all ranks), overlap communication with compute \
                 (`laptime overlap`), or send less"
            }
            VerdictKind::Streams => "look at the events between streams in a timeline",
            VerdictKind::Turnaround => "run fewer, longer kernels: fuse them, or use larger batches",
            VerdictKind::Unexplained => {
                "start the recording before the work, record runtime calls, and look for other users of the GPU"
            }
            VerdictKind::TooLittle => "record longer, or start the recording closer to the work",
        };
        next.to_owned()
    }

    fn next_of_host(&self) -> String {
        let mut next: Vec<String> = Vec::new();
        next.extend(self.host.place.as_ref().map(|place| format!("shorten `{}`", place.innermost())));
        next.push("launch less (larger batches, fused operations, CUDA graphs, `torch.compile`)".to_owned());
        let sync = self.host.time(VerdictKind::Sync);
        if sync as f64 >= NOTABLE * self.host.all() as f64 && sync > 0 {
            next.push("sync less (`laptime syncs`)".to_owned());
        }
        if self.host.place.is_none() {
            next.push("record what the host does between launches".to_owned());
        }
        next.join(", ")
    }
}

/// Finds the verdict of a window: saturated, or the largest part of the time without kernels.
pub fn verdict(parts: &[Part], host: HostSplit, basis: Basis) -> Verdict {
    let kernels = parts.iter().find(|part| part.kind == PartKind::Kernels);
    let busy = kernels.map_or(0.0, |part| part.share);
    let time = |of: Option<VerdictKind>| {
        parts.iter().filter(|part| VerdictKind::of(part.kind) == of).map(|part| part.time.0).sum::<u64>()
    };
    let rest: u64 = parts.iter().map(|part| part.time.0).sum::<u64>() - time(None);
    let judged = |kind, share| Verdict { kind, busy, basis, share, host: host.clone(), rest };
    if basis.is_too_little() {
        return judged(VerdictKind::TooLittle, None);
    }
    if busy >= BUSY || rest == 0 {
        return judged(VerdictKind::Saturated, None);
    }
    use VerdictKind::{Communication, Copies, Host, Streams, Turnaround, Unexplained};
    // Among equals the last is used: what the user can change comes last.
    let kinds = [Unexplained, Turnaround, Streams, Communication, Copies, Host];
    let kind = kinds.into_iter().max_by_key(|kind| time(Some(*kind))).unwrap_or(Unexplained);
    let share = |time: u64| Some(time as f64 / rest as f64);
    if kind == Host {
        let (kind, time) = host.times.iter().copied().max_by_key(|(_, time)| *time).unwrap_or((Host, 0));
        return judged(kind, share(time));
    }
    judged(kind, share(time(Some(kind))))
}
