//! A second stream of a GPU, whose work does not wait for that of the first.

use std::sync::Arc;

use laptime_bench::{SwitchableClock, Timing};
use laptime_cuda::{CudaError, Device};
use laptime_probe::{DeviceClock, Lane};

/// A second stream of a GPU, with its own clock and lane.
pub struct SecondStream {
    device: Device,
    pub(super) clock: Arc<SwitchableClock>,
    lane: Lane,
}

impl SecondStream {
    /// Creates the stream with the timing of the first one.
    pub(super) fn new(name: &str, first: &Device, timing: Timing) -> Result<Self, CudaError> {
        let device = first.with_new_streams()?;
        let clock = super::clock(device.stream())?;
        clock.set(timing);
        let lane = Lane::device(&format!("{name} stream 2"), Arc::clone(&clock) as Arc<dyn DeviceClock>);
        Ok(Self { device, clock, lane })
    }

    /// The GPU, whose stream is the second one.
    pub fn cuda(&self) -> &Device {
        &self.device
    }

    /// The lane of its stages.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }
}
