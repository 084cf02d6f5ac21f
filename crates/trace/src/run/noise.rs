//! How noisy a machine was when somebody listened.

use serde::{Deserialize, Serialize};

/// How noisy a machine was while a loop did nothing but read the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Noise {
    /// One thread alone.
    pub alone: StallStats,
    /// As many threads at once as the process may run; none if that is one.
    pub together: Option<StallStats>,
    /// What the hypervisor gave to others in the same time; none if the kernel does not say.
    pub steal: Option<Steal>,
    /// The clock that was read.
    pub clock: HostClock,
}

/// What threads saw that did nothing but read the clock.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct StallStats {
    /// The threads.
    pub threads: u32,
    /// How long they watched, added up over the threads.
    pub watched_ns: u64,
    /// Steps of the clock that are too long for one reading: the thread did not run.
    pub gaps: u64,
    /// How long those steps were, added up.
    pub lost_ns: u64,
    /// The longest of them; 0 if there was none.
    pub longest_gap_ns: u64,
    /// The spread of readings a time from slice to slice, as a share of the median (1.4826 times the median absolute
    /// deviation; with several threads, that of the median thread); none if there were too few slices.
    pub pace_spread: Option<f64>,
}

impl StallStats {
    /// The share of the time in which a thread did not run; none if nobody watched.
    pub fn lost_share(&self) -> Option<f64> {
        (self.watched_ns > 0).then(|| self.lost_ns as f64 / self.watched_ns as f64)
    }
}

/// Processor time that a hypervisor gave to others.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Steal {
    /// Ticks of the kernel that were stolen, over all processors.
    pub ticks: u64,
    /// All ticks of all processors in that time.
    pub of_ticks: u64,
}

impl Steal {
    /// The stolen share; none if no tick passed.
    pub fn share(self) -> Option<f64> {
        (self.of_ticks > 0).then(|| self.ticks as f64 / self.of_ticks as f64)
    }
}

/// The clock of the host that times are read from.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct HostClock {
    /// Its name: `tsc` or `monotonic`.
    pub name: String,
    /// Whether the processor's counter runs at one rate whatever the core does; none if it has no such counter.
    pub is_invariant: Option<bool>,
    /// The smallest step that two readings in a row were apart, in nanoseconds; none if none was.
    pub step_ns: Option<f64>,
    /// What a reading costs, in nanoseconds.
    pub reading_ns: f64,
}
