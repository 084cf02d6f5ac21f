//! The result of a case.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AxisValue, Case, DeviceState, SCHEMA};

/// The result of a case from one process: a line of `results.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct CaseResult {
    /// The version of this record.
    pub schema: u32,
    /// The workload.
    pub workload: String,
    /// The device it ran on.
    pub device: String,
    /// The values on the workload's axes.
    pub case: Case,
    /// The index of the fresh process, counted from 0.
    pub run: u32,
    /// The fingerprint of the environment in `run.json`.
    pub environment: String,
    /// The outcome.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl CaseResult {
    /// Creates the result of a case.
    pub fn new(workload: &str, device: &str, case: Case, run: u32, environment: &str, outcome: Outcome) -> Self {
        let (workload, device) = (workload.to_owned(), device.to_owned());
        Self { schema: SCHEMA, workload, device, case, run, environment: environment.to_owned(), outcome }
    }

    /// The measurements, if there are any.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            _ => None,
        }
    }

    /// The identity of a result in a folder: the workload, the case and the process.
    pub fn key(&self) -> (String, String, u32) {
        (self.workload.clone(), self.case.to_string(), self.run)
    }

    /// Whether the case is finished: an interrupted case is measured again when the run is resumed.
    pub fn is_finished(&self) -> bool {
        self.measured().is_none_or(|measured| measured.stopped != StopReason::Interrupted)
    }
}

/// The outcome of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "there is one per case, and nearly all cases are measured")]
pub enum Outcome {
    /// It was measured.
    Measured(Measured),
    /// It does not apply here.
    Skipped {
        /// The reason.
        reason: String,
    },
    /// It needs more memory than is available.
    OutOfMemory {
        /// Needed bytes, if known.
        needed_bytes: Option<u64>,
        /// Available bytes, if known.
        available_bytes: Option<u64>,
    },
    /// It failed.
    Failed {
        /// The chain of causes, outermost first.
        errors: Vec<String>,
        /// The finished iterations, in nanoseconds.
        wall_ns: Vec<u64>,
    },
}

impl Outcome {
    /// The word used in tables.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::Skipped { .. } => "skipped",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Failed { .. } => "failed",
        }
    }
}

/// The measurements of a case.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// How long the preparation took.
    pub prepare_ns: u64,
    /// How long the check of the result took, including the first run of the work.
    pub check_ns: u64,
    /// Warm-up iterations, which do not count.
    pub warmup_ns: Vec<u64>,
    /// How the warm-up ended.
    #[serde(rename = "steady_state", alias = "steady")]
    pub steady: Steady,
    /// Host time of every iteration that counts, synchronised at both ends.
    pub wall_ns: Vec<u64>,
    /// Device time of each of these iterations on the device's clock, from its first work to its last, including idle
    /// time; null if unknown, and empty if unknown for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_ns: Vec<Option<u64>>,
    /// Busy time of the device in each of these iterations; overlapping work counts once. Null if unknown, and empty if
    /// unknown for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_ns: Vec<Option<u64>>,
    /// The state of the device at the end of each of these iterations; empty if unknown.
    #[serde(rename = "device_states", alias = "states", default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<DeviceState>,
    /// The metrics that the iterations reported.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// The metrics of the warm-up iterations, in the order of `warmup_ns`; metrics without a value are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warmup_metrics: Vec<Metric>,
    /// Why sampling stopped.
    #[serde(rename = "stop_reason", alias = "stopped")]
    pub stopped: StopReason,
    /// The peak device memory since preparation; none if unknown.
    pub peak_bytes: Option<u64>,
    /// The peak resident memory of the host process in the same period; none if unknown.
    pub peak_rss_bytes: Option<u64>,
    /// The work of one iteration; none if the workload does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// Facts about the case in addition to its axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
}

impl Measured {
    /// The fact with this name.
    pub fn fact(&self, name: &str) -> Option<&AxisValue> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| &fact.value)
    }

    /// The metric with this name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// A fact about a case in addition to its axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fact {
    /// The name, such as `parameters`; it ends in the unit, if there is one.
    pub name: String,
    /// The value.
    pub value: AxisValue,
}

impl Fact {
    /// Creates a fact.
    pub fn new(name: &str, value: impl Into<AxisValue>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// A metric that a workload reports in addition to the time, with a value for each iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metric {
    /// The name, such as `tok_s`; it ends in the unit.
    pub name: String,
    /// Whether lower or higher is better.
    pub better: Better,
    /// The values, in the order of the iterations; null if an iteration had none.
    pub values: Vec<Option<f64>>,
}

/// Whether lower or higher is better.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Lower is better: a time.
    Lower,
    /// Higher is better: a rate.
    Higher,
}

