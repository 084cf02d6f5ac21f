//! The thread that copies layers, in the order of requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::{model::Layer, number::Number};
use super::file::LayerFile;
use crate::{Done, Marks, ModelError, error::ensure, marks::stage_mark};

pub struct Request<T> {
    pub direction: Direction,
    pub layer: usize,
    pub pass: u64,
    pub buffer: Box<Layer<T>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the file.
    In,
    /// Back to it.
    Back,
}

pub struct Copied<T> {
    pub request: Request<T>,
    pub copy_ns: f64,
    pub outcome: Done,
}

pub struct Copier<T> {
    requests: Option<Sender<Request<T>>>,
    copied: Receiver<Copied<T>>,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

pub struct Copying {
    pub file: LayerFile,
    pub link: Link,
    pub bytes: u64,
    /// Marks on the lane of the copies, if they have one.
    pub marks: Marks,
}

impl<T: Number> Copier<T> {
    pub fn start(mut copying: Copying) -> Result<Self, ModelError> {
        let (requests, received) = channel::<Request<T>>();
        let (answer, copied) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let work = move || {
            for request in received {
                if over.load(Relaxed) || answer.send(copying.copy(request, &over)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("layer copies".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| ModelError::Refused(format!("cannot start the copying thread: {error}")))?;
        Ok(Self { requests: Some(requests), copied, is_over, thread: Some(thread) })
    }

    pub fn send(&self, request: Request<T>) -> Done {
        self.requests.as_ref().and_then(|requests| requests.send(request).ok()).ok_or_else(has_ended)
    }

    pub fn wait(&self) -> Result<Copied<T>, ModelError> {
        self.copied.recv().map_err(|_| has_ended())
    }
}

impl<T> Drop for Copier<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        drop(self.requests.take());
        if let Some(thread) = self.thread.take() {
            // It may be asleep.
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Copying {
    fn copy<T: Number>(&mut self, mut request: Request<T>, is_over: &AtomicBool) -> Copied<T> {
        let (layer, bytes, is_in) = (request.layer, self.bytes, request.direction == Direction::In);
        let began = Instant::now();
        let _stage = is_in.then(|| {
            stage_mark!(self.marks, Pipeline, "layer_copy", layer = layer, forward = request.pass, bytes = bytes)
        });
        let outcome = match is_in {
            true => self.file.get(layer, &mut request.buffer.bytes_mut(), is_over),
            false => self.file.put(layer, &request.buffer.bytes()),
        };
        self.link.hold(bytes, began, is_over);
        Copied { request, copy_ns: nanos(began), outcome }
    }
}

pub fn nanos(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e9
}

fn has_ended() -> ModelError {
    ModelError::Refused("the thread that copies layers has ended".to_owned())
}

/// A sleep ends late by about this much, so the rest of a wait spins.
const AWAKE: Duration = Duration::from_micros(100);

/// A link with this bandwidth in GB/s, or unlimited.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link(Option<f64>);

impl Link {
    pub fn new(gbps: Option<f64>) -> Result<Self, ModelError> {
        let is_valid = gbps.is_none_or(|speed| speed.is_finite() && speed > 0.0);
        ensure!(is_valid, "`{}` GB/s is not a bandwidth: expected a positive number", gbps.unwrap_or_default());
        Ok(Self(gbps))
    }

    /// The remaining time of a copy at the bandwidth of the link.
    pub fn rest(self, bytes: u64, passed: Duration) -> Duration {
        let Some(gbps) = self.0 else { return Duration::ZERO };
        let least = Duration::try_from_secs_f64(bytes as f64 / (gbps * 1e9)).unwrap_or(Duration::MAX);
        least.saturating_sub(passed)
    }

    /// Waits until a copy has taken its time, or is no longer needed.
    pub fn hold(self, bytes: u64, began: Instant, is_over: &AtomicBool) {
        loop {
            let rest = self.rest(bytes, began.elapsed());
            if rest.is_zero() || is_over.load(Relaxed) {
                return;
            }
            match rest.checked_sub(AWAKE).filter(|sleep| !sleep.is_zero()) {
                // Dropping the copier unparks this thread.
                Some(sleep) => thread::park_timeout(sleep),
                None => std::hint::spin_loop(),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Dtype, cpu::model::layer_bytes};

    #[test]
    fn a_running_copy_is_abandoned_when_the_copier_is_dropped() {
        let config = Config::from_preset("tiny").unwrap();
        let (home, bytes) = (tempfile::tempdir().unwrap(), layer_bytes(&config, Dtype::F32));
        let mut file = LayerFile::create(home.path(), bytes).unwrap();
        file.append(&Layer::<f32>::blank(&config, None).unwrap().bytes()).unwrap();
        // A copy over this link takes years.
        let link = Link::new(Some(1e-12)).unwrap();
        let copier = Copier::start(Copying { file, link, bytes, marks: Marks::default() }).unwrap();
        for pass in 0..2 {
            let buffer = Box::new(Layer::<f32>::blank(&config, None).unwrap());
            copier.send(Request { direction: Direction::In, layer: 0, pass, buffer }).unwrap();
        }
        drop(copier);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_copy_takes_its_bytes_over_the_bandwidth() {
        let link = Link::new(Some(2.0)).unwrap();
        let nanos = |bytes, passed| link.rest(bytes, Duration::from_nanos(passed)).as_nanos();
        assert_eq!((nanos(4000, 0), nanos(4000, 500), nanos(4000, 2000), nanos(4000, 9000)), (2000, 1500, 0, 0));
        assert_eq!(Link::new(None).unwrap().rest(u64::MAX, Duration::ZERO), Duration::ZERO);
        let slowest = Link::new(Some(f64::MIN_POSITIVE)).unwrap();
        assert_eq!(slowest.rest(u64::MAX, Duration::ZERO), Duration::MAX);
    }

    #[test]
    fn an_invalid_bandwidth_is_refused() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Link::new(Some(speed)).unwrap_err().to_string();
            assert_eq!(error, format!("`{speed}` GB/s is not a bandwidth: expected a positive number"));
        }
    }

    #[test]
    fn a_copy_that_is_no_longer_needed_is_not_waited_for() {
        let slowest = Link::new(Some(1e-9)).unwrap();
        slowest.hold(u64::MAX, Instant::now(), &AtomicBool::new(true));
    }
}
