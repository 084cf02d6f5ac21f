//! Parsed cases of `tts`: the text and the model, before weights are read.

use std::path::{Path, PathBuf};

use anyhow::Context;
use laptime_bench::{Case, Fact, Work};
use laptime_models::tts::{Choice, Prompt, Sampling, TextFeed, TtsConfig, TtsWeights};
use laptime_models::{Dtype, GraphMode, HasTensors, ModelError, StageWork};
use laptime_trace::{run::Traffic, small_file};

use super::axes::ON_GPU;
use crate::axis::AUTO;
use crate::request::{self, fact, graph, is_on, number, plus, seed};

/// Frames for two words with synthetic weights: 4.5 per word, or 167 words per minute.
const FRAMES_OF_TWO_WORDS: usize = 9;

/// The maximum number of frames of a checkpoint, as in the official package.
const MOST_FRAMES: usize = 2048;

/// The largest text file, far beyond any text that can be generated.
const MOST_BYTES: u64 = 16 << 20;

#[derive(Debug)]
pub struct Speech {
    pub config: TtsConfig,
    /// The folder of its weights; none for synthetic ones.
    pub folder: Option<PathBuf>,
    pub dtype: Dtype,
    pub text: String,
    /// The text as a prompt of the talker.
    pub prompt: Prompt,
    /// The number of frames; a maximum for a checkpoint, which decides the end.
    pub frames: usize,
}

/// The model of a name and the folder of its weights; `auto` is the default on a GPU.
pub fn find(name: &str) -> Result<(TtsConfig, Option<PathBuf>), ModelError> {
    match looks_like_a_folder(name) {
        true => Ok((TtsConfig::from_folder(Path::new(name))?, Some(PathBuf::from(name)))),
        false => Ok((TtsConfig::from_preset(if name == AUTO { ON_GPU } else { name })?, None)),
    }
}

pub fn looks_like_a_folder(name: &str) -> bool {
    request::looks_like_a_folder(name, |name| TtsConfig::from_preset(name).is_ok())
}

impl Speech {
    /// Finds the model and encodes the text. No weights are read.
    pub fn of(spec: &Spec) -> anyhow::Result<Self> {
        let (config, folder) = find(&spec.model)?;
        let text = text(&spec.text)?;
        let tokenizer = config.tokenizer(folder.as_deref())?;
        let speaker = Some(spec.speaker.as_str());
        let prompt = Prompt::new(&config, &tokenizer, &text, speaker, &spec.language, TextFeed::ByFrame)?;
        spec.sampling.check()?;
        let frames = spec.frames.unwrap_or_else(|| match &folder {
            None => frames_of(count_words(&text)),
            Some(_) => MOST_FRAMES.min(config.talker.context.saturating_sub(prompt.positions.len())),
        });
        let dtype = spec.dtype.unwrap_or(config.talker.dtype);
        Ok(Self { config, folder, dtype, text, prompt, frames })
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self) -> Option<String> {
        let checked = self.prompt.check(&self.config, self.frames, usize::MAX);
        checked.err().map(|error| error.to_string())
    }

    pub fn capacity(&self) -> usize {
        self.prompt.positions.len().saturating_add(self.frames)
    }

    pub fn words(&self) -> usize {
        count_words(&self.text)
    }

    /// The sampling; synthetic weights never end the audio.
    pub fn sampling(&self, spec: &Spec) -> Sampling {
        Sampling { is_endless: self.folder.is_none(), ..spec.sampling }
    }

    /// The weights, and where they come from. Only names and shapes of a folder's weights are read.
    pub fn weights(&self, seed: u64) -> Result<(TtsWeights, &'static str), ModelError> {
        match &self.folder {
            Some(folder) => Ok((TtsWeights::open(folder, &self.config)?, "folder")),
            None => Ok((TtsWeights::synthetic(seed), "synthetic")),
        }
    }
}

/// The number of frames with synthetic weights.
pub fn frames_of(words: usize) -> usize {
    words.saturating_mul(FRAMES_OF_TWO_WORDS).div_ceil(2).max(1)
}

fn text(source: &Source) -> anyhow::Result<String> {
    match source {
        Source::Own(text) => Ok(text.clone()),
        Source::Corpus(label) => {
            let text = corpus_text(label).with_context(|| format!("there is no text `{label}`"))?;
            Ok(text.to_owned())
        }
        Source::File(file) => small_file::read_text(file, MOST_BYTES)
            .with_context(|| format!("cannot read the text of `{}`", file.display())),
    }
}

