//! Reads clocks, power and throttling of the GPUs while the program runs.

use std::time::Duration;

use laptime_capture::control::Control;

use super::observer::{IsDone, Observer};

/// A reading takes about a millisecond per GPU.
#[cfg_attr(not(feature = "cuda"), allow(dead_code))]
const PERIOD: Duration = Duration::from_millis(200);

/// A reading of one GPU.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Reading {
    pub host_ns: u64,
    /// The PCI bus address.
    pub bus: String,
    pub sm_mhz: Option<u32>,
    pub power_mw: Option<u32>,
    pub celsius: Option<u32>,
    /// Thermal or power throttling.
    pub is_throttled: bool,
}

/// Starts to read all GPUs. Reads nothing while recording is off.
pub fn start(control: Control) -> Observer<Vec<Reading>> {
    Observer::start(move |is_done| read_until(is_done, control))
}

#[cfg(feature = "cuda")]
fn read_until(is_done: IsDone<'_>, control: Control) -> Vec<Reading> {
    let cards = laptime_cuda::nvml::Card::all();
    let mut found = Vec::new();
    while !cards.is_empty() && !is_done() {
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
        std::thread::park_timeout(PERIOD);
    }
    found
}

#[cfg(not(feature = "cuda"))]
fn read_until(_: IsDone<'_>, _: Control) -> Vec<Reading> {
    Vec::new()
}
