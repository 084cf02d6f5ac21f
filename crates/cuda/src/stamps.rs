//! The stages inside a graph, from a second capture with stamps.
//!
//! A replay is one launch: the host cannot see its stages, and events inside it have no time. The step is therefore
//! captured a second time, and the device writes its global timer at the borders of stages: a kernel of a decode step
//! does so itself, once all kernels before it are done, and a kernel of one thread does it before any other work. Stages
//! that end and begin at the same place share a border. The last kernel of a replay copies the borders into a ring. The
//! result is device-only spans. Timing samples use the plain graph.

mod stamper;

use std::collections::VecDeque;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use laptime_probe::{DeviceAnchor, DeviceMoment};
use laptime_trace::{GraphReplay, GraphReplays, InnerStage, kernels::Stretch};

pub use self::stamper::Stamper;
use crate::error::{CudaError, Done};
use crate::kernel::{Kernel, Shape};
use crate::stream::{Border, Stream};
use crate::{device::Device, graph::Graph, kernels::Kernels, launch::Launch, launch::area, memory::Buffer};

/// The capacity of a stamped graph.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampCapacity {
    /// Stages per replay.
    pub stages: u32,
    /// Replays stored until they are read; rounded up to a power of two.
    pub replays: u32,
}

/// A graph whose stages are stamped.
#[derive(Debug)]
pub struct StampedGraph {
    graph: Graph,
    stamps: Stamps,
    stages: Vec<StampedStage>,
    read_until: u32,
    inner: Arc<[InnerStage]>,
    /// Ids of the replays that were launched and not read.
    launched: VecDeque<u64>,
}

/// The number of the last replay launched through [`StampedGraph::launch`], over all graphs.
static LAST_REPLAY: AtomicU64 = AtomicU64::new(0);

/// A stage of a stamped graph.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StampedStage {
    /// Its name.
    pub name: String,
    /// The nesting depth.
    pub depth: u32,
    /// A counter and its value: `layer`, 3.
    pub place: Option<(&'static str, u32)>,
    begin: u32,
    end: u32,
}

/// One replay: the spans of its stages, in the order of [`StampedGraph::stages`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replay {
    /// Its number since the capture.
    pub number: u32,
    /// Begin and end of each stage, in nanoseconds of the global timer.
    pub spans: Vec<(u64, u64)>,
}

/// The replays that could be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replays {
    /// Oldest first.
    pub replays: Vec<Replay>,
    /// The number of replays that were overwritten before they were read.
    pub lost: u32,
}

#[derive(Debug)]
struct Stamps {
    stamp: Kernel,
    end_replay: Kernel,
    /// The borders of the current replay.
    borders: Buffer<u64>,
    ring: Buffer<u64>,
    replay: Buffer<u32>,
    slots: u32,
    rows: u32,
}

/// Lets kernels on a stream write borders while it lives.
struct Stamping<'a>(&'a Border);

impl Drop for Stamping<'_> {
    fn drop(&mut self) {
        self.0.set_kernel(None);
    }
}

/// Threads of the kernel that ends a replay.
const END_THREADS: u32 = 128;

impl Stamps {
    fn new(device: &Device, kernels: &Kernels, capacity: StampCapacity) -> Result<Self, CudaError> {
        let slots = capacity.stages.max(1).saturating_mul(2);
        // A power of two, so that the rows stay in turn when the count of replays wraps around.
        let rows = capacity.replays.clamp(1, 1 << 20).next_power_of_two();
        let mut borders = device.allocate(slots as usize)?;
        let mut ring = device.allocate(slots as usize * rows as usize)?;
        let mut replay = device.allocate(1)?;
        borders.zero()?;
        ring.zero()?;
        replay.zero()?;
        device.stream().synchronise()?;
        let (stamp, end_replay) = (kernels.stamp.clone(), kernels.end_replay.clone());
        Ok(Self { stamp, end_replay, borders, ring, replay, slots, rows })
    }

    fn begin<'a>(&self, border: &'a Border) -> Stamping<'a> {
        border.set_kernel(Some(self.stamp.clone()));
        Stamping(border)
    }

    /// Ends a replay with this number of borders, of which it writes the one with the number `last` itself.
    fn end_replay(&self, stream: &Stream, [used, last]: [u32; 2]) -> Done {
        let launch = Launch::new(stream, "ending a replay").read(&self.borders, used).with_all([used, last]);
        let launch = launch.read(&self.ring, area(self.slots, self.rows)).read(&self.replay, 1_u32);
        launch.with_all([self.slots, self.rows]).run(&self.end_replay, Shape::line(1, END_THREADS))
    }
}