/// The names of the built-in texts.
pub const LABELS: &[&str] = &["short", "medium", "long"];

/// 13 words.
const SHORT: &str = "The morning train leaves at seven, and the seats by the window fill.";

/// 53 words.
const MEDIUM: &str = "A lighthouse keeper once wrote down the weather every evening for thirty years. Rain, wind, \
    fog and the rare clear night all went into the same brown books. When the lamp was finally made automatic, \
    a young scientist borrowed those pages, and found in them the slow warming of a whole cold sea.";

/// 115 words.
const LONG: &str = "On the first day of the harvest the whole village walked down to the river before sunrise. Nobody \
    had asked them to; it was simply what people there had always done. The older ones carried baskets and the \
    children carried bread, and somewhere behind them a dog barked at the fading stars. When the light came over the \
    hills, the water turned from grey to silver, and the talking stopped for a while. Then someone laughed, a boat \
    was pushed from the bank, and the work began. By noon the baskets were full, the bread was gone, and the river \
    lay quiet again, as though nothing at all had happened there on that long morning.";

pub fn corpus_text(label: &str) -> Option<&'static str> {
    match label {
        "short" => Some(SHORT),
        "medium" => Some(MEDIUM),
        "long" => Some(LONG),
        _ => None,
    }
}

pub fn count_words(text: &str) -> usize {
    text.split_whitespace().count()
}

/// The work of each stage, for all frames together; empty for a checkpoint, which determines the number of frames.
pub fn stage_work(speech: &Speech, spec: &Spec) -> Vec<(&'static str, Work)> {
    if speech.folder.is_some() {
        return Vec::new();
    }
    let Speech { config, prompt, dtype, frames, .. } = speech;
    let chunk = spec.streaming.then_some(spec.chunk_frames);
    let stages = config.stage_work([prompt.positions.len(), prompt.following.len()], *frames, chunk, *dtype);
    stages.into_iter().map(|(name, work)| (name, as_work(work, speech))).collect()
}

fn as_work(work: StageWork, speech: &Speech) -> Work {
    let dtype = speech.dtype.word().to_owned();
    Work { flops: work.flops, dtype, bytes: work.bytes_read(), traffic: Traffic::Read }
}

/// The work of an iteration.
pub fn work(speech: &Speech, spec: &Spec) -> Option<Work> {
    stage_work(speech, spec).into_iter().map(|(_, work)| work).reduce(plus)
}

/// Facts that are known before anything is allocated.
pub fn sizes(speech: &Speech) -> Vec<Fact> {
    let Speech { config, dtype, .. } = speech;
    vec![
        fact("words", speech.words() as u64),
        fact("prompt_positions", speech.prompt.positions.len() as u64),
        fact("parameters", config.parameters()),
        fact("weight_bytes", config.weight_bytes(*dtype)),
        fact("cache_bytes", config.cache_bytes(speech.capacity(), *dtype)),
    ]
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub model: String,
    pub text: Source,
    /// None for that of the model.
    pub dtype: Option<Dtype>,
    /// Empty for the default of the model.
    pub speaker: String,
    pub language: String,
    pub frames: Option<usize>,
    pub streaming: bool,
    pub chunk_frames: usize,
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

/// The sampling of codes: flags set that of semantic codes; the predictor samples like the official package.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_words_are_nine_frames_rounded_up() {
        assert_eq!([0, 1, 2, 13, 53, 115].map(frames_of), [1, 5, 9, 59, 239, 518]);
        assert_eq!(frames_of(usize::MAX), usize::MAX.div_ceil(2));
    }

    #[test]
    fn a_preset_is_not_a_folder_even_if_one_has_its_name() {
        let are_folders = ["tiny", "./tiny", "0.6b", "/x", "models/"].map(looks_like_a_folder);
        assert_eq!(are_folders, [false, true, false, true, true]);
    }
}

#[cfg(test)]
mod corpus_tests {
    use super::*;

    #[test]
    fn the_texts_have_as_many_words_as_in_qwen3_tts_rs() {
        let counts: Vec<usize> = LABELS.iter().map(|label| count_words(corpus_text(label).unwrap())).collect();
        assert_eq!(counts, [13, 53, 115]);
        assert_eq!(corpus_text("huge"), None);
    }
}
