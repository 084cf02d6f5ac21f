//! CUDA events of one stream, for the event clock.
#![allow(unsafe_code)]

use std::{sync::Arc, time::Instant};

use crate::clock::{Events, HostTime, Reached};
use crate::{context::driver, moment::Moment, stream::Stream};

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
    type Event = Arc<Moment>;

    fn record(&self, reused: Option<Arc<Moment>>) -> Option<Arc<Moment>> {
        self.stream.context.bind().ok()?;
        // An event recorded during graph capture becomes part of the graph and has no time.
        if self.stream.is_capturing() {
            return None;
        }
        let event = reused.or_else(|| Moment::of(&self.stream.context).ok().map(Arc::new))?;
        driver!("recording an event", cuEventRecord(event.raw, self.stream.raw())).ok().map(|()| event)
    }

    fn reached(&self, event: &Arc<Moment>) -> Reached {
        match event.is_reached() {
            Ok(true) => Reached::Yes,
            Ok(false) => Reached::NotYet,
            Err(_) => Reached::Never,
        }
    }

    fn nanos_between(&self, from: &Arc<Moment>, to: &Arc<Moment>) -> Option<i64> {
        Some(to.nanos_since(from).ok()?.round() as i64)
    }

    fn is_idle(&self) -> bool {
        self.stream.is_idle()
    }

    fn host_time(&self) -> HostTime {
        HostTime { ticks: laptime_probe::now(), nanos: self.began.elapsed().as_nanos() as u64 }
    }
}
