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
    /// The GPU that they were measured on; none for a CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu: Option<PeakGpu>,
}

/// What decides the peaks of a GPU.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeakGpu {
    /// The GPU itself, as NVML names it.
    pub uuid: String,
    /// The version of its driver.
    pub driver: Option<String>,
    /// The power that it may draw, in watts.
    pub power_limit_watts: Option<f64>,
}

impl PeakGpu {
    /// Names the GPU with its driver and power limit.
    pub fn fingerprint(&self) -> String {
        super::fingerprint(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// The most operations a second in one type.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct PeakFlops {
    /// The type.
    pub dtype: String,
    /// Floating-point operations per second: nine of ten iterations were slower.
    pub flops_s: f64,
    /// The median of the iterations; none if it was not kept.
    #[serde(default)]
    pub median: Option<f64>,
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
    /// Bytes per second: nine of ten iterations were slower. A copy counts the bytes read and the bytes written.
    pub bytes_s: f64,
    /// The median of the iterations; none if it was not kept.
    #[serde(default)]
    pub median: Option<f64>,
    /// The bytes of one buffer.
    pub bytes: u64,
    /// The threads that reached it.
    pub threads: u32,
}

impl Peaks {
    /// The better of these and earlier peaks, one quantity at a time: what else ran on the machine makes a peak too low
    /// and never too high.
    pub fn better_of(self, earlier: Self) -> Self {
        let flops = better(self.flops, earlier.flops, |peak| peak.flops_s, |one, other| one.dtype == other.dtype);
        let bandwidth =
            better(self.bandwidth, earlier.bandwidth, |peak| peak.bytes_s, |one, other| one.traffic == other.traffic);
        Self { flops, bandwidth, ..self }
    }

    /// The most operations a second in a type.
    pub fn flops_s(&self, dtype: &str) -> Option<f64> {
        self.flops.iter().find(|peak| peak.dtype == dtype).map(|peak| peak.flops_s)
    }

    /// The most bytes a second in a direction.
    pub fn bytes_s(&self, traffic: Traffic) -> Option<f64> {
        self.bandwidth.iter().find(|peak| peak.traffic == traffic).map(|peak| peak.bytes_s)
    }
}

fn better<T>(new: Vec<T>, earlier: Vec<T>, rate: fn(&T) -> f64, is_same: fn(&T, &T) -> bool) -> Vec<T> {
    let mut kept = new;
    for peak in earlier {
        match kept.iter_mut().find(|known| is_same(known, &peak)) {
            Some(known) if rate(&peak) > rate(known) => *known = peak,
            Some(_) => {}
            None => kept.push(peak),
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peaks(flops: &[(&str, f64)], read: f64, measured: &str) -> Peaks {
        let peak = |&(dtype, flops_s): &(&str, f64)| PeakFlops {
            dtype: dtype.to_owned(),
            flops_s,
            median: None,
            size: 8,
            threads: 1,
        };
        Peaks {
            schema: 1,
            machine: String::new(),
            device: "cpu".to_owned(),
            measured: measured.to_owned(),
            flops: flops.iter().map(peak).collect(),
            bandwidth: vec![Bandwidth { traffic: Traffic::Read, bytes_s: read, median: None, bytes: 8, threads: 1 }],
            gpu: None,
        }
    }

    #[test]
    fn the_better_of_two_measurements_is_kept_for_each_quantity() {
        let good = peaks(&[("f32", 100.0), ("f64", 50.0)], 20.0, "before");
        let loaded = peaks(&[("f32", 30.0), ("bf16", 70.0)], 25.0, "under load");
        let kept = loaded.better_of(good);
        assert_eq!(["f32", "bf16", "f64"].map(|dtype| kept.flops_s(dtype)), [Some(100.0), Some(70.0), Some(50.0)]);
        assert_eq!((kept.bytes_s(Traffic::Read), kept.measured.as_str()), (Some(25.0), "under load"));
    }

    #[test]
    fn peaks_of_an_earlier_version_are_read() {
        let text = r#"{"schema":1,"machine":"m","device":"cpu","measured":"then","flops":
            [{"dtype":"f32","flops_s":5.0,"low":4.0,"high":6.0,"size":8,"threads":1}],"bandwidth":[]}"#;
        let read: Peaks = serde_json::from_str(text).unwrap();
        assert_eq!((read.flops_s("f32"), read.flops[0].median, read.gpu), (Some(5.0), None, None));
    }
}
