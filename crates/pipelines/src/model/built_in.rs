//! The models that this program has, on the devices that it has.

use std::path::Path;

use laptime_bench::{Device, PlanError};
use laptime_models::{Config, ModelError, Options};

use super::{
    make::{Made, Maker},
    plan::{Found, Named},
    wanted::Wanted,
};

/// Presets, and folders with a `config.json`.
#[derive(Debug, Default)]
pub struct BuiltIn;

impl Maker for BuiltIn {
    fn find(&self, named: Named<'_>) -> Result<Found, PlanError> {
        let refused = |error: ModelError| PlanError::Refused {
            reason: error.to_string(),
            hint: error.hint().unwrap_or_else(|| "`laptime list models` shows the models that are known".to_owned()),
        };
        let (name, is_folder) = match named {
            Named::Folder(name) => (name, true),
            Named::Any(name) => (name, looks_like_a_folder(name)),
        };
        if !is_folder {
            let config = Config::from_preset(name).map_err(refused)?;
            return Ok(Found { name: config.name.clone(), config });
        }
        todo!()
    }

    fn needed_bytes(&self, config: &Config, wanted: &Wanted, options: &Options, device: &dyn Device) -> u64 {
        todo!()
    }

    fn make<'a>(
        &'a self,
        found: &Found,
        wanted: &Wanted,
        options: Options,
        device: &'a dyn Device,
    ) -> anyhow::Result<Made<'a>> {
        todo!()
    }
}

/// Whether a name is meant as a path: it begins like one, or is the folder of a model that is no preset.
fn looks_like_a_folder(name: &str) -> bool {
    let is_path = name.starts_with(['.', '/', '~']) || name.ends_with('/');
    is_path || Path::new(name).join("config.json").is_file() && (name.contains('/') || Config::from_preset(name).is_err())
}
