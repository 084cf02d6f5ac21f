//! Timestamps of the stages inside a graph, from a second capture.
//!
//! A replay is one launch: the host cannot see its stages, and events inside it have no time. The step is therefore
//! captured a second time, and the device writes its global timer at stage boundaries: kernels of a decode step do so
//! themselves, once all previous kernels are done, and a kernel of one thread does it before any other work. A stage that
//! begins where another ends shares its boundary. The last kernel of a replay copies the timestamps into a ring. The result
//! is device-only spans. Timing samples use the plain graph.

mod stamper;

use std::collections::VecDeque;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use laptime_trace::{GraphReplay, GraphReplays, InnerStage, kernels::Stretch};

pub use self::stamper::Stamper;
use crate::error::{CudaError, Done};
use crate::kernel::{Kernel, Shape};
use crate::stream::{Boundary, Stream};
use crate::{device::Device, graph::Graph, kernels::Kernels, launch::Launch, launch::area, memory::Buffer};

/// The capacity of a stamped graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampCapacity {
    /// Stages per replay.
    pub stages: u32,
    /// Replays stored until they are read; rounded up to a power of two.
    pub replays: u32,
}

/// A graph whose stages have timestamps.
#[derive(Debug)]
pub struct StampedGraph {
    graph: Graph,
    stamps: Stamps,
    stages: Arc<[InnerStage]>,
    /// The slots of each stage's boundaries.
    boundaries: Vec<[u32; 2]>,
    read_until: u32,
    /// Numbers of the replays that were launched and not read.
    launched: VecDeque<u64>,
}

/// The number of the last replay launched through [`StampedGraph::launch`], over all graphs.
static LAST_REPLAY: AtomicU64 = AtomicU64::new(0);

#[derive(Debug)]
struct Stamps {
    stamp: Kernel,
    end_replay: Kernel,
    /// The timestamps of the current replay.
    current: Buffer<u64>,
    ring: Buffer<u64>,
    replay: Buffer<u32>,
    slots: u32,
    rows: u32,
}

/// Lets kernels on a stream write timestamps while it lives.
struct Stamping<'a>(&'a Boundary);

impl Drop for Stamping<'_> {
    fn drop(&mut self) {
        self.0.set_kernel(None);
    }
}

/// Threads of the last kernel of a replay.
const END_THREADS: u32 = 128;

impl Stamps {
    fn new(device: &Device, kernels: &Kernels, capacity: StampCapacity) -> Result<Self, CudaError> {
        let slots = capacity.stages.max(1).saturating_mul(2);
        // A power of two, so that the order of rows is right when the count of replays wraps around.
        let rows = capacity.replays.clamp(1, 1 << 20).next_power_of_two();
        let (mut current, mut replay) = (device.allocate(slots as usize)?, device.allocate(1)?);
        let mut ring = device.allocate(slots as usize * rows as usize)?;
        current.zero()?;
        ring.zero()?;
        replay.zero()?;
        device.stream().synchronise()?;
        let (stamp, end_replay) = (kernels.stamp.clone(), kernels.end_replay.clone());
        Ok(Self { stamp, end_replay, current, ring, replay, slots, rows })
    }

    fn begin<'a>(&self, boundary: &'a Boundary) -> Stamping<'a> {
        boundary.set_kernel(Some(self.stamp.clone()));
        Stamping(boundary)
    }

    /// Ends a replay with this number of timestamps. It writes the one in slot `last` itself.
    fn end_replay(&self, stream: &Stream, [used, last]: [u32; 2]) -> Done {
        let launch = Launch::new(stream, "ending a replay").read(&self.current, used).with_all([used, last]);
        let launch = launch.read(&self.ring, area(self.slots, self.rows)).read(&self.replay, 1_u32);
        launch.with_all([self.slots, self.rows]).run(&self.end_replay, Shape::line(1, END_THREADS))
    }
}

impl StampedGraph {
    /// Captures a step that names its stages. See [`Graph::capture`].
    pub fn capture(
        device: &Device,
        kernels: &Kernels,
        stream: &Stream,
        capacity: StampCapacity,
        step: impl FnOnce(&Stamper) -> Done,
    ) -> Result<Self, CudaError> {
        let stamps = Stamps::new(device, kernels, capacity)?;
        let stamper = Stamper::new(stream.boundary(), stamps.current.pointer(), stamps.slots);
        let stamping = stamps.begin(stream.boundary());
        let graph = Graph::capture(stream, || {
            step(&stamper)?;
            let ends = stamper.finish()?;
            stamps.end_replay(stream, ends)
        })?;
        drop(stamping);
        let (stages, boundaries): (Vec<_>, _) = stamper.stages().into_iter().unzip();
        Ok(Self { graph, stamps, stages: stages.into(), boundaries, read_until: 0, launched: VecDeque::new() })
    }

