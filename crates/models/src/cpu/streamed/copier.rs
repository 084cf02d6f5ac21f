//! The thread that copies layers, one after another, in the order in which it is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::super::{model::Layer, number::Number};
use super::file::LayerFile;
use crate::{Marks, ModelError, marks::stage_mark};

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

pub struct Done<T> {
    pub order: Request<T>,
    pub copy_ns: f64,
    pub outcome: Result<(), ModelError>,
}

pub struct Copier<T> {
    orders: Option<Sender<Request<T>>>,
    done: Receiver<Done<T>>,
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
        let (orders, asked) = channel::<Request<T>>();
        let (answer, done) = channel();
        let is_over = Arc::new(AtomicBool::new(false));
        let over = Arc::clone(&is_over);
        let work = move || {
            for order in asked {
                if over.load(Relaxed) || answer.send(copying.copy(order, &over)).is_err() {
                    return;
                }
            }
        };
        let thread = thread::Builder::new().name("layer copies".to_owned()).spawn(work);
        let thread =
            thread.map_err(|error| ModelError::Refused(format!("cannot start the copying thread: {error}")))?;
        Ok(Self { orders: Some(orders), done, is_over, thread: Some(thread) })
    }

    pub fn ask(&self, order: Request<T>) -> Result<(), ModelError> {
        match &self.orders {
            Some(orders) if orders.send(order).is_ok() => Ok(()),
            _ => Err(has_ended()),
        }
    }

    pub fn wait(&self) -> Result<Done<T>, ModelError> {
        self.done.recv().map_err(|_| has_ended())
    }
}

impl<T> Drop for Copier<T> {
    fn drop(&mut self) {
        self.is_over.store(true, Relaxed);
        drop(self.orders.take());
        if let Some(thread) = self.thread.take() {
            // It may be asleep.
            thread.thread().unpark();
            let _ = thread.join();
        }
    }
}

impl Copying {
    fn copy<T: Number>(&mut self, mut order: Request<T>, is_over: &AtomicBool) -> Done<T> {
        let (layer, bytes, is_in) = (order.layer, self.bytes, order.direction == Direction::In);
        let began = Instant::now();
        // Nothing is said of pinned memory: the layer comes from a file.
        let _stage = is_in.then(|| {
            stage_mark!(self.marks, Pipeline, "layer_copy", layer = layer, forward = order.pass, bytes = bytes)
        });
        let outcome = match is_in {
            true => self.file.get(layer, &mut order.buffer.bytes_mut(), is_over),
            false => self.file.put(layer, &order.buffer.bytes()),
        };
        self.link.hold(bytes, began, is_over);
        Done { order, copy_ns: nanos(began), outcome }
    }
}

pub fn nanos(began: Instant) -> f64 {
    began.elapsed().as_secs_f64() * 1e9
}

fn has_ended() -> ModelError {
    ModelError::Refused("the thread that copies layers has ended".to_owned())
}

/// A sleep ends late by about this much, so that the last bit is waited out awake.
const AWAKE: Duration = Duration::from_micros(100);

/// A link with this bandwidth in GB/s, or as fast as the file if none.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Link(Option<f64>);

impl Link {
    pub fn new(gbps: Option<f64>) -> Result<Self, ModelError> {
        match gbps {
            Some(speed) if !(speed.is_finite() && speed > 0.0) => {
                let reason = format!("`{speed}` GB/s is no speed of a link: it must be above 0");
                Err(ModelError::Refused(reason))
            }
            _ => Ok(Self(gbps)),
        }
    }

    /// What is left of the least time of a copy when so much of it has passed.
    pub fn rest(self, bytes: u64, passed: Duration) -> Duration {
        let Some(gbps) = self.0 else { return Duration::ZERO };
        let least = Duration::try_from_secs_f64(bytes as f64 / (gbps * 1e9)).unwrap_or(Duration::MAX);
        least.saturating_sub(passed)
    }

    /// Waits until a copy that began then has taken its least time, or until it is no longer wanted.
    pub fn hold(self, bytes: u64, began: Instant, is_over: &AtomicBool) {
        loop {
            let rest = self.rest(bytes, began.elapsed());
            if rest.is_zero() || is_over.load(Relaxed) {
                return;
            }
            match rest.checked_sub(AWAKE).filter(|sleep| !sleep.is_zero()) {
                // Whoever says that it is over wakes this thread.
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
    fn a_copy_on_its_way_is_given_up_when_nobody_wants_it() {
        let config = Config::from_preset("tiny").unwrap();
        let (home, bytes) = (tempfile::tempdir().unwrap(), layer_bytes(&config, Dtype::F32));
        let mut file = LayerFile::create(home.path(), bytes).unwrap();
        file.append(&Layer::<f32>::blank(&config, None).unwrap().bytes()).unwrap();
        // A copy over this link takes years.
        let link = Link::new(Some(1e-12)).unwrap();
        let copier = Copier::start(Copying { file, link, bytes, marks: Marks::default() }).unwrap();
        for pass in 0..2 {
            let buffer = Box::new(Layer::<f32>::blank(&config, None).unwrap());
            copier.ask(Request { direction: Direction::In, layer: 0, pass, buffer }).unwrap();
        }
        drop(copier);
        assert_eq!(std::fs::read_dir(home.path()).unwrap().count(), 0, "the file has no name");
    }

    #[test]
    fn a_copy_takes_its_bytes_by_the_speed_of_the_link() {
        let link = Link::new(Some(2.0)).unwrap();
        let nanos = |bytes, passed| link.rest(bytes, Duration::from_nanos(passed)).as_nanos();
        assert_eq!((nanos(4000, 0), nanos(4000, 500), nanos(4000, 2000), nanos(4000, 9000)), (2000, 1500, 0, 0));
        assert_eq!(Link::new(None).unwrap().rest(u64::MAX, Duration::ZERO), Duration::ZERO);
        let slowest = Link::new(Some(f64::MIN_POSITIVE)).unwrap();
        assert_eq!(slowest.rest(u64::MAX, Duration::ZERO), Duration::MAX);
    }

    #[test]
    fn what_is_no_speed_is_refused() {
        for speed in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let error = Link::new(Some(speed)).unwrap_err().to_string();
            assert_eq!(error, format!("`{speed}` GB/s is no speed of a link: it must be above 0"));
        }
    }

    #[test]
    fn a_copy_that_is_no_longer_wanted_is_not_waited_for() {
        let slowest = Link::new(Some(1e-9)).unwrap();
        slowest.hold(u64::MAX, Instant::now(), &AtomicBool::new(true));
    }
}