/// How a warm-up ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Steady {
    /// It had a fixed number of iterations; steadiness was not checked.
    #[default]
    #[serde(alias = "asked")]
    NotChecked,
    /// It ended where the timings reached a steady state.
    #[serde(alias = "found")]
    Reached,
    /// The timings did not reach a steady state, or became slower. Slow iterations before a level that did not last may
    /// have been moved to the warm-up.
    #[serde(alias = "never")]
    NotReached,
    /// There were too few iterations to decide.
    Unknown,
}

/// Why sampling stopped.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The requested number of iterations was measured.
    #[serde(alias = "takes")]
    Iterations(usize),
    /// The interval of the median was narrow enough.
    #[serde(alias = "narrow")]
    NarrowInterval {
        /// The longer side of the interval, as a share of the median.
        #[serde(alias = "reach")]
        half_width: f64,
    },
    /// The maximum measuring time was reached.
    #[serde(alias = "time_up")]
    MaxTime {
        /// The longer side of the interval, as a share of the median; none if there was no interval.
        #[serde(alias = "reach")]
        half_width: Option<f64>,
    },
    /// The maximum number of stored iterations was reached before either rule was met.
    #[serde(alias = "most")]
    MaxIterations(usize),
    /// The user interrupted the run.
    #[default]
    Interrupted,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Iterations(iterations) => write!(f, "{iterations} iterations were requested"),
            Self::NarrowInterval { half_width } => write!(f, "the median is known within {:.1} %", 100.0 * half_width),
            Self::MaxTime { half_width: Some(half_width) } => {
                write!(f, "maximum time reached; the median is known within {:.1} %", 100.0 * half_width)
            }
            Self::MaxTime { half_width: None } => {
                write!(f, "maximum time reached before an interval could be computed")
            }
            Self::MaxIterations(iterations) => write!(f, "reached the maximum of {iterations} iterations"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

/// The work of one iteration, counted from its shapes: the basis of `mfu`, `mbu` and hardware limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Work {
    /// Floating-point operations; a multiplication and an addition are two.
    pub flops: u64,
    /// The dtype of the operations, which selects the peak.
    pub dtype: String,
    /// The minimum number of bytes moved between memory and the processor.
    pub bytes: u64,
    /// The direction of the traffic, which selects the bandwidth.
    pub traffic: Traffic,
}

crate::words! {
    /// The direction of memory traffic.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
    #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
    #[serde(rename_all = "snake_case")]
    pub enum Traffic: word {
        /// Only or mostly reads.
        Read = "read",
        /// Writes.
        Write = "write",
        /// Reads and writes in equal parts.
        Copy = "copy",
        /// From the host's memory to the device's.
        Upload = "upload",
        /// From the device's memory to the host's.
        Download = "download",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_outcome_survives_being_written_and_read() {
        let measured = Measured {
            wall_ns: vec![1, u64::MAX],
            device_ns: vec![Some(7), None],
            busy_ns: vec![None, Some(3)],
            states: vec![DeviceState { throttled: vec!["hot".into()], ..DeviceState::default() }; 2],
            metrics: vec![Metric { name: "tok_s".into(), better: Better::Higher, values: vec![Some(0.1), None] }],
            stopped: StopReason::NarrowInterval { half_width: 0.01 },
            work: Some(Work { flops: 2, dtype: "f32".into(), bytes: 3, traffic: Traffic::Copy }),
            facts: vec![Fact::new("parameters", 7), Fact::new("replay", "graph")],
            ..Measured::default()
        };
        for outcome in [
            Outcome::Measured(measured),
            Outcome::Skipped { reason: "no".into() },
            Outcome::OutOfMemory { needed_bytes: Some(2), available_bytes: None },
            Outcome::Failed { errors: vec!["a".into()], wall_ns: vec![7] },
        ] {
            let case = Case::new(vec![("size".into(), 3.into())]);
            let result = CaseResult::new("matmul", "cpu", case, 1, "abc", outcome);
            let text = serde_json::to_string(&result).unwrap();
            assert_eq!(serde_json::from_str::<CaseResult>(&text).unwrap(), result, "{text}");
        }
    }

    #[test]
    fn an_interrupted_case_is_not_finished() {
        let result = |stopped| {
            let measured = Measured { stopped, ..Measured::default() };
            CaseResult::new("matmul", "cpu", Case::default(), 0, "", Outcome::Measured(measured))
        };
        assert!(!result(StopReason::Interrupted).is_finished());
        assert!(result(StopReason::Iterations(3)).is_finished());
    }
}
