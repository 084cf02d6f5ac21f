//! Stream moments: events that another stream waits for and that time is measured between.
#![allow(unsafe_code)]

use std::{ptr, sync::Arc};

use cudarc::driver::sys;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::{device::Device, stream::Stream};

/// Makes an event of the bound context.
pub(crate) fn new_event(flags: sys::CUevent_flags) -> Result<sys::CUevent, CudaError> {
    let mut event = ptr::null_mut();
    driver!("making an event", cuEventCreate(&mut event, flags as u32)).map(|()| event)
}

/// Milliseconds between two events of the bound context.
pub(crate) fn millis_between(from: sys::CUevent, to: sys::CUevent) -> Result<f64, CudaError> {
    let mut millis = 0_f32;
    driver!("reading two events", cuEventElapsedTime_v2(&mut millis, from, to)).map(|()| f64::from(millis))
}

/// A moment of a stream: reached once all earlier work on the stream is done. It can be recorded repeatedly; a wait
/// applies to the last recording before it.
#[derive(Debug)]
pub struct Moment {
    context: Arc<Context>,
    raw: sys::CUevent,
}

// SAFETY: events may be recorded, asked and destroyed from any thread; the driver locks.
unsafe impl Send for Moment {}
// SAFETY: as above.
unsafe impl Sync for Moment {}

impl Moment {
    /// A moment that was not recorded yet: it counts as reached, and has no time.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        let context = Arc::clone(device.context());
        context.bind()?;
        Ok(Self { raw: new_event(sys::CUevent_flags::CU_EVENT_DEFAULT)?, context })
    }

    /// Records it on a stream, after all existing work.
    pub fn put(&self, stream: &Stream) -> Done {
        bound!(self.context, "recording an event", cuEventRecord(self.raw, stream.raw()))
    }

    /// Whether it was reached. Does not wait.
    pub fn is_reached(&self) -> Result<bool, CudaError> {
        self.context.bind()?;
        // SAFETY: the event is this moment's own.
        match unsafe { sys::cuEventQuery(self.raw) } {
            sys::CUresult::CUDA_ERROR_NOT_READY => Ok(false),
            answered => crate::error::check("asking an event", answered).map(|()| true),
        }
    }

    /// Nanoseconds from an earlier moment to this one. Both have been reached.
    pub fn nanos_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        self.context.bind()?;
        Ok(millis_between(earlier.raw, self.raw)? * 1e6)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let _ = bound!(self.context, "destroying an event", cuEventDestroy_v2(self.raw));
    }
}

impl Stream {
    /// Makes all later work on this stream wait for a moment of another.
    pub fn wait_until(&self, moment: &Moment) -> Done {
        bound!(self.context, "waiting for an event", cuStreamWaitEvent(self.raw(), moment.raw, 0))
    }
}
