//! What a program can measure, and what it is asked to.

use std::path::PathBuf;

use laptime_trace::run::{Case, Settings};
use serde::{Deserialize, Serialize};

use crate::workload::{Devices, Workload};

/// The workloads and devices of a program.
pub struct Registry {
    /// The workloads, in the order in which they are listed.
    pub workloads: Vec<Box<dyn Workload>>,
    /// The devices.
    pub devices: Box<dyn Devices>,
}

impl Registry {
    /// The workload of this name.
    pub fn workload(&self, name: &str) -> Option<&dyn Workload> {
        self.workloads.iter().find(|workload| workload.name() == name).map(|workload| &**workload)
    }
}

/// Cases of one workload that one process measures one after the other.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The workload.
    pub workload: String,
    /// The device, by the name that [`Devices::open`] takes.
    pub device: String,
    /// The cases, in order.
    pub cases: Vec<Case>,
    /// Which of the fresh processes this is, counted from 0.
    pub run: u32,
    /// How cases are measured.
    pub settings: Settings,
    /// The name of the environment, for the results.
    pub environment: String,
    /// Where a fresh process records itself, from its start on; nowhere if there is none.
    #[serde(default)]
    pub trace: Option<PathBuf>,
}

impl Job {
    /// The same for other cases.
    pub fn with_cases(&self, cases: Vec<Case>) -> Self {
        Self { cases, ..self.clone() }
    }
}
