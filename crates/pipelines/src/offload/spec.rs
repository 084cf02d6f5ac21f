//! A case of `offload`, read.

use std::path::PathBuf;

use laptime_bench::{AxisValue, Case};
use laptime_models::{Dtype, StreamMode};

use super::{
    axes::{LAYERS, MAX_TOKENS},
    budget,
};

/// What a case asks for.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The model, by the name of the case.
    pub model: String,
    /// Whether it is a language model alone.
    pub is_lm: bool,
    /// How many layers stay, as the case says it.
    pub stay: String,
    /// Number type of weights, activations and caches; none for that of the model.
    pub dtype: Option<Dtype>,
    /// The script; none for the built-in one.
    pub script: Option<PathBuf>,
    /// The voices; none for synthetic ones.
    pub voices: Vec<PathBuf>,
    /// How layers are streamed in.
    pub mode: StreamMode,
    /// Memory that may be used, in bytes; none for what is free.
    pub budget: Option<u64>,
    /// The rate of an emulated link, in GB/s.
    pub link_gbps: Option<f64>,
    /// Copies between two clearings of caches.
    pub clear_every: Option<usize>,
    /// How far the positive stream is followed.
    pub cfg_scale: f64,
    /// Steps of the diffusion head.
    pub steps: usize,
    /// Tokens at most, if they were given.
    pub max_tokens: Option<usize>,
    /// Threads of the CPU.
    pub threads: usize,
    /// What noise and synthetic weights start from.
    pub seed: u64,
}

impl Spec {
    /// Reads a case.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let link = number(case, "link_gbps")?;
        anyhow::ensure!(link.is_finite() && link >= 0.0, "a link of `{link}` GB/s moves nothing: give a rate, or 0");
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
