//! A case of `c2c`, read.

use std::path::PathBuf;

use laptime_bench::Case;
use laptime_models::{
    Dtype,
    fuser::{Alignment, FuseOrder, Response, SharerMask},
};

use super::axes::SYNTHETIC;
use crate::request::{is_on, seed};

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub base_model: String,
    pub teacher_model: String,
    /// The folder of the fuser; none for a synthetic one.
    pub checkpoint: Option<PathBuf>,
    pub prompt: Source,
    pub new_tokens: usize,
    /// Whether new tokens are fused too.
    pub response: Response,
    pub overlap: bool,
    /// Tokens of the text that the pair is compared with, if any.
    pub text_tokens: Option<usize>,
    pub order: FuseOrder,
    pub alignment: Alignment,
    /// None for that of the base model.
    pub dtype: Option<Dtype>,
    pub threads: usize,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    Random(usize),
    Message(String),
    /// A line of a file, counted from 1.
    Line(PathBuf, usize),
}

impl Spec {
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let folder = |name: &str| Some(name).filter(|name| *name != SYNTHETIC).map(PathBuf::from);
        Ok(Self {
            base_model: case.text("base_model")?.to_owned(),
            teacher_model: case.text("teacher_model")?.to_owned(),
            checkpoint: folder(case.text("fuser_checkpoint")?),
            prompt: source(case)?,
            new_tokens: case.size("max_new_tokens")?,
            response: if is_on(case, "include_response") {
                Response::Fused(SharerMask::FIRST)
            } else {
                Response::Plain
            },
            overlap: is_on(case, "overlap"),
            text_tokens: case.get("against").map(|_| case.size("text_tokens")).transpose()?,
            order: case.text("fuse")?.parse()?,
            alignment: case.text("alignment")?.parse()?,
            dtype: case.text("dtype")?.parse().ok(),
            threads: case.size("threads")?,
            seed: seed(case)?,
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
