//! The environment of a run: the machine and the build.

use serde::{Deserialize, Serialize};

use super::fingerprint;

/// The environment of a run.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Environment {
    /// The machine.
    pub machine: Machine,
    /// The program.
    pub build: Build,
    /// The load average over the minute before the start; none if unknown.
    #[serde(rename = "load_average", alias = "load")]
    pub load: Option<f64>,
    /// Available memory at the start, in bytes; none if unknown.
    pub available_bytes: Option<u64>,
}

impl Environment {
    /// A fingerprint of the machine and the build; values that change over time are not part of it.
    pub fn fingerprint(&self) -> String {
        let lasting = serde_json::to_vec(&(&self.machine, &self.build)).unwrap_or_default();
        fingerprint(&lasting)
    }
}

/// A machine. Unknown values are none.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The CPU model.
    pub cpu: Option<String>,
    /// The number of CPUs that this process may use; hardware threads count separately.
    pub cpus: u32,
    /// The number of physical cores.
    pub cores: Option<u32>,
    /// The CPU quota of the control group in CPUs, if there is one.
    pub cpu_quota: Option<f64>,
    /// The largest cache, in bytes.
    pub cache_bytes: Option<u64>,
    /// Memory in bytes, limited by the control group.
    pub memory_bytes: Option<u64>,
    /// The frequency governor, such as `performance`; none if unknown.
    pub governor: Option<String>,
    /// Whether clocks may exceed the base clock.
    pub boost: Option<bool>,
    /// The kind of virtual machine, if it is one: the name given by the hypervisor, or `yes`.
    pub virtual_machine: Option<String>,
    /// The operating system, such as `Linux`.
    pub os: String,
    /// The kernel's version.
    pub kernel: Option<String>,
    /// The clock source of the kernel, such as `tsc`.
    pub clock_source: Option<String>,
    /// The GPUs reported by a driver.
    pub gpus: Vec<Gpu>,
    /// The node of a cluster, in a run that a scheduler distributed: two nodes are two environments, however similar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
}

impl Machine {
    /// A fingerprint of the machine.
    pub fn fingerprint(&self) -> String {
        fingerprint(&serde_json::to_vec(self).unwrap_or_default())
    }
}

/// A GPU.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Gpu {
    /// Its model.
    pub name: String,
    /// The version of its driver.
    pub driver: Option<String>,
}

/// How the program was built.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Build {
    /// The version of laptime.
    pub version: String,
    /// The commit it was built from, with `+changes` if files were modified.
    pub commit: String,
    /// The profile: `debug` or `release`.
    pub profile: String,
    /// The level of optimisation.
    pub opt_level: String,
    /// Whether debug assertions were enabled.
    pub debug_assertions: bool,
    /// The target platform.
    pub target: String,
    /// A fingerprint of the program's file, to recognise another build; none if it cannot be read.
    pub binary: Option<String>,
}

impl Build {
    /// Whether the program was built without optimisation, so that its timings are meaningless.
    pub fn is_unoptimised(&self) -> bool {
        self.opt_level == "0"
    }
}
