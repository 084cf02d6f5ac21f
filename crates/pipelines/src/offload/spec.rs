//! A case of `offload`, read.

use std::path::PathBuf;

use laptime_bench::{AxisValue, Case};
use laptime_models::{Dtype, StreamMode};

use super::{
    axes::{LAYERS, MAX_TOKENS},
    budget,
};

/// The parameters of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The model, by the name of the case.
    pub model: String,
    /// Whether it is a language model alone.
    pub is_lm: bool,
    /// The number of resident layers, as given in the case.
    pub stay: String,
    /// The dtype of weights, activations and caches; none for that of the model.
    pub dtype: Option<Dtype>,
    /// The script; none for the built-in one.
    pub script: Option<PathBuf>,
    /// The voices; none for synthetic ones.
    pub voices: Vec<PathBuf>,
    /// How offloaded layers are copied.
    pub mode: StreamMode,
    /// The memory budget in bytes; none for the free memory.
    pub budget: Option<u64>,
    /// The rate of an emulated link, in GB/s.
    pub link_gbps: Option<f64>,
    /// Copies between two clearings of caches.
    pub clear_every: Option<usize>,
    /// The classifier-free guidance scale.
    pub cfg_scale: f64,
    /// Steps of the diffusion head.
    pub steps: usize,
    /// The maximum number of tokens, if given.
    pub max_tokens: Option<usize>,
    /// Threads of the CPU.
    pub threads: usize,
    /// The seed of the noise and synthetic weights.
    pub seed: u64,
}

impl Spec {
    /// Reads a case.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let link = number(case, "link_gbps")?;
        anyhow::ensure!(
            link.is_finite() && link >= 0.0,
            "the link rate `{link}` GB/s is not valid; use a rate above 0, or 0 for full speed"
        );
        let clear = case.size("cache_clear_interval")?;
        Ok(Self {
            model: case.text("model")?.to_owned(),
            is_lm: case.text("pipeline")? == "lm",
            // A number of layers is one in the case, too.
            stay: case.get(LAYERS).map(ToString::to_string).unwrap_or_default(),
            dtype: case.text("dtype")?.parse().ok(),
            script: case.text("txt_path").ok().map(PathBuf::from),
            voices: case.text("voice_files").map(files).unwrap_or_default(),
            mode: case.text("mode")?.parse()?,
            budget: budget::bytes(&case.get("memory_budget").map(ToString::to_string).unwrap_or_default())
                .map_err(anyhow::Error::msg)?,
            link_gbps: (link > 0.0).then_some(link),
            clear_every: (clear > 0).then_some(clear),
            cfg_scale: number(case, "cfg_scale")?,
            steps: case.size("steps")?,
            max_tokens: case.size(MAX_TOKENS).ok(),
            threads: case.size("threads")?,
            seed: u64::try_from(case.int("seed")?)?,
        })
    }
}

/// The files of a list.
pub fn files(list: &str) -> Vec<PathBuf> {
    list.split(',').map(str::trim).filter(|file| !file.is_empty()).map(PathBuf::from).collect()
}

fn number(case: &Case, axis: &str) -> anyhow::Result<f64> {
    match case.get(axis) {
        Some(AxisValue::Int(value)) => Ok(*value as f64),
        Some(AxisValue::Float(value)) => Ok(*value),
        _ => anyhow::bail!("the case has no number on axis `{axis}`"),
    }
}
