//! CUDA events of one stream, for the event clock.
#![allow(unsafe_code)]

use std::{sync::Arc, time::Instant};

use cudarc::driver::sys;

use crate::clock::{Events, HostTime, Reached};
use crate::context::{bound, driver};
use crate::moment::{millis_between, new_event};
use crate::stream::Stream;

#[derive(Debug, Clone, Copy)]
pub struct Event(sys::CUevent);

// SAFETY: events may be recorded, asked and destroyed from any thread; the driver locks.
unsafe impl Send for Event {}

#[derive(Debug)]
pub struct StreamEvents {
    stream: Arc<Stream>,
    began: Instant,
}

impl StreamEvents {
    pub fn new(stream: Arc<Stream>) -> Self {
        Self { stream, began: Instant::now() }
    }
}

impl Events for StreamEvents {
    type Event = Event;

    fn record(&self, reused: Option<Event>) -> Option<Event> {
        self.stream.context.bind().ok()?;
        // An event recorded during graph capture becomes part of the graph and has no time.
        let event = if self.stream.is_capturing() {
            None
        } else {
            reused.or_else(|| new_event(sys::CUevent_flags::CU_EVENT_DEFAULT).ok().map(Event))
        };
        let recorded =
            event.filter(|event| driver!("recording an event", cuEventRecord(event.0, self.stream.raw())).is_ok());
        if let (None, Some(unused)) = (recorded.as_ref(), event.or(reused)) {
            self.destroy(unused);
        }
        recorded
    }

    fn reached(&self, event: Event) -> Reached {
        if self.stream.context.bind().is_err() {
            return Reached::Never;
        }
        // SAFETY: the event was made by `create` and not yet destroyed.
        match unsafe { sys::cuEventQuery(event.0) } {
            sys::CUresult::CUDA_SUCCESS => Reached::Yes,
            sys::CUresult::CUDA_ERROR_NOT_READY => Reached::NotYet,
            _ => Reached::Never,
        }
    }

    fn nanos_between(&self, from: Event, to: Event) -> Option<i64> {
        Some((millis_between(from.0, to.0).ok()? * 1e6).round() as i64)
    }

    fn is_idle(&self) -> bool {
        self.stream.is_idle()
    }

    fn host_time(&self) -> HostTime {
        HostTime { ticks: laptime_probe::now(), nanos: self.began.elapsed().as_nanos() as u64 }
    }

    fn destroy(&self, event: Event) {
        let _ = bound!(self.stream.context, "destroying an event", cuEventDestroy_v2(event.0));
    }
}
