//! Streams: in-order work queues.
#![allow(unsafe_code)]

use std::ptr;
use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use bytemuck::Pod;
use cudarc::driver::sys;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::kernel::{Kernel, Shape};
use crate::launch::Launch;
use crate::moment::new_event;

/// A stream that does not synchronise with the null stream.
#[derive(Debug)]
pub struct Stream {
    pub(crate) context: Arc<Context>,
    raw: sys::CUstream,
    is_ours: bool,
    boundary: Arc<Boundary>,
}

/// Where the next kernel on a stream writes a timestamp, while a stamped graph is captured.
#[derive(Debug, Default)]
pub(crate) struct Boundary {
    /// An address on the device; 0 if there is nothing to write.
    address: AtomicU64,
    /// Writes the timestamp before work that does not do so itself.
    stamp: Mutex<Option<Kernel>>,
}

impl Boundary {
    /// Takes the address, so that only one kernel writes to it; 0 if there is none.
    pub fn take(&self) -> u64 {
        match self.address.load(Relaxed) {
            0 => 0,
            _ => self.address.swap(0, Relaxed),
        }
    }

    /// Whether nothing was launched since the last boundary.
    pub fn is_open(&self) -> bool {
        self.address.load(Relaxed) != 0
    }

    /// Lets the next kernel write to an address.
    pub fn set(&self, address: u64) {
        self.address.store(address, Relaxed);
    }

    /// Begins or ends a stamped capture.
    pub fn set_kernel(&self, stamp: Option<Kernel>) {
        self.set(0);
        *self.stamp.lock().unwrap_or_else(PoisonError::into_inner) = stamp;
    }

    fn kernel(&self) -> Option<Kernel> {
        self.stamp.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

// SAFETY: streams may be used from any thread; the driver locks.
unsafe impl Send for Stream {}
// SAFETY: as above.
unsafe impl Sync for Stream {}

impl Stream {
    pub(crate) fn new(context: Arc<Context>) -> Result<Self, CudaError> {
        let mut raw = ptr::null_mut();
        let flags = sys::CUstream_flags::CU_STREAM_NON_BLOCKING as u32;
        bound!(context, "creating a stream", cuStreamCreate(&mut raw, flags))?;
        Ok(Self { context, raw, is_ours: true, boundary: Arc::default() })
    }

    /// Wraps another library's stream of the same device.
    ///
    /// # Safety
    ///
    /// `raw` is a stream of the device's primary context and outlives the result.
    pub unsafe fn of_others(device: &crate::Device, raw: sys::CUstream) -> Self {
        Self { context: Arc::clone(device.context()), raw, is_ours: false, boundary: Arc::default() }
    }

    /// The driver's handle.
    pub fn raw(&self) -> sys::CUstream {
        self.raw
    }

    pub(crate) fn boundary(&self) -> &Arc<Boundary> {
        &self.boundary
    }

    /// Writes the timestamp of a boundary with a separate kernel, before work that does not write it itself.
    pub(crate) fn stamp_boundary(&self) -> Done {
        let address = self.boundary.take();
        match (address != 0).then(|| self.boundary.kernel()).flatten() {
            Some(stamp) => Launch::new(self, "stamping").with(address).run(&stamp, Shape::ONE),
            None => Ok(()),
        }
    }

    /// Copies host memory to the device. Pinned memory is read asynchronously.
    pub(crate) fn copy_in<T: Pod>(&self, to: sys::CUdeviceptr, from: &[T]) -> Done {
        let (from, bytes) = (from.as_ptr().cast(), size_of_val(from));
        bound!(self.context, "copying to the device", cuMemcpyHtoDAsync_v2(to, from, bytes, self.raw))
    }

    /// Copies device memory to the host. Pinned memory is written asynchronously.
    pub(crate) fn copy_out<T: Pod>(&self, from: sys::CUdeviceptr, to: &mut [T]) -> Done {
        let (to, bytes) = (to.as_mut_ptr().cast(), size_of_val(to));
        bound!(self.context, "copying from the device", cuMemcpyDtoHAsync_v2(to, from, bytes, self.raw))
    }

    /// Waits until all work on the stream is done.
    pub fn synchronise(&self) -> Done {
        bound!(self.context, "synchronising a stream", cuStreamSynchronize(self.raw))
    }

    /// Whether all work on the stream is done. False on errors.
    pub fn is_idle(&self) -> bool {
        self.context.bind().is_ok() && driver!("querying a stream", cuStreamQuery(self.raw)).is_ok()
    }

    /// Whether the stream is being captured into a graph.
    pub fn is_capturing(&self) -> bool {
        let mut status = sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE;
        let asked = driver!("querying a stream", cuStreamIsCapturing(self.raw, &mut status));
        asked.is_ok() && status != sys::CUstreamCaptureStatus::CU_STREAM_CAPTURE_STATUS_NONE
    }

    /// Makes later work on this stream wait for the current work on the other.
    pub fn wait_for(&self, other: &Self) -> Done {
        self.context.bind()?;
        let event = new_event(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)?;
        let waited = driver!("recording an event", cuEventRecord(event, other.raw))
            .and_then(|()| driver!("waiting for an event", cuStreamWaitEvent(self.raw, event, 0)));
        // The driver keeps the event while it is needed.
        waited.and(driver!("destroying an event", cuEventDestroy_v2(event)))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if self.is_ours && self.context.bind().is_ok() {
            let _ = driver!("destroying a stream", cuStreamDestroy_v2(self.raw));
        }
    }
}
