//! The workloads and devices of a program, and jobs for them.

use std::path::PathBuf;

use laptime_trace::run::{Case, Run, Settings};
use serde::{Deserialize, Serialize};

use crate::workload::{Devices, Workload};

/// The workloads and devices of a program.
pub struct Registry {
    /// The workloads, in listing order.
    pub workloads: Vec<Box<dyn Workload>>,
    /// The devices.
    pub devices: Box<dyn Devices>,
}

impl Registry {
    /// The workload with this name.
    pub fn workload(&self, name: &str) -> Option<&dyn Workload> {
        self.workloads.iter().find(|workload| workload.name() == name).map(|workload| &**workload)
    }
}

/// Cases of one workload that one process measures in sequence.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    /// The workload.
    pub workload: String,
    /// The device name, as accepted by [`Devices::open`].
    pub device: String,
    /// The cases, in order.
    pub cases: Vec<Case>,
    /// The index of the fresh process, counted from 0.
    pub run: u32,
    /// How cases are measured.
    pub settings: Settings,
    /// The fingerprint of the environment, stored with the results.
    pub environment: String,
    /// The file to which a fresh process records itself from its start; none for no recording.
    #[serde(default)]
    pub trace: Option<PathBuf>,
}

impl Job {
    /// Cases of a run, in its first process.
    pub fn of(run: &Run, cases: Vec<Case>) -> Self {
        Self {
            workload: run.workload.clone(),
            device: run.device.clone(),
            cases,
            run: 0,
            settings: run.settings,
            environment: run.environment_fingerprint.clone(),
            trace: None,
        }
    }

    /// The same job for other cases.
    pub fn with_cases(&self, cases: Vec<Case>) -> Self {
        Self { cases, ..self.clone() }
    }
}