    /// The graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The number of the next replay, for the field [`REPLAY`](laptime_trace::replays::REPLAY) of its
    /// span.
    pub fn next_number(&mut self) -> u64 {
        let number = LAST_REPLAY.fetch_add(1, Relaxed) + 1;
        self.launched.push_back(number);
        number
    }

    /// Whether there are replays that were not read.
    pub fn has_unread(&self) -> bool {
        !self.launched.is_empty()
    }

    /// Whether at least half of the capacity was not read.
    pub fn is_half_full(&self) -> bool {
        self.launched.len() >= self.stamps.rows as usize / 2
    }

    /// Whether the next replay overwrites one that was not read.
    pub fn is_full(&self) -> bool {
        self.launched.len() >= self.stamps.rows as usize
    }

    /// Reads the replays since the last call, with their numbers from [`StampedGraph::next_number`]. Waits for the device.
    pub fn read(&mut self, device: &Device) -> Result<GraphReplays, CudaError> {
        device.synchronise()?;
        let count = self.stamps.replay.read()?.first().copied().unwrap_or(0);
        let ring = self.stamps.ring.read()?;
        let (times, lost) = replays(&ring, self.stamps.slots, [self.read_until, count], &self.boundaries);
        self.read_until = count;
        Ok(numbered(times, lost, &mut self.launched, &self.stages))
    }
}

/// The stages of each replay between two counts, oldest first, and the number of overwritten replays. Counts wrap around, as
/// on the device.
fn replays(ring: &[u64], slots: u32, [from, until]: [u32; 2], boundaries: &[[u32; 2]]) -> (Vec<Vec<Stretch>>, u32) {
    let rows = (ring.len() / slots.max(1) as usize) as u32;
    let wanted = until.wrapping_sub(from);
    let kept = wanted.min(rows);
    let replays = (0..kept).rev().map(|back| {
        let number = until.wrapping_sub(back).wrapping_sub(1);
        let row = (number % rows.max(1)) as usize * slots as usize;
        let slot = |slot: u32| ring.get(row + slot as usize).copied().unwrap_or(0);
        boundaries.iter().map(|[begin, end]| Stretch { start_ns: slot(*begin), end_ns: slot(*end) }).collect()
    });
    (replays.collect(), wanted - kept)
}

/// The replays with their numbers, which are in launch order.
fn numbered(
    times: Vec<Vec<Stretch>>,
    lost: u32,
    launched: &mut VecDeque<u64>,
    stages: &Arc<[InnerStage]>,
) -> GraphReplays {
    launched.drain(..launched.len().min(lost as usize));
    let numbers = launched.drain(..launched.len().min(times.len()));
    let replays = numbers.zip(times).map(|(number, times)| GraphReplay { number, stages: Arc::clone(stages), times });
    GraphReplays { replays: replays.collect(), lost: u64::from(lost) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stretch([start_ns, end_ns]: [u64; 2]) -> Stretch {
        Stretch { start_ns, end_ns }
    }

    #[test]
    fn replays_are_numbered_in_launch_order_including_dropped_ones() {
        let times = |number: u64| vec![stretch([number, number + 5])];
        let stages: Arc<[InnerStage]> = [InnerStage { name: "layer".to_owned(), place: None }].into();
        let mut launched = VecDeque::from([10, 12, 15, 16]);
        let found = numbered(vec![times(1), times(2)], 1, &mut launched, &stages);
        assert_eq!(found.lost, 1);
        assert_eq!(found.replays.iter().map(|replay| replay.number).collect::<Vec<_>>(), [12, 15]);
        assert_eq!(found.replays[1].times, [stretch([2, 7])]);
        assert_eq!(launched, [16]);
    }

    #[test]
    fn each_replay_has_a_row_of_the_ring() {
        let ring = [10, 40, 20, 30, 110, 140, 120, 130];
        let (times, lost) = replays(&ring, 4, [0, 2], &[[0, 1], [2, 3]]);
        assert_eq!(times, [[[10, 40], [20, 30]], [[110, 140], [120, 130]]].map(|times| times.map(stretch).to_vec()));
        assert_eq!(lost, 0);
    }

    #[test]
    fn overwritten_replays_are_counted() {
        let (times, lost) = replays(&[50, 60, 30, 40], 2, [0, 5], &[[0, 1]]);
        assert_eq!((times, lost), (vec![vec![stretch([30, 40])], vec![stretch([50, 60])]], 3));
    }

    #[test]
    fn the_order_is_right_after_the_count_wraps_around() {
        let (times, lost) = replays(&[50, 60, 30, 40], 2, [u32::MAX, 1], &[[0, 1]]);
        assert_eq!((times, lost), (vec![vec![stretch([30, 40])], vec![stretch([50, 60])]], 0));
    }
}
