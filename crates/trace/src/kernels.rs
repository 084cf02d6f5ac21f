//! Device activity as plain records: kernels, copies and the calls that launched them.
//!
//! A profiler of a device creates [`KernelRecords`]; [`Trace::with_kernels`](crate::Trace::with_kernels) inserts them
//! into the trace of the same period.

mod insert;

use std::sync::Arc;

/// The activity of a device during a recording.
///
/// All times are nanoseconds on the host's monotonic clock, as returned by [`laptime_probe::monotonic_nanos`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KernelRecords {
    /// The device work.
    pub work: Vec<DeviceWork>,
    /// The host calls.
    pub calls: Vec<HostCall>,
    /// Dropped records.
    pub lost: u64,
    /// The maximum error of device times relative to host times, in nanoseconds.
    pub uncertainty_ns: Option<u64>,
    /// Warnings for the user.
    pub warnings: Vec<String>,
}

/// A time range in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct Stretch {
    /// When it began.
    pub start_ns: u64,
    /// When it ended.
    pub end_ns: u64,
}

/// Work on a device stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceWork {
    /// The time range.
    pub time: Stretch,
    /// The device id.
    pub device: u32,
    /// The stream id; none for work of the whole device.
    pub stream: Option<u32>,
    /// The correlation id of the launching call; 0 for none.
    pub correlation: u64,
    /// The kind of work.
    pub kind: WorkKind,
}

/// The kind of device work.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the fields are named after what they hold")]
pub enum WorkKind {
    /// A kernel, with its name as people read it, its launch, and its node in a graph, as far as known.
    Kernel {
        name: Arc<str>,
        grid: [u32; 3],
        block: [u32; 3],
        registers: Option<u16>,
        shared_bytes: Option<u64>,
        graph: Option<u64>,
        node: Option<u64>,
    },
    /// A graph as a whole, without its kernels.
    Graph { graph: u64 },
    /// A copy.
    Copy { from: crate::MemoryKind, to: crate::MemoryKind, bytes: u64, graph: Option<u64> },
    /// A memset.
    Memset { bytes: u64 },
    /// A synchronisation, as reported by the driver: `Stream Sync`, `Context Sync`, `Event Sync`, `Stream Wait Event`.
    Sync { name: String },
}

impl WorkKind {
    /// Whether a device is busy with it.
    pub fn is_work(&self) -> bool {
        !matches!(self, Self::Sync { .. })
    }
}

/// A runtime or driver call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostCall {
    /// The time range.
    pub time: Stretch,
    /// The system id of the calling thread.
    pub thread: i64,
    /// The function: `cuLaunchKernel`.
    pub name: Arc<str>,
    /// Whether it is one of the driver, not of the runtime.
    pub is_driver: bool,
    /// The correlation id of the launched work; 0 for none.
    pub correlation: u64,
}

impl KernelRecords {
    /// The busy time of devices between two moments; overlapping work counts once.
    ///
    /// The busy time of many non-overlapping ranges, in order of their start.
    pub fn busy_ns(&self, stretches: &[Stretch]) -> Vec<u64> {
        let mut work: Vec<Stretch> =
            self.work.iter().filter(|work| work.kind.is_work()).map(|work| work.time).collect();
        work.sort_unstable();
        let mut busy = vec![0_u64; stretches.len()];
        let mut first = 0;
        let mut reached = 0;
        for Stretch { start_ns, end_ns } in work {
            let start_ns = start_ns.max(reached);
            reached = reached.max(end_ns);
            while stretches.get(first).is_some_and(|stretch| stretch.end_ns <= start_ns) {
                first += 1;
            }
            for (stretch, busy) in stretches.iter().zip(&mut busy).skip(first) {
                if stretch.start_ns >= end_ns {
                    break;
                }
                *busy += end_ns.min(stretch.end_ns).saturating_sub(start_ns.max(stretch.start_ns));
            }
        }
        busy
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stretch((start_ns, end_ns): (u64, u64)) -> Stretch {
        Stretch { start_ns, end_ns }
    }

    fn records(work: &[(u64, u64)]) -> KernelRecords {
        let memset = |&time: &(u64, u64)| DeviceWork {
            time: stretch(time),
            device: 0,
            stream: Some(0),
            correlation: 0,
            kind: WorkKind::Memset { bytes: 1 },
        };
        KernelRecords { work: work.iter().map(memset).collect(), ..KernelRecords::default() }
    }

    #[test]
    fn work_that_overlaps_counts_once_and_only_inside_the_stretch() {
        let records = records(&[(0, 10), (5, 20), (30, 40), (95, 130)]);
        let stretches = [(0, 25), (25, 35), (50, 60), (100, 200)].map(stretch);
        assert_eq!(records.busy_ns(&stretches), [20, 5, 0, 30]);
    }

    #[test]
    fn a_synchronisation_is_not_work() {
        let mut records = records(&[(0, 10)]);
        records.work[0].kind = WorkKind::Sync { name: "Stream Sync".to_owned() };
        assert_eq!(records.busy_ns(&[stretch((0, 10))]), [0]);
    }

    proptest! {
        #[test]
        fn stretches_side_by_side_share_out_the_union(
            work in prop::collection::vec((0_u64..200, 0_u64..60), 0..30),
            cuts in prop::collection::btree_set(1_u64..300, 0..6),
        ) {
            let work: Vec<(u64, u64)> = work.into_iter().map(|(start, length)| (start, start + length)).collect();
            let bounds: Vec<u64> = std::iter::once(0).chain(cuts).chain([300]).collect();
            let stretches: Vec<Stretch> = bounds.windows(2).map(|pair| stretch((pair[0], pair[1]))).collect();
            let union = (0..300).filter(|&at| work.iter().any(|&(start, end)| (start..end).contains(&at))).count();
            prop_assert_eq!(records(&work).busy_ns(&stretches).iter().sum::<u64>(), union as u64);
        }
    }
}
