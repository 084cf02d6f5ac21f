//! All that is known of a case.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{AxisValue, Case, DeviceState, SCHEMA};

/// All that is known of a case after one process measured it: a line of `results.jsonl`.
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
    /// Which of the fresh processes that repeated the case, counted from 0.
    pub run: u32,
    /// The environment in `run.json`, by its fingerprint.
    pub environment: String,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl CaseResult {
    /// Makes the record of a case.
    pub fn new(workload: &str, device: &str, case: Case, run: u32, environment: &str, outcome: Outcome) -> Self {
        let (workload, device) = (workload.to_owned(), device.to_owned());
        Self { schema: SCHEMA, workload, device, case, run, environment: environment.to_owned(), outcome }
    }

    /// What was measured, if it was.
    pub fn measured(&self) -> Option<&Measured> {
        match &self.outcome {
            Outcome::Measured(measured) => Some(measured),
            _ => None,
        }
    }

    /// What tells it from other results of a folder: the workload, the case and the process.
    pub fn key(&self) -> (String, String, u32) {
        (self.workload.clone(), self.case.to_string(), self.run)
    }

    /// Whether nothing is left to do: an interrupted case is measured anew when the run is resumed.
    pub fn is_finished(&self) -> bool {
        self.measured().is_none_or(|measured| measured.stopped != StopReason::Interrupted)
    }
}

/// What became of a case.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(tag = "outcome", rename_all = "snake_case")]
#[allow(clippy::large_enum_variant, reason = "there is one per case, and nearly all cases are measured")]
pub enum Outcome {
    /// It was measured.
    Measured(Measured),
    /// It makes no sense here.
    Skipped {
        /// Why not.
        reason: String,
    },
    /// It needs more memory than there is.
    OutOfMemory {
        /// Bytes it needs, if that is known.
        needed_bytes: Option<u64>,
        /// Bytes there are, if that is known.
        available_bytes: Option<u64>,
    },
    /// It failed.
    Failed {
        /// The chain of causes, outermost first.
        errors: Vec<String>,
        /// The iterations that were finished before, in nanoseconds.
        wall_ns: Vec<u64>,
    },
}

impl Outcome {
    /// The word by which tables tell it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Measured(_) => "measured",
            Self::Skipped { .. } => "skipped",
            Self::OutOfMemory { .. } => "out_of_memory",
            Self::Failed { .. } => "failed",
        }
    }
}

/// What was measured of a case.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Measured {
    /// How long the preparation took.
    pub prepare_ns: u64,
    /// How long the check of the result took; it includes the first run of the work.
    pub check_ns: u64,
    /// Iterations that do not count.
    pub warmup_ns: Vec<u64>,
    /// How the warm-up ended.
    #[serde(rename = "steady_state", alias = "steady")]
    pub steady: Steady,
    /// Host time of every iteration that counts, synchronised at both ends.
    pub wall_ns: Vec<u64>,
    /// Time of each of these iterations on the device's own clock, from its first work to its last, idle time between
    /// included; null where it is not known, and empty if it is for none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub device_ns: Vec<Option<u64>>,
    /// Time of each of these iterations in which the device worked, overlapping work counted once; likewise.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub busy_ns: Vec<Option<u64>>,
    /// How the device was doing at the end of each of these iterations; empty if it does not say.
    #[serde(rename = "device_states", alias = "states", default, skip_serializing_if = "Vec::is_empty")]
    pub states: Vec<DeviceState>,
    /// What the iterations said of themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<Metric>,
    /// What the iterations that do not count said of themselves, in the order of `warmup_ns`; metrics that none of them knew
    /// are left out.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub warmup_metrics: Vec<Metric>,
    /// Why sampling stopped.
    #[serde(rename = "stop_reason", alias = "stopped")]
    pub stopped: StopReason,
    /// The highest use of the device's memory from preparation on; none if nobody counts it.
    pub peak_bytes: Option<u64>,
    /// The highest resident memory of the host's process in the same time; none if nobody knows.
    pub peak_rss_bytes: Option<u64>,
    /// What one iteration has to do; none if the workload does not say.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub work: Option<Work>,
    /// What is known of the case beside its axes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub facts: Vec<Fact>,
}

impl Measured {
    /// What is known under this name.
    pub fn fact(&self, name: &str) -> Option<&AxisValue> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| &fact.value)
    }

    /// The metric of this name.
    pub fn metric(&self, name: &str) -> Option<&Metric> {
        self.metrics.iter().find(|metric| metric.name == name)
    }
}

/// What a workload knows of a case beside its axes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Fact {
    /// Its name, such as `parameters`; a unit ends the name.
    pub name: String,
    /// What is known.
    pub value: AxisValue,
}

impl Fact {
    /// What is known under a name.
    pub fn new(name: &str, value: impl Into<AxisValue>) -> Self {
        Self { name: name.to_owned(), value: value.into() }
    }
}

/// A quantity that a workload reports beside the time, a value for each iteration.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Metric {
    /// Its name, such as `tok_s`; the unit ends the name.
    pub name: String,
    /// Which way is good.
    pub better: Better,
    /// The values, in the order of the iterations; null where an iteration had none.
    pub values: Vec<Option<f64>>,
}

/// Which way is good.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Better {
    /// Less is better: a time.
    Lower,
    /// More is better: a rate.
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
        #[serde(rename = "half_width", alias = "reach")]
        reach: f64,
    },
    /// The maximum measuring time was reached.
    #[serde(alias = "time_up")]
    MaxTime {
        /// The longer side of the interval, as a share of the median; none if there was no interval.
        #[serde(rename = "half_width", alias = "reach")]
        reach: Option<f64>,
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
            Self::NarrowInterval { reach } => write!(f, "the median is known within {:.1} %", 100.0 * reach),
            Self::MaxTime { reach: Some(reach) } => {
                write!(f, "maximum time reached; the median is known within {:.1} %", 100.0 * reach)
            }
            Self::MaxTime { reach: None } => write!(f, "maximum time reached before an interval could be computed"),
            Self::MaxIterations(iterations) => write!(f, "reached the maximum of {iterations} iterations"),
            Self::Interrupted => write!(f, "interrupted"),
        }
    }
}

/// What one iteration has to do, counted from its shapes: the ground of `mfu`, `mbu` and limits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Work {
    /// Floating-point operations; a multiplication and an addition are two.
    pub flops: u64,
    /// The type they are done in, which says which peak holds.
    pub dtype: String,
    /// Bytes that must move between memory and the processor at least.
    pub bytes: u64,
    /// Which way they move, which says which bandwidth holds.
    pub traffic: Traffic,
}

/// Which way bytes move.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Traffic {
    /// From memory, all or nearly all of them.
    Read,
    /// To memory.
    Write,
    /// From memory and back, in equal parts.
    Copy,
    /// From the host's memory to the device's.
    Upload,
    /// From the device's memory to the host's.
    Download,
}

impl Traffic {
    /// The word by which tables tell it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Copy => "copy",
            Self::Upload => "upload",
            Self::Download => "download",
        }
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
            stopped: StopReason::NarrowInterval { reach: 0.01 },
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
