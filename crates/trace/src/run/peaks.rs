//! What a machine can do at most, as measured.

use serde::{Deserialize, Serialize};

use super::Traffic;

/// What a device can do at most, as `laptime peaks` measured it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Peaks {
    /// The version of this record.
    pub schema: u32,
    /// The machine, by its fingerprint: another one has other peaks.
    pub machine: String,
    /// The device.
    pub device: String,
    /// When it was measured.
    pub measured: String,
    /// Arithmetic, by type.
    pub flops: Vec<PeakFlops>,
    /// Memory, by direction.
    pub bandwidth: Vec<Bandwidth>,
}

/// The most operations a second in one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeakFlops {
    /// The type.
    pub dtype: String,
    /// Floating-point operations a second: the median of the takes.
    pub flops_s: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The size of the square matrices that reached it.
    pub size: u64,
    /// The threads that reached it.
    pub threads: u32,
}

/// The most bytes a second in one direction.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Bandwidth {
    /// The direction.
    pub traffic: Traffic,
    /// Bytes a second: the median of the takes. A copy counts the bytes read and the bytes written.
    pub bytes_s: f64,
    /// The lower end of its 95 % interval.
    pub low: f64,
    /// The upper end.
    pub high: f64,
    /// The bytes of one buffer.
    pub bytes: u64,
    /// The threads that reached it.
    pub threads: u32,
}

impl Peaks {
    /// The most operations a second in a type.
    pub fn flops_s(&self, dtype: &str) -> Option<f64> {
        self.flops.iter().find(|peak| peak.dtype == dtype).map(|peak| peak.flops_s)
    }

    /// The most bytes a second in a direction.
    pub fn bytes_s(&self, traffic: Traffic) -> Option<f64> {
        self.bandwidth.iter().find(|peak| peak.traffic == traffic).map(|peak| peak.bytes_s)
    }
}
