//! How cases were measured.

use serde::{Deserialize, Serialize};

use super::{Depth, L2, Timing};

/// How the cases of a run are measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Settings {
    /// Which iterations belong to the warm-up.
    pub warmup: WarmUp,
    /// When sampling stops.
    pub stop: Stop,
    /// The number of fresh processes that repeat each case.
    pub runs: u32,
    /// Whether each case runs in a separate process.
    pub isolate: bool,
    /// The timeout of a case in a separate process.
    pub timeout_ns: Option<u64>,
    /// Whether the first iteration is the first run of the work: the result is checked after the iterations.
    #[serde(default)]
    pub cold: bool,
    /// How iterations and stages are timed.
    #[serde(default)]
    pub timing: Timing,
    /// The state of the device's L2 cache at the start of an iteration; none if the device cannot empty its cache.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub l2: Option<L2>,
    /// How deep stages are marked.
    #[serde(default)]
    pub depth: Depth,
}

/// Which iterations belong to the warm-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum WarmUp {
    /// This number of iterations does not count.
    #[serde(alias = "takes")]
    Iterations(usize),
    /// Iterations before the timings reach a steady state do not count.
    #[serde(alias = "found")]
    Auto,
}

/// When sampling stops.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Stop {
    /// After this number of iterations.
    #[serde(alias = "takes")]
    Iterations(usize),
    /// When the 95 % interval of the median is narrow enough, or after the maximum time.
    Interval {
        /// The largest distance of either end of the interval from the median, as a share of the median: 0.02 is 2 %.
        within: f64,
        /// The minimum number of iterations before the interval is used.
        #[serde(rename = "min_iterations", alias = "at_least")]
        at_least: usize,
        /// The minimum measuring time, however narrow the interval: the speed of a machine varies over milliseconds.
        #[serde(rename = "min_ns", alias = "least_ns", default)]
        least_ns: u64,
        /// The maximum measuring time.
        #[serde(rename = "max_ns", alias = "at_most_ns")]
        at_most_ns: u64,
    },
}
