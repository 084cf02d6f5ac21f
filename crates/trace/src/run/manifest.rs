//! The manifest of a run: `run.json`.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::{AxisValue, Case, Environment, Peaks, Settings, results::RunFileError};
use crate::{format::write_whole, small_file};

/// The name of the file in a run folder.
pub const RUN_FILE: &str = "run.json";

/// The manifest of a run.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Run {
    /// The version of this record.
    pub schema: u32,
    /// The command line that reproduces it.
    pub command: Vec<String>,
    /// When the run started, in UTC.
    #[serde(rename = "started_at", alias = "started")]
    pub started: String,
    /// The workload.
    pub workload: String,
    /// The device.
    pub device: String,
    /// The axes with their values, in the workload's order.
    pub axes: Vec<AxisValues>,
    /// The cases, if they are not every combination of these values.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub cases: Vec<Case>,
    /// How cases are measured.
    pub settings: Settings,
    /// The fingerprint of the environment, as stored in results.
    pub environment_fingerprint: String,
    /// The machine and the build.
    pub environment: Environment,
    /// The measured peaks of the device, if there were any before the run.
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
    /// Writes it into a run folder, completely or not at all.
    pub fn write(&self, folder: &Path) -> Result<(), RunFileError> {
        let mut text = serde_json::to_string_pretty(self).unwrap_or_default();
        text.push('\n');
        write_whole(&folder.join(RUN_FILE), |out| out.write_all(text.as_bytes())).map_err(Into::into)
    }

    /// Reads it from a run folder.
    pub fn read(folder: &Path) -> Result<Self, RunFileError> {
        let path = folder.join(RUN_FILE);
        let open = |source| RunFileError::Open { path: path.clone(), source };
        let text = small_file::read_bytes(&path, small_file::LARGEST_SMALL_FILE).map_err(open)?;
        super::results::parse(&text, &path, None)
    }
}
