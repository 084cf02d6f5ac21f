//! A case of `c2c`, read.

use std::path::PathBuf;

use laptime_bench::{AxisValue, Case};
use laptime_models::{
    Dtype,
    fuser::{Alignment, FuseOrder, Response, SharerMask},
};

use super::axes::SYNTHETIC;

/// The parameters of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The base model, by its name in the case.
    pub base_model: String,
    /// The teacher model.
    pub teacher_model: String,
    /// The folder of the fuser; none for a synthetic one.
    pub checkpoint: Option<PathBuf>,
    /// Where the prompt comes from.
    pub prompt: Source,
    /// Tokens that are generated.
    pub new_tokens: usize,
    /// Whether new tokens are fused too.
    pub response: Response,
    /// Whether both prompts are processed at the same time.
    pub overlap: bool,
    /// Tokens of the text that the pair is compared with, if any.
    pub text_tokens: Option<usize>,
    /// The order of computation.
    pub order: FuseOrder,
    /// How layers of the two models are paired.
    pub alignment: Alignment,
    /// The dtype of weights, activations and caches; none for that of the base model.
    pub dtype: Option<Dtype>,
    /// Threads of the CPU.
    pub threads: usize,
    /// The seed of random tokens and synthetic weights.
    pub seed: u64,
}

/// Where a prompt comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Random tokens.
    Random(usize),
    /// A message.
    Message(String),
    /// A line of a file, counted from 1.
    Line(PathBuf, usize),
}

impl Spec {
    /// Reads a case.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let is_on = |axis: &str| case.get(axis) == Some(&AxisValue::Bool(true));
        let folder = |name: &str| Some(name).filter(|name| *name != SYNTHETIC).map(PathBuf::from);
        Ok(Self {
            base_model: case.text("base_model")?.to_owned(),
            teacher_model: case.text("teacher_model")?.to_owned(),
            checkpoint: folder(case.text("fuser_checkpoint")?),
            prompt: source(case)?,
            new_tokens: case.size("max_new_tokens")?,
            response: if is_on("include_response") { Response::Fused(SharerMask::FIRST) } else { Response::Plain },
            overlap: is_on("overlap"),
            text_tokens: case.get("against").map(|_| case.size("text_tokens")).transpose()?,
            order: case.text("fuse")?.parse()?,
            alignment: case.text("alignment")?.parse()?,
            dtype: case.text("dtype")?.parse().ok(),
            threads: case.size("threads")?,
            seed: u64::try_from(case.int("seed")?)?,
        })
    }
}

fn source(case: &Case) -> anyhow::Result<Source> {
    if let Some(message) = case.get("prompt") {
        return Ok(Source::Message(message.to_string()));
    }
    match case.text("prompt_file") {
        Ok(file) => Ok(Source::Line(PathBuf::from(file), case.size("sample")?)),
        Err(_) => Ok(Source::Random(case.size("prompt_tokens")?)),
    }
}
