//! What devices did during a wait.

use crate::{devices::Devices, intervals::Stretches};

/// When each device was busy, to be asked by time.
pub(super) struct Meanwhile(Vec<Stretches>);

impl Meanwhile {
    pub(super) fn of(devices: &Devices) -> Self {
        Self(devices.devices.iter().map(crate::devices::DeviceWork::busy).collect())
    }

    /// How long the busiest device was busy in a stretch; none if there is no device.
    pub(super) fn busy(&self, from: u64, to: u64) -> Option<u64> {
        self.0.iter().map(|busy| busy.length_within(from, to)).max()
    }
}
