//! What the results of a folder belong to: `run.json`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{AxisValue, Case, Environment, Peaks, Settings, results::RunFileError};
use crate::{format::write_whole, small_file};

/// The name of the file in a run's folder.
pub const RUN_FILE: &str = "run.json";

/// What the results of a folder belong to.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The version of this record.
    pub schema: u32,
    /// The command line that makes it again.
    pub command: Vec<String>,
    /// When it started, in universal time.
    pub started: String,
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// The axes with their values, in the workload's order.
    pub axes: Vec<AxisValues>,
    /// The cases, where they are not every combination of these values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// How cases are measured.
    pub settings: Settings,
    /// The name of the environment, as results carry it.
    pub environment_fingerprint: String,
    /// The machine and the build.
    pub environment: Environment,
    /// What the device can do at most, if that was measured before the run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peaks: Option<Peaks>,
}

/// The values of one axis.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct AxisValues {
    /// The axis.
    pub axis: String,
    /// Its values.
    pub values: Vec<AxisValue>,
}

impl Run {
    /// Writes it into a run's folder, whole or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), RunFileError> {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        write_whole(&folder.join(RUN_FILE), |out| out.write_all(text.as_bytes())).map_err(Into::into)
    }

    /// Reads it from a run's folder.
    pub fn read(folder: &Path) -> Result<Self, RunFileError> {
        let path = folder.join(RUN_FILE);
        let open = |source| RunFileError::Open { path: path.clone(), source };
        let text = small_file::read_bytes(&path, small_file::LARGEST_SMALL_FILE).map_err(open)?;
        super::results::parse(&text, &path, None)
    }
}
