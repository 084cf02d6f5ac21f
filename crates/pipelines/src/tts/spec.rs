//! A case of `tts`, read.

use std::path::PathBuf;

use laptime_bench::Case;
use laptime_models::{
    Dtype, GraphMode,
    tts::{Choice, Sampling},
};

use crate::request::{graph, is_on, number, seed};

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub model: String,
    pub text: Source,
    /// None for that of the model.
    pub dtype: Option<Dtype>,
    /// Empty to leave it to the model.
    pub speaker: String,
    pub language: String,
    pub frames: Option<usize>,
    pub streaming: bool,
    pub chunk_frames: usize,
    /// How codes are sampled, without an end.
    pub sampling: Sampling,
    pub graph: GraphMode,
    pub threads: usize,
    pub seed: u64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// One of the built-in ones, by name.
    Corpus(String),
    Own(String),
    File(PathBuf),
}

impl Spec {
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let seed = seed(case)?;
        Ok(Self {
            model: case.text("model")?.to_owned(),
            text: source(case)?,
            dtype: case.text("dtype")?.parse().ok(),
            speaker: case.text("speaker")?.to_owned(),
            language: case.text("language")?.to_owned(),
            frames: case.size("frames").ok(),
            streaming: is_on(case, "streaming"),
            chunk_frames: case.size("chunk_frames")?,
            sampling: sampling(case, is_on(case, "greedy"), seed)?,
            graph: graph(case, "tts")?,
            threads: case.size("threads")?,
            seed,
        })
    }
}

fn source(case: &Case) -> anyhow::Result<Source> {
    if let Some(text) = case.get("text") {
        return Ok(Source::Own(text.to_string()));
    }
    match case.text("text_file") {
        Ok(file) => Ok(Source::File(PathBuf::from(file))),
        Err(_) => Ok(Source::Corpus(case.text("label")?.to_owned())),
    }
}

/// How codes are chosen: semantic ones as the flags say, those of the predictor as the official package does.
fn sampling(case: &Case, is_greedy: bool, seed: u64) -> anyhow::Result<Sampling> {
    let repetition_penalty = number(case, "repetition_penalty")? as f32;
    let talker = Choice::Drawn {
        temperature: number(case, "temperature")? as f32,
        top_k: case.size("top_k")?,
        top_p: number(case, "top_p")?,
    };
    Ok(match is_greedy {
        true => Sampling { repetition_penalty, seed, ..Sampling::likeliest() },
        false => Sampling { talker, repetition_penalty, seed, ..Sampling::default() },
    })
}
