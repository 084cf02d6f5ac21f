//! Clocks, power and throttling of the GPUs, read from outside the program while it runs.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use laptime_capture::control::Control;

/// The time between two readings: a reading takes about a millisecond per card.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
const PERIOD: Duration = Duration::from_millis(200);

/// A reading of one card.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    /// When, on the monotonic clock.
    pub host_ns: u64,
    /// The card's address on the bus.
    pub bus: String,
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Power drawn, in milliwatts.
    pub power_mw: Option<u32>,
    /// Temperature of the chip, in degrees Celsius.
    pub celsius: Option<u32>,
    /// Whether heat or a power limit slows it down.
    pub is_throttled: bool,
}

/// The thread that reads.
#[derive(Debug)]
pub struct Clocks {
    is_done: Arc<AtomicBool>,
    thread: JoinHandle<Vec<Reading>>,
}

impl Clocks {
    /// Starts to read every card of the machine, while something is recorded.
    pub fn start(control: Control) -> Self {
        let is_done = Arc::new(AtomicBool::new(false));
        let done = Arc::clone(&is_done);
        Self { is_done, thread: thread::spawn(move || read_until(&done, control)) }
    }

    /// Ends the reading.
    pub fn finish(self) -> Vec<Reading> {
        self.is_done.store(true, Ordering::Release);
        self.thread.thread().unpark();
        self.thread.join().unwrap_or_default()
    }
}

#[cfg(feature = "cuda")]
fn read_until(is_done: &AtomicBool, control: Control) -> Vec<Reading> {
    let cards = laptime_cuda::nvml::Card::all();
    let mut found = Vec::new();
    while !cards.is_empty() && !is_done.load(Ordering::Acquire) {
        let is_on = control.mode() != laptime_capture::control::RecordingMode::Nothing;
        for card in cards.iter().filter(|_| is_on) {
            let reading = card.read();
            found.push(Reading {
                host_ns: laptime_capture::monotonic_nanos(),
                bus: card.bus().to_owned(),
                sm_mhz: reading.sm_mhz,
                power_mw: reading.power_mw,
                celsius: reading.celsius,
                is_throttled: !reading.throttled().is_empty(),
            });
        }
        thread::park_timeout(PERIOD);
    }
    found
}

/// Without CUDA in the build there is nothing to read.
#[cfg(not(feature = "cuda"))]
fn read_until(_: &AtomicBool, _: Control) -> Vec<Reading> {
    Vec::new()
}
