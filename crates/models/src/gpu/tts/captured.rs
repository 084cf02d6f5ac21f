//! Parts of a frame that are replayed as graphs, plain or with stamps where their inner stages begin.

// Graphs keep addresses of buffers, which the engine holds as long as it lives.
#![allow(unsafe_code)]

use laptime_cuda::{CudaError, Device, Done, Graph, Kernels, Room, StampedGraph, Stream};
use laptime_trace::run::Depth;

use super::super::size;
use crate::tts::{Border, TtsOptions, unmarked};
use crate::{GraphMode, Marks, ModelError};

/// Replays whose stamps are kept until they are read.
const REPLAYS: u32 = 1024;

/// Whether graphs are captured with stamps: where the stages inside a frame are asked for, and no single operation.
pub fn is_stamped(options: &TtsOptions) -> bool {
    options.graph != GraphMode::Off && options.marks.depth == Depth::Layer
}

/// Whether graphs are captured. The operations inside a frame cannot be marked in a graph.
pub fn wants_graphs(options: &TtsOptions) -> Result<bool, ModelError> {
    let is_deep = options.marks.depth > Depth::Layer;
    match options.graph {
        GraphMode::On if is_deep => {
            let reason = "the operations inside a frame are marked, so its kernels are launched one by one";
            Err(ModelError::Refused(format!("there is no graph: {reason}")))
        }
        mode => Ok(mode != GraphMode::Off && !is_deep),
    }
}

pub fn marks_inside(options: &TtsOptions) -> Marks {
    let mut marks = options.marks.clone();
    if is_stamped(options) {
        marks.depth = Depth::Pipeline;
    }
    marks
}

pub enum Captured {
    Plain(Graph),
    Stamped(Box<StampedGraph>),
}

impl Captured {
    /// Captures what `launch` puts on the stream; stamped with at most this many stages, if there are kernels for it.
    pub fn new(
        device: &Device,
        stamps: Option<&Kernels>,
        stages: usize,
        mut launch: impl FnMut(Border<'_, CudaError>) -> Done,
    ) -> Result<Self, CudaError> {
        let stream = device.stream();
        let captured = match stamps {
            None => Self::Plain(Graph::capture(stream, || launch(&mut unmarked))?),
            Some(kernels) => {
                let room = Room { stages: size(stages)?, replays: REPLAYS };
                let stamped = StampedGraph::capture(device, kernels, stream, room, |stamper| {
                    launch(&mut |name, place| {
                        let place = place.map(|(what, number)| size(number).map(|number| (what, number)));
                        stamper.border(name, place.transpose()?)
                    })
                })?;
                Self::Stamped(Box::new(stamped))
            }
        };
        captured.graph().upload(stream)?;
        Ok(captured)
    }

    fn graph(&self) -> &Graph {
        match self {
            Self::Plain(graph) => graph,
            Self::Stamped(stamped) => stamped.graph(),
        }
    }

    /// The number by which the span of the next replay is known, where it is stamped.
    pub fn next_number(&mut self, device: &Device) -> Result<Option<u64>, CudaError> {
        match self {
            Self::Plain(_) => Ok(None),
            Self::Stamped(stamped) => {
                if stamped.is_full() {
                    device.keep_replays(stamped.read_numbered(device)?);
                }
                Ok(Some(stamped.next_number()))
            }
        }
    }

    /// Puts a replay on the stream.
    ///
    /// # Safety
    ///
    /// As for [`Graph::launch`].
    pub unsafe fn launch(&self, stream: &Stream) -> Done {
        // SAFETY: the caller answers for it.
        unsafe { self.graph().launch(stream) }
    }

    pub fn hand_on(&mut self, device: &Device) -> Done {
        if let Self::Stamped(stamped) = self {
            device.keep_replays(stamped.read_numbered(device)?);
        }
        Ok(())
    }
}
