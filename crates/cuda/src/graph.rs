//! Graphs: a step captured once and replayed as one launch.
#![allow(unsafe_code)]

use std::{ptr, sync::Arc};

use cudarc::driver::sys;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::stream::Stream;

/// A captured step that can be replayed.
#[derive(Debug)]
pub struct Graph {
    context: Arc<Context>,
    ready: sys::CUgraphExec,
    nodes: usize,
}

// SAFETY: a graph may be launched from any thread; the driver serialises its launches.
unsafe impl Send for Graph {}

impl Graph {
    /// Captures the work of `step` on the stream, without running it.
    ///
    /// Run the step once before: lazy module loading and first allocations cannot be captured. Calls that a capture forbids are
    /// only forbidden on this thread.
    pub fn capture(stream: &Stream, step: impl FnOnce() -> Done) -> Result<Self, CudaError> {
        stream.context.bind()?;
        let capture = Capture::begin(stream)?;
        let done = step();
        let captured = capture.end();
        // The step's error is more specific than that of the capture.
        done?;
        captured?.instantiate(&stream.context)
    }

    /// Launches a replay. Does not wait.
    ///
    /// # Safety
    ///
    /// The captured buffers and kernels must live until the replay is done.
    pub unsafe fn launch(&self, stream: &Stream) -> Done {
        bound!(self.context, "replaying a graph", cuGraphLaunch(self.ready, stream.raw()))
    }

    /// Uploads the graph to the device, so that the first replay costs the same as the others.
    pub fn upload(&self, stream: &Stream) -> Done {
        bound!(self.context, "uploading a graph", cuGraphUpload(self.ready, stream.raw()))
    }

    /// The number of nodes: kernels, copies, allocations.
    pub fn nodes(&self) -> usize {
        self.nodes
    }
}

impl Drop for Graph {
    fn drop(&mut self) {
        let _ = bound!(self.context, "destroying a graph", cuGraphExecDestroy(self.ready));
    }
}

/// A capture in progress. It ends on drop, however the step ends.
struct Capture<'a>(Option<&'a Stream>);

impl<'a> Capture<'a> {
    fn begin(stream: &'a Stream) -> Result<Self, CudaError> {
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        driver!("beginning a capture", cuStreamBeginCapture_v2(stream.raw(), mode))?;
        Ok(Self(Some(stream)))
    }

    fn end(mut self) -> Result<Captured, CudaError> {
        self.finish().unwrap_or_else(|| Err(CudaError::refused("ending a capture", 0, "it has already ended")))
    }

    fn finish(&mut self) -> Option<Result<Captured, CudaError>> {
        let stream = self.0.take()?;
        let mut graph = ptr::null_mut();
        Some(driver!("ending a capture", cuStreamEndCapture(stream.raw(), &mut graph)).map(|()| Captured(graph)))
    }
}

impl Drop for Capture<'_> {
    fn drop(&mut self) {
        self.finish();
    }
}

/// A graph that cannot be launched yet.
struct Captured(sys::CUgraph);

impl Captured {
    fn instantiate(&self, context: &Arc<Context>) -> Result<Graph, CudaError> {
        let mut nodes = 0;
        driver!("counting a graph's nodes", cuGraphGetNodes(self.0, ptr::null_mut(), &mut nodes))?;
        let mut ready = ptr::null_mut();
        driver!("instantiating a graph", cuGraphInstantiateWithFlags(&mut ready, self.0, 0))?;
        Ok(Graph { context: Arc::clone(context), ready, nodes })
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = driver!("destroying a captured graph", cuGraphDestroy(self.0));
    }
}
