//! GPU state from NVML: clocks, power, temperature, and throttling.

use std::fmt;

use nvml_wrapper::enum_wrappers::device::{Clock, TemperatureSensor};
use nvml_wrapper::{Nvml, bitmasks::device::ThrottleReasons, error::NvmlError};

use crate::error::CudaError;

/// NVML, opened once for one GPU.
pub struct Card {
    nvml: Nvml,
    bus: String,
}

/// A reading of a GPU. Unknown values are none.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Reading {
    /// Clock of the multiprocessors, in MHz.
    pub sm_mhz: Option<u32>,
    /// Clock of the memory, in MHz.
    pub memory_mhz: Option<u32>,
    /// Highest clock of the multiprocessors, in MHz.
    pub sm_limit_mhz: Option<u32>,
    /// Power draw, in milliwatts.
    pub power_mw: Option<u32>,
    /// Power limit, in milliwatts.
    pub power_limit_mw: Option<u32>,
    /// Temperature of the chip, in degrees Celsius.
    pub celsius: Option<u32>,
    /// Bytes of memory in use, by every process.
    pub memory_used: Option<u64>,
    /// Throttle reasons as NVML bits.
    pub throttle_bits: Option<u64>,
}

/// The constant properties of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CardFacts {
    /// The name.
    pub name: String,
    /// The unique id of the GPU: `GPU-…`.
    pub uuid: Option<String>,
    /// The driver's version: `580.159.04`.
    pub driver: String,
    /// The memory size in bytes.
    pub memory_bytes: Option<u64>,
}

/// Why a GPU is throttled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Throttle {
    /// It reached its power limit.
    PowerCap,
    /// The GPU or its memory is hot, and the driver slows it down.
    Heat,
    /// Hardware thermal protection.
    HardwareHeat,
    /// The power supply requested a power brake.
    PowerBrake,
    /// Hardware slowdown, for heat or power.
    HardwareSlowdown,
    /// Another GPU of its sync group is slow.
    SyncBoost,
}

impl Card {
    /// Opens the GPU at a PCI address, as in [`DeviceFacts`](crate::DeviceFacts).
    pub fn open(bus: &str) -> Result<Self, CudaError> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(_) => {
                CudaError::Missing { library: "libnvidia-ml.so.1".to_owned(), searched: Vec::new() }
            }
            other => refused(&other),
        })?;
        let card = Self { nvml, bus: bus.to_owned() };
        card.device().map_err(|error| refused(&error))?;
        Ok(card)
    }

    /// Every GPU of the machine; none without a driver.
    pub fn all() -> Vec<Self> {
        let buses = || -> Result<Vec<String>, NvmlError> {
            let nvml = Nvml::init()?;
            (0..nvml.device_count()?).map(|number| Ok(nvml.device_by_index(number)?.pci_info()?.bus_id)).collect()
        };
        buses().unwrap_or_default().iter().filter_map(|bus| Self::open(bus).ok()).collect()
    }

    /// The PCI address.
    pub fn bus(&self) -> &str {
        &self.bus
    }

    /// The constant properties.
    pub fn facts(&self) -> Result<CardFacts, CudaError> {
        let asked = || -> Result<CardFacts, NvmlError> {
            let device = self.device()?;
            let memory_bytes = device.memory_info().ok().map(|memory| memory.total);
            let (name, uuid) = (device.name()?, device.uuid().ok());
            Ok(CardFacts { name, uuid, driver: self.nvml.sys_driver_version()?, memory_bytes })
        };
        asked().map_err(|error| refused(&error))
    }

    /// Reads the GPU state. Meant for between iterations: a reading takes some hundred microseconds.
    pub fn read(&self) -> Reading {
        let Ok(device) = self.device() else { return Reading::default() };
        Reading {
            sm_mhz: device.clock_info(Clock::SM).ok(),
            memory_mhz: device.clock_info(Clock::Memory).ok(),
            sm_limit_mhz: device.max_clock_info(Clock::SM).ok(),
            power_mw: device.power_usage().ok(),
            power_limit_mw: device.enforced_power_limit().ok(),
            celsius: device.temperature(TemperatureSensor::Gpu).ok(),
            memory_used: device.memory_info().ok().map(|memory| memory.used),
            throttle_bits: device.current_throttle_reasons().ok().map(|reasons| reasons.bits()),
        }
    }

    fn device(&self) -> Result<nvml_wrapper::Device<'_>, NvmlError> {
        self.nvml.device_by_pci_bus_id(self.bus.as_str())
    }
}

impl fmt::Debug for Card {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Card").field("bus", &self.bus).finish_non_exhaustive()
    }
}

impl Reading {
    /// The throttle reasons; empty if there are none, or if they are unknown.
    ///
    /// Clocks set by the user and an idle GPU do not count as throttling.
    pub fn throttled(&self) -> Vec<Throttle> {
        let bits = ThrottleReasons::from_bits_truncate(self.throttle_bits.unwrap_or(0));
        Throttle::ALL.iter().filter(|(bit, ..)| bits.contains(*bit)).map(|(_, reason, _)| *reason).collect()
    }
}

impl Throttle {
    /// With their NVML bits and descriptions.
    const ALL: [(ThrottleReasons, Self, &str); 6] = [
        (ThrottleReasons::SW_POWER_CAP, Self::PowerCap, "it reached its power limit"),
        (ThrottleReasons::SW_THERMAL_SLOWDOWN, Self::Heat, "it is hot"),
        (ThrottleReasons::HW_THERMAL_SLOWDOWN, Self::HardwareHeat, "hardware thermal protection is active"),
        (ThrottleReasons::HW_POWER_BRAKE_SLOWDOWN, Self::PowerBrake, "the power supply requested a power brake"),
        (ThrottleReasons::HW_SLOWDOWN, Self::HardwareSlowdown, "hardware slowdown for heat or power"),
        (ThrottleReasons::SYNC_BOOST, Self::SyncBoost, "another GPU of its sync group is slow"),
    ];
}

impl fmt::Display for Throttle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Self::ALL.iter().filter(|(_, reason, _)| reason == self).try_for_each(|(.., words)| f.write_str(words))
    }
}

fn refused(error: &NvmlError) -> CudaError {
    CudaError::refused("querying NVML", 0, error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(bits: ThrottleReasons) -> Reading {
        Reading { throttle_bits: Some(bits.bits()), ..Reading::default() }
    }

    #[test]
    fn an_idle_gpu_and_fixed_clocks_are_not_throttled() {
        let harmless = ThrottleReasons::GPU_IDLE | ThrottleReasons::APPLICATIONS_CLOCKS_SETTING;
        assert_eq!(reading(harmless).throttled(), []);
        assert_eq!(Reading::default().throttled(), []);
    }

    #[test]
    fn every_reason_is_reported() {
        let bits = ThrottleReasons::SW_POWER_CAP | ThrottleReasons::HW_SLOWDOWN | ThrottleReasons::HW_THERMAL_SLOWDOWN;
        let found = reading(bits).throttled();
        assert_eq!(found, [Throttle::PowerCap, Throttle::HardwareHeat, Throttle::HardwareSlowdown]);
        assert_eq!(found[0].to_string(), "it reached its power limit");
    }

    #[test]
    fn unknown_bits_are_ignored() {
        let all = Reading { throttle_bits: Some(u64::MAX), ..Reading::default() };
        assert_eq!(all.throttled().len(), 6);
    }
}