impl StampedGraph {
    /// Captures a step whose stages it names. See [`Graph::capture`].
    pub fn capture(
        device: &Device,
        kernels: &Kernels,
        stream: &Stream,
        capacity: StampCapacity,
        step: impl FnOnce(&Stamper) -> Done,
    ) -> Result<Self, CudaError> {
        let stamps = Stamps::new(device, kernels, capacity)?;
        let stamper = Stamper::new(stream.border(), stamps.borders.pointer(), stamps.slots);
        let stamping = stamps.begin(stream.border());
        let graph = Graph::capture(stream, || {
            step(&stamper)?;
            let ends = stamper.finish()?;
            stamps.end_replay(stream, ends)
        })?;
        drop(stamping);
        let stages = stamper.stages();
        let inner = stages.iter().map(|stage| InnerStage { name: stage.name.clone(), place: stage.place }).collect();
        Ok(Self { graph, stamps, stages, read_until: 0, inner, launched: VecDeque::new() })
    }

    /// The stages, in the order they begin.
    pub fn stages(&self) -> &[StampedStage] {
        &self.stages
    }

    /// The graph, stamps included.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The number of the replay that is launched next, for the field [`REPLAY`](laptime_trace::replays::REPLAY) of its
    /// span.
    pub fn next_number(&mut self) -> u64 {
        let number = LAST_REPLAY.fetch_add(1, Relaxed) + 1;
        self.launched.push_back(number);
        number
    }

    /// Whether a replay was launched by its number and not read.
    pub fn has_unread(&self) -> bool {
        !self.launched.is_empty()
    }

    /// Whether half of the replays that are stored were not read.
    pub fn is_half_full(&self) -> bool {
        self.launched.len() >= self.stamps.rows as usize / 2
    }

    /// Whether the next replay writes over one that was not read.
    pub fn is_full(&self) -> bool {
        self.launched.len() >= self.stamps.rows as usize
    }

    /// Reads the replays since the last time, by the numbers that [`StampedGraph::next_number`] gave. Waits for the
    /// device.
    pub fn read_numbered(&mut self, device: &Device) -> Result<GraphReplays, CudaError> {
        let Replays { replays, lost } = self.read(device)?;
        Ok(numbered(replays, lost, &mut self.launched, &self.inner))
    }

    /// Reads the replays since the last time. Waits for the device.
    pub fn read(&mut self, device: &Device) -> Result<Replays, CudaError> {
        device.synchronise()?;
        let count = self.stamps.replay.read()?.first().copied().unwrap_or(0);
        let ring = self.stamps.ring.read()?;
        let replays = replays(&ring, self.stamps.slots, [self.read_until, count], &self.stages);
        self.read_until = count;
        Ok(replays)
    }
}

/// Takes the replays from one number until before another out of the ring. Counts wrap around, as they do on the device.
fn replays(ring: &[u64], slots: u32, [from, until]: [u32; 2], stages: &[StampedStage]) -> Replays {
    let rows = (ring.len() / slots.max(1) as usize) as u32;
    let wanted = until.wrapping_sub(from);
    let kept = wanted.min(rows);
    let replays = (0..kept).rev().map(|back| {
        let number = until.wrapping_sub(back).wrapping_sub(1);
        let row = (number % rows.max(1)) as usize * slots as usize;
        let slot = |slot: u32| ring.get(row + slot as usize).copied().unwrap_or(0);
        Replay { number, spans: stages.iter().map(|stage| (slot(stage.begin), slot(stage.end))).collect() }
    });
    Replays { replays: replays.collect(), lost: wanted - kept }
}

/// The replays with the numbers of their launches, which were in the same order.
fn numbered(replays: Vec<Replay>, lost: u32, launched: &mut VecDeque<u64>, stages: &Arc<[InnerStage]>) -> GraphReplays {
    launched.drain(..launched.len().min(lost as usize));
    let stretch = |&(start_ns, end_ns): &(u64, u64)| Stretch { start_ns, end_ns };
    let numbered = replays.iter().zip(launched.drain(..launched.len().min(replays.len())));
    let replays = numbered.map(|(replay, number)| GraphReplay {
        number,
        stages: Arc::clone(stages),
        times: replay.spans.iter().map(stretch).collect(),
    });
    GraphReplays { replays: replays.collect(), lost: u64::from(lost) }
}

