//! The noise of a machine.

use serde::{Deserialize, Serialize};

/// The noise of a machine, measured by a loop that only reads the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Noise {
    /// With a single thread.
    pub alone: StallStats,
    /// With all threads that the process may run at once; none if that is one.
    pub together: Option<StallStats>,
    /// CPU time stolen by the hypervisor in the same period; none if unknown.
    pub steal: Option<Steal>,
    /// The clock that was read.
    pub clock: HostClock,
}

/// Stalls observed by threads that only read the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StallStats {
    /// The number of threads.
    pub threads: u32,
    /// The total observation time of all threads.
    pub watched_ns: u64,
    /// The number of stalls: steps of the clock that are too long for one reading.
    pub gaps: u64,
    /// The total duration of the stalls.
    pub lost_ns: u64,
    /// The longest stall; 0 if there was none.
    pub longest_gap_ns: u64,
    /// The spread of the reading rate between slices, as a share of the median (1.4826 times the median absolute
    /// deviation; with several threads, that of the median thread); none if there were too few slices.
    pub pace_spread: Option<f64>,
}

impl StallStats {
    /// The share of time in stalls; none without observations.
    pub fn lost_share(&self) -> Option<f64> {
        (self.watched_ns > 0).then(|| self.lost_ns as f64 / self.watched_ns as f64)
    }
}

/// CPU time stolen by a hypervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steal {
    /// Stolen kernel ticks, over all CPUs.
    pub ticks: u64,
    /// All ticks of all CPUs in that period.
    pub of_ticks: u64,
}

impl Steal {
    /// The stolen share; none if no tick passed.
    pub fn share(self) -> Option<f64> {
        (self.of_ticks > 0).then(|| self.ticks as f64 / self.of_ticks as f64)
    }
}

/// The host clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostClock {
    /// Its name: `tsc` or `monotonic`.
    pub name: String,
    /// Whether the CPU's counter runs at a constant rate; none if it has no such counter.
    pub is_invariant: Option<bool>,
    /// The smallest step between two consecutive readings, in nanoseconds; none if there was no step.
    pub step_ns: Option<f64>,
    /// The cost of a reading, in nanoseconds.
    pub reading_ns: f64,
}
