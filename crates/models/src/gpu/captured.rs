//! Work replayed as a graph: plain, and with time stamps at the ends of its stages for recordings.

// Graphs keep addresses of buffers, which their owners keep as long as the graphs.
#![allow(unsafe_code)]

use std::sync::Arc;

use laptime_cuda::{Cache, CudaError, Device, Graph, Kernels, StampCapacity, StampedGraph, Stream};
use laptime_probe::recording;
use laptime_trace::run::Depth;

use super::size;
use crate::{Done, Marks, ModelError};

/// The most replays whose stamps are kept until they are read.
const MOST_REPLAYS: usize = 1024;

/// The most stages kept, over all replays: their stamps take 4 MiB.
const KEPT_STAGES: usize = 1 << 18;

/// Work as a graph, and a second time with stamps if stages inside it are marked.
pub struct Captured {
    plain: Graph,
    stamped: Option<StampedGraph>,
    /// The number of the next replay, if its stages are recorded.
    announced: Option<u64>,
}

impl Captured {
    /// Captures what `launch` enqueues. It is called with no marks and, if the marks go deeper than passes, again with
    /// names for at most this number of stages.
    pub fn new(
        device: &Device,
        marks: &Marks,
        stages: usize,
        mut launch: impl FnMut(Marks) -> Done,
    ) -> Result<Self, ModelError> {
        let stream = device.stream();
        let unmarked = || Marks { embedding: marks.embedding, ..Marks::default() };
        let plain = Graph::capture(stream, || launch(unmarked()).map_err(of_capture))?;
        plain.upload(stream)?;
        let is_marked = marks.depth > Depth::Pipeline;
        let stamped = if is_marked { Some(stamp(device, marks, stages, &mut launch)?) } else { None };
        Ok(Self { plain, stamped, announced: None })
    }

    /// The number of kernels and copies of a replay without stamps.
    pub fn nodes(&self) -> usize {
        self.plain.nodes()
    }

    /// The number of the next replay, for its span, if its stages are recorded.
    pub fn next_number(&mut self, device: &Device) -> Result<Option<u64>, ModelError> {
        let Some(stamped) = self.stamped.as_mut().filter(|_| recording()) else { return Ok(None) };
        if self.announced.is_none() {
            if stamped.is_full() {
                device.keep_replays(stamped.read(device)?);
            }
            self.announced = Some(stamped.next_number());
        }
        Ok(self.announced)
    }

    /// Enqueues a replay, with stamps if its number was requested.
    ///
    /// # Safety
    ///
    /// As for [`Graph::launch`].
    pub unsafe fn launch(&mut self, stream: &Stream) -> Done {
        let stamped = self.stamped.as_ref().filter(|_| self.announced.is_some());
        let graph = stamped.map_or(&self.plain, StampedGraph::graph);
        self.announced = None;
        // SAFETY: as the caller ensures.
        Ok(unsafe { graph.launch(stream) }?)
    }

    /// Hands the recorded stages to the device, which keeps them for the trace. Waits for the device if there are some.
    pub fn hand_on(&mut self, device: &Device) -> Done {
        if let Some(stamped) = self.stamped.as_mut().filter(|stamped| stamped.has_unread()) {
            device.keep_replays(stamped.read(device)?);
        }
        Ok(())
    }

    /// The same once half of the stamps are in use. For places where waiting disturbs no measurement.
    pub fn hand_on_if_half_full(&mut self, device: &Device) -> Done {
        if self.stamped.as_ref().is_some_and(StampedGraph::is_half_full) { self.hand_on(device) } else { Ok(()) }
    }
}

fn of_capture(error: ModelError) -> CudaError {
    match error {
        ModelError::Cuda(error) => error,
        other => CudaError::refused("capturing a graph", 0, other.to_string()),
    }
}

fn stamp(
    device: &Device,
    marks: &Marks,
    stages: usize,
    launch: &mut impl FnMut(Marks) -> Done,
) -> Result<StampedGraph, ModelError> {
    let (stream, kernels) = (device.stream(), Kernels::load(device, &Cache::of_user())?);
    let replays = (KEPT_STAGES / stages.max(1)).clamp(1, MOST_REPLAYS);
    let capacity = StampCapacity { stages: size(stages)?, replays: size(replays)? };
    let stamped = StampedGraph::capture(device, &kernels, stream, capacity, |stamper| {
        launch(Marks { names: Some(Arc::new(stamper.clone())), lane: None, ..marks.clone() }).map_err(of_capture)
    })?;
    stamped.graph().upload(stream)?;
    Ok(stamped)
}

/// The most stages in a step of a decoder with this number of layers: each layer, its two blocks and their operations,
/// and what comes before and after the layers.
pub fn most_stages(layers: usize, marks: &Marks) -> usize {
    let of_layer = if marks.depth > Depth::Layer { 12 } else { 3 };
    layers.saturating_mul(of_layer).saturating_add(8)
}