/// The device's global timer at a moment that the host knows within limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimerAnchor {
    /// Host clock before and after.
    pub host: DeviceAnchor,
    /// The timer, in nanoseconds.
    pub nanos: u64,
}

impl TimerAnchor {
    /// Reads the timer on an idle device. Waits for it.
    pub fn take(device: &Device, kernels: &Kernels) -> Result<Self, CudaError> {
        let stream: &Arc<Stream> = device.stream();
        let mut reading = device.allocate(1)?;
        stream.synchronise()?;
        let before = laptime_probe::now();
        kernels.timer_readings(stream, &mut reading)?;
        stream.synchronise()?;
        let after = laptime_probe::now();
        let nanos = reading.read()?.first().copied().unwrap_or(0);
        Ok(Self { host: DeviceAnchor { before, after }, nanos })
    }

    /// A time of the timer relative to this anchor.
    pub fn moment(&self, nanos: u64) -> DeviceMoment {
        DeviceMoment { anchor: self.host, nanos: nanos.wrapping_sub(self.nanos) as i64 }
    }
}

#[cfg(test)]
mod tests {
    use laptime_probe::Ticks;

    use super::*;

    fn stage(name: &str, depth: u32, begin: u32, end: u32) -> StampedStage {
        StampedStage { name: name.to_owned(), depth, place: None, begin, end }
    }

    #[test]
    fn replays_have_the_numbers_of_their_launches_and_lost_ones_keep_theirs() {
        let replay = |number: u32| Replay { number, spans: vec![(u64::from(number), u64::from(number) + 5)] };
        let stages: Arc<[InnerStage]> = [InnerStage { name: "layer".to_owned(), place: None }].into();
        let mut launched = VecDeque::from([10, 12, 15, 16]);
        let found = numbered(vec![replay(1), replay(2)], 1, &mut launched, &stages);
        assert_eq!(found.lost, 1);
        assert_eq!(found.replays.iter().map(|replay| replay.number).collect::<Vec<_>>(), [12, 15]);
        assert_eq!(found.replays[1].times, [Stretch { start_ns: 2, end_ns: 7 }]);
        assert_eq!(launched, [16]);
    }

    #[test]
    fn each_replay_has_a_row_of_the_ring() {
        let stages = [stage("layer", 0, 0, 1), stage("attention", 1, 2, 3)];
        let ring = [10, 40, 20, 30, 110, 140, 120, 130];
        assert_eq!(
            replays(&ring, 4, [0, 2], &stages),
            Replays {
                replays: vec![
                    Replay { number: 0, spans: vec![(10, 40), (20, 30)] },
                    Replay { number: 1, spans: vec![(110, 140), (120, 130)] },
                ],
                lost: 0,
            }
        );
    }

    #[test]
    fn replays_that_were_written_over_are_counted() {
        let stages = [stage("layer", 0, 0, 1)];
        let found = replays(&[50, 60, 30, 40], 2, [0, 5], &stages);
        assert_eq!(found.lost, 3);
        assert_eq!(found.replays.iter().map(|replay| replay.number).collect::<Vec<_>>(), [3, 4]);
        assert_eq!(found.replays[0].spans, [(30, 40)]);
    }

    #[test]
    fn counts_that_wrapped_around_stay_in_turn() {
        let stages = [stage("layer", 0, 0, 1)];
        let found = replays(&[50, 60, 30, 40], 2, [u32::MAX, 1], &stages);
        assert_eq!(found.replays.iter().map(|replay| replay.number).collect::<Vec<_>>(), [u32::MAX, 0]);
        assert_eq!(found.replays[0].spans, [(30, 40)]);
    }

    #[test]
    fn a_time_of_the_timer_is_reported_from_the_anchor() {
        let host = DeviceAnchor { before: Ticks(1), after: Ticks(2) };
        let anchor = TimerAnchor { host, nanos: 1_000 };
        assert_eq!(anchor.moment(900).nanos, -100);
        assert_eq!(anchor.moment(1_500).nanos, 500);
    }
}
