//! CUDA events, which other streams wait for and which measure time.
#![allow(unsafe_code)]

use std::{ptr, sync::Arc};

use cudarc::driver::sys;

use crate::context::{Context, bound, driver};
use crate::error::{CudaError, Done};
use crate::{device::Device, stream::Stream};

/// Creates an event in the bound context.
pub(crate) fn new_event(flags: sys::CUevent_flags) -> Result<sys::CUevent, CudaError> {
    let mut event = ptr::null_mut();
    driver!("creating an event", cuEventCreate(&mut event, flags as u32)).map(|()| event)
}

/// An event of a stream: reached once all earlier work on the stream is done. It can be recorded repeatedly; a wait is for the
/// last recording before it.
#[derive(Debug)]
pub struct Moment {
    context: Arc<Context>,
    pub(crate) raw: sys::CUevent,
}

// SAFETY: events may be used from any thread; the driver locks.
unsafe impl Send for Moment {}
// SAFETY: as above.
unsafe impl Sync for Moment {}

impl Moment {
    /// An event that was not recorded yet counts as reached, and has no time.
    pub fn new(device: &Device) -> Result<Self, CudaError> {
        Self::of(device.context())
    }

    pub(crate) fn of(context: &Arc<Context>) -> Result<Self, CudaError> {
        context.bind()?;
        Ok(Self { raw: new_event(sys::CUevent_flags::CU_EVENT_DEFAULT)?, context: Arc::clone(context) })
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
            answered => crate::error::check("querying an event", answered).map(|()| true),
        }
    }

    /// Nanoseconds since an earlier event. Both must have been reached.
    pub fn nanos_since(&self, earlier: &Self) -> Result<f64, CudaError> {
        self.context.bind()?;
        let mut millis = 0_f32;
        driver!("reading the time between two events", cuEventElapsedTime_v2(&mut millis, earlier.raw, self.raw))?;
        Ok(f64::from(millis) * 1e6)
    }
}

impl Drop for Moment {
    fn drop(&mut self) {
        let _ = bound!(self.context, "destroying an event", cuEventDestroy_v2(self.raw));
    }
}

impl Stream {
    /// Makes all later work on this stream wait for an event of another.
    pub fn wait_until(&self, moment: &Moment) -> Done {
        bound!(self.context, "waiting for an event", cuStreamWaitEvent(self.raw(), moment.raw, 0))
    }
}
