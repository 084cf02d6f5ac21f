//! Where a run took place: the machine and the build.

use serde::{Deserialize, Serialize};

use super::fingerprint;

/// Where a run took place.
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
    /// Memory that was free to use at the start; none if nobody knows.
    pub available_bytes: Option<u64>,
}

impl Environment {
    /// Names the machine and the build; what changes by the minute does not change the name.
    pub fn fingerprint(&self) -> String {
        let lasting = serde_json::to_vec(&(&self.machine, &self.build)).unwrap_or_default();
        fingerprint(&lasting)
    }
}

/// A machine, as far as it says what it is.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Machine {
    /// The model of its processors.
    pub cpu: Option<String>,
    /// Processors that this process may run on, threads of a core counted apart.
    pub cpus: u32,
    /// Cores, threads counted once.
    pub cores: Option<u32>,
    /// Processors' worth of time that a control group grants, if it limits it.
    pub cpu_quota: Option<f64>,
    /// The largest cache, in bytes.
    pub cache_bytes: Option<u64>,
    /// Memory, in bytes; that of the control group if it is less.
    pub memory_bytes: Option<u64>,
    /// The rule by which clocks are chosen, such as `performance`; none if the machine does not say.
    pub governor: Option<String>,
    /// Whether clocks may rise above the rated one.
    pub boost: Option<bool>,
    /// The kind of virtual machine, if it is one: the name that the hypervisor gives, or `yes`.
    pub virtual_machine: Option<String>,
    /// The operating system, such as `Linux`.
    pub os: String,
    /// The kernel's version.
    pub kernel: Option<String>,
    /// The clock source of the kernel, such as `tsc`.
    pub clock_source: Option<String>,
    /// GPUs that a driver tells of.
    pub gpus: Vec<Gpu>,
}

impl Machine {
    /// Names the machine.
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
    /// The commit it was built from, with `+changes` if files differed from it.
    pub commit: String,
    /// The profile: `debug` or `release`.
    pub profile: String,
    /// The level of optimisation.
    pub opt_level: String,
    /// Whether debug assertions were checked.
    pub debug_assertions: bool,
    /// The platform.
    pub target: String,
    /// Names the program's file, so that another build is recognised; none if it cannot be read.
    pub binary: Option<String>,
}

impl Build {
    /// Whether the program was built without optimisation: its times mean nothing.
    pub fn is_unoptimised(&self) -> bool {
        self.opt_level == "0"
    }
}
