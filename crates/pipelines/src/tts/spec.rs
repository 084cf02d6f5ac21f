//! A case of `tts`, read.

use std::path::PathBuf;

use laptime_bench::{AxisValue, Case};
use laptime_models::{
    Dtype, GraphMode,
    tts::{Choice, Sampling},
};

/// The parameters of a case.
#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    /// The model, by the name of the case.
    pub model: String,
    /// The text.
    pub text: Source,
    /// The dtype of weights, activations and caches; none for that of the model.
    pub dtype: Option<Dtype>,
    /// The speaker; empty to leave it to the model.
    pub speaker: String,
    /// The language.
    pub language: String,
    /// Frames, if they were given.
    pub frames: Option<usize>,
    /// Whether the audio is streamed.
    pub streaming: bool,
    /// Frames of a chunk.
    pub chunk_frames: usize,
    /// How codes are sampled, without an end.
    pub sampling: Sampling,
    /// Whether frames are replayed as graphs.
    pub graph: GraphMode,
    /// Threads of the CPU.
    pub threads: usize,
    /// The seed of sampling and synthetic weights.
    pub seed: u64,
}

/// Where a text comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// One of the built-in ones, by name.
    Corpus(String),
    /// The text itself.
    Own(String),
    /// A file.
    File(PathBuf),
}

impl Spec {
    /// Reads a case.
    pub fn of(case: &Case) -> anyhow::Result<Self> {
        let is_on = |axis: &str| case.get(axis) == Some(&AxisValue::Bool(true));
        let seed = u64::try_from(case.int("seed")?)?;
        Ok(Self {
            model: case.text("model")?.to_owned(),
            text: source(case)?,
            dtype: case.text("dtype")?.parse().ok(),
            speaker: case.text("speaker")?.to_owned(),
            language: case.text("language")?.to_owned(),
            frames: case.size("frames").ok(),
            streaming: is_on("streaming"),
            chunk_frames: case.size("chunk_frames")?,
            sampling: sampling(case, is_on("greedy"), seed)?,
            graph: graph(case.text("graph")?)?,
            threads: case.size("threads")?,
            seed,
        })
    }
}

fn graph(word: &str) -> anyhow::Result<GraphMode> {
    match word {
        "auto" => Ok(GraphMode::Auto),
        "on" => Ok(GraphMode::On),
        "off" => Ok(GraphMode::Off),
        other => anyhow::bail!("`tts` has no graph `{other}`"),
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

fn number(case: &Case, axis: &str) -> anyhow::Result<f64> {
    match case.get(axis) {
        Some(AxisValue::Int(value)) => Ok(*value as f64),
        Some(AxisValue::Float(value)) => Ok(*value),
        _ => anyhow::bail!("the case has no number on axis `{axis}`"),
    }
}
