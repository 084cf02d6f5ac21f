//! Parsed cases of `c2c`: both models, the fuser, the prompt, and the work.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use laptime_bench::{Case, Fact, PlanError, Work};
use laptime_models::fuser::{
    Aligned, Aligner, Alignment, ChatStyle, Choice, FuseOrder, FuserConfig, FuserWeights, Gates, Prompt, Rendered,
    Response, SharerMask,
};
use laptime_models::{Attention, Config, Dtype, HasTensors, ModelError, Stage, Tokenizer};
use laptime_stats::Rng;
use laptime_trace::small_file;

use super::axes::SYNTHETIC;
use crate::model::{BuiltIn, Found, Maker, Named, looks_like_a_folder};
use crate::request::{fact, is_on, plus, seed};

/// The models, the fuser and the prompt of a case.
#[derive(Debug)]
pub struct Pair {
    pub base: Found,
    pub teacher: Found,
    pub fuser: FuserConfig,
    pub weights: FuserWeights,
    pub dtype: Dtype,
    /// The prompt in the tokens of both models.
    pub prompt: Prompt,
    pub message: Option<String>,
    /// The tokenizer that decodes the answer.
    pub tokenizer: Option<Tokenizer>,
}

pub fn find(name: &str) -> Result<Found, PlanError> {
    BuiltIn::default().find(Named::Any(name))
}

/// A prompt that does not fit the context of a model.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct TooLong(String);

impl Pair {
    /// As [`Pair::of`]; the inner error says why the case cannot run.
    pub fn runnable(spec: &Spec) -> anyhow::Result<Result<Self, String>> {
        match Self::of(spec) {
            Ok(pair) => Ok(match pair.refusal(spec) {
                Some(reason) => Err(reason),
                None => Ok(pair),
            }),
            Err(error) => error.downcast::<TooLong>().map(|TooLong(reason)| Err(reason)),
        }
    }

    /// Finds models and fuser, and tokenizes the prompt. Of the weights, only names and shapes are read.
    pub fn of(spec: &Spec) -> anyhow::Result<Self> {
        let (base, teacher) = (find(&spec.base_model)?, find(&spec.teacher_model)?);
        // Before the prompt is generated: it may have billions of tokens.
        if let Source::Random(tokens) = spec.prompt
            && let Some(reason) = base_refusal(&base, tokens, spec)
        {
            return Err(TooLong(reason).into());
        }
        let (fuser, weights) = match &spec.checkpoint {
            Some(folder) => FuserWeights::open(folder, &base.config, &teacher.config)?,
            None => {
                let fuser = FuserConfig::new(&base.config, &teacher.config, spec.alignment);
                (fuser, FuserWeights::synthetic(spec.seed))
            }
        };
        fuser.check()?;
        let message = match &spec.prompt {
            Source::Random(_) => None,
            Source::Message(message) => Some(message.clone()),
            Source::Line(file, line) => Some(prompt_line(file, *line)?),
        };
        let tokenizer = message.as_ref().map(|_| tokenizer(&base)).transpose()?;
        let prompt = match (&message, &tokenizer, &spec.prompt) {
            (Some(message), Some(tokenizer), _) => of_message(message, tokenizer, &base, &teacher)?,
            (_, _, Source::Random(tokens)) => random(*tokens, &base, &teacher, spec.seed)?,
            _ => return Err(ModelError::Refused("the prompt is empty".to_owned()).into()),
        };
        let dtype = spec.dtype.unwrap_or(base.config.dtype);
        Ok(Self { base, teacher, fuser, weights, dtype, prompt, message, tokenizer })
    }

    /// Prompt tokens of the base model.
    pub fn tokens(&self) -> usize {
        self.prompt.receiver.len()
    }

    /// Prompt tokens that the teacher processes.
    pub fn teacher_tokens(&self, spec: &Spec) -> usize {
        match spec.response {
            Response::Plain => self.prompt.shared_tokens(0),
            Response::Fused(_) => self.teacher_prompt().len(),
        }
    }

    /// The whole prompt in the tokens of the teacher.
    pub fn teacher_prompt(&self) -> &[u32] {
        self.prompt.sharers.first().map(Vec::as_slice).unwrap_or_default()
    }

    /// Positions of the base model's cache; the last new token is sampled but not processed.
    pub fn positions(&self, spec: &Spec) -> usize {
        positions(self.tokens(), spec)
    }

    /// Capacity of the teacher's KV cache in tokens.
    pub fn teacher_positions(&self, spec: &Spec) -> usize {
        let teacher_tokens = self.teacher_prompt().len();
        let with_text = spec.text_tokens.map_or(0, |text| teacher_tokens.saturating_add(text.saturating_sub(1)));
        let with_response = match spec.response {
            Response::Plain => 0,
            Response::Fused(_) => teacher_tokens.saturating_add(spec.new_tokens.saturating_sub(1)),
        };
        self.teacher_tokens(spec).max(with_text).max(with_response)
    }

    /// Why the case is invalid, if it is.
    pub fn refusal(&self, spec: &Spec) -> Option<String> {
        let (base, teacher) = (&self.base, &self.teacher);
        if let Some(reason) = base_refusal(base, self.tokens(), spec) {
            return Some(reason);
        }
        if spec.response != Response::Plain && self.prompt.is_aligned {
            let (base, teacher) = (&base.name, &teacher.name);
            return Some(format!("the response can be fused only in tokens that `{base}` and `{teacher}` share"));
        }
        let tokens = self.teacher_positions(spec);
        (tokens > teacher.config.context).then(|| exceeds(teacher, &format!("{tokens} tokens exceed")))
    }
}

/// Capacity of the base model's KV cache for a prompt of this length.
fn positions(tokens: usize, spec: &Spec) -> usize {
    tokens.saturating_add(spec.new_tokens.saturating_sub(1).max(spec.text_tokens.unwrap_or(0)))
}

/// Why the base model cannot answer a prompt of this length, if it cannot.
fn base_refusal(base: &Found, tokens: usize, spec: &Spec) -> Option<String> {
    let more = match spec.text_tokens {
        Some(text) => format!("{text} tokens of text"),
        None => format!("{} new tokens", spec.new_tokens),
    };
    let is_longer = positions(tokens, spec) > base.config.context;
    is_longer.then(|| exceeds(base, &format!("the prompt ({tokens} tokens) plus {more} exceeds")))
}

fn exceeds(found: &Found, what: &str) -> String {
    format!("{what} the context of `{}` ({})", found.name, found.config.context)
}

fn tokenizer(found: &Found) -> Result<Tokenizer, ModelError> {
    match looks_like_a_folder(&found.name) {
        true => Tokenizer::open(std::path::Path::new(&found.name), &found.config),
        false => Tokenizer::bytes(&found.config),
    }
}

fn random(tokens: usize, base: &Found, teacher: &Found, seed: u64) -> Result<Prompt, ModelError> {
    let vocab = base.config.vocab.min(teacher.config.vocab) as f64;
    let mut rng = Rng::new(seed);
    Prompt::shared((0..tokens).map(|_| (rng.uniform() * vocab) as u32).collect(), 1, SharerMask::FIRST)
}

/// A message in the tokens of both models, each with its chat template if it has one.
fn of_message(message: &str, ours: &Tokenizer, base: &Found, teacher: &Found) -> Result<Prompt, ModelError> {
    if message.trim().is_empty() {
        return Err(ModelError::Refused("the prompt is empty".to_owned()));
    }
    let theirs = tokenizer(teacher)?;
    let is_raw = ours.is_bytes() && theirs.is_bytes();
    let rendered = |tokenizer: &Tokenizer, found: &Found| -> Result<Rendered, ModelError> {
        if is_raw { Ok(Rendered::raw(message)) } else { Ok(ChatStyle::of(tokenizer, &found.name)?.render(message)) }
    };
    let own = rendered(ours, base)?;
    let ids = ours.encode(&own.text)?;
    let mut aligner = Aligner::new(ours, &theirs, Choice::default());
    if aligner.is_shared(&ids) {
        return Prompt::shared(ids, 1, SharerMask::FIRST);
    }
    let aligned = aligner.align(&own, &rendered(&theirs, teacher)?)?;
    Aligned::prompt(&[aligned], SharerMask::FIRST)
}

/// The message of a line, counted from 1 without blank lines.
pub fn prompt_line(file: &Path, line: usize) -> anyhow::Result<String> {
    let all = read_prompts(file)?;
    let (has, name) = (all.len(), file.display());
    all.into_iter()
        .nth(line.saturating_sub(1))
        .with_context(|| format!("`{name}` has {has} prompts and no line {line}."))
}

pub fn prompt_count(file: &Path) -> anyhow::Result<usize> {
    Ok(read_prompts(file)?.len())
}

fn read_prompts(file: &Path) -> anyhow::Result<Vec<String>> {
    let name = file.display();
    let text = small_file::read_text(file, small_file::LARGEST_SMALL_FILE)
        .with_context(|| format!("cannot read the prompts of `{name}`"))?;
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty());
    lines.map(|(at, line)| prompt_message(line).with_context(|| format!("line {} of `{name}`", at + 1))).collect()
}

fn prompt_message(line: &str) -> anyhow::Result<String> {
    let record: serde_json::Value = serde_json::from_str(line).context("invalid JSON")?;
    let found = ["prompt", "question"].iter().find_map(|key| record.get(key)?.as_str());
    match found {
        Some(message) if message.trim().is_empty() => bail!("the prompt is empty"),
        Some(message) => Ok(message.to_owned()),
        None => bail!("expected a `prompt` or a `question`"),
    }
}

/// The work of each stage of an iteration, in the order of stages; all steps together are one.
pub fn stage_work(pair: &Pair, spec: &Spec, gates: &Gates) -> Vec<(&'static str, Work)> {
    let (base, teacher, dtype) = (&pair.base.config, &pair.teacher.config, pair.dtype);
    let (before, taught) = (pair.tokens().saturating_sub(1), pair.teacher_tokens(spec));
    let mut stages = Vec::new();
    for (names, config, tokens) in [
        (["base_embedding", "base_prefill"], base, before),
        (["teacher_embedding", "teacher_prefill"], teacher, taught),
    ] {
        if tokens > 0 {
            let pass = config.prefill_work(1, tokens, 0, Attention::Dense, dtype);
            let rest = Stage::ALL.into_iter().filter(|stage| *stage != Stage::Embed).map(|stage| pass.work_of(stage));
            stages.push((names[0], pass.work_of(Stage::Embed)));
            stages.extend(rest.reduce(plus).map(|rest| (names[1], rest)));
        }
    }
    let fuse = |tokens: usize| pair.fuser.fuse_work(gates, 1, tokens, dtype).work(dtype);
    let sections = pair.prompt.sections.iter().filter(|section| section.mask.has(0));
    let fused: usize = sections.map(|section| section.positions.len()).sum();
    if fused > 0 {
        stages.push(("projector", fuse(fused)));
    }
    stages.push(("last_token_prefill", base.step_work(1, before, dtype).work()));
    // The teacher is one position behind: it has processed only the prompt when the first step begins.
    let teacher_tokens = pair.teacher_prompt().len();
    let steps = (1..spec.new_tokens).map(|step| match spec.response {
        Response::Plain => base.step_work(1, before + step, dtype).work(),
        Response::Fused(_) => {
            let taught = teacher.step_work(1, teacher_tokens + step - 1, dtype).work();
            [taught, fuse(1)].into_iter().fold(base.step_work(1, before + step, dtype).work(), plus)
        }
    });
    stages.extend(steps.reduce(plus).map(|steps| ("decode", steps)));
    stages
}

/// The work of an iteration.
pub fn work(pair: &Pair, spec: &Spec, gates: &Gates) -> Option<Work> {
    stage_work(pair, spec, gates).into_iter().map(|(_, work)| work).reduce(plus)
}

/// Bytes of the weights, both KV caches and the fuser, known before anything is allocated.
pub fn sizes(pair: &Pair, spec: &Spec) -> Vec<Fact> {
    let [weights, caches, fuser] = bytes(pair, spec);
    vec![
        fact("parameters", pair.base.config.parameters()),
        fact("teacher_parameters", pair.teacher.config.parameters()),
        fact("fuser_parameters", pair.fuser.parameters()),
        fact("weight_bytes", weights),
        fact("cache_bytes", caches),
        fact("fuser_bytes", fuser),
    ]
}

/// Bytes of the weights of both models, of both caches, and of the fuser's weights.
pub fn bytes(pair: &Pair, spec: &Spec) -> [u64; 3] {
    let (base, teacher, dtype) = (&pair.base.config, &pair.teacher.config, pair.dtype);
    let cache = |config: &Config, positions: usize| config.kv_bytes_per_token(dtype).saturating_mul(positions as u64);
    let caches = cache(base, pair.positions(spec)).saturating_add(cache(teacher, pair.teacher_positions(spec)));
    let weights = base.weight_bytes(dtype).saturating_add(teacher.weight_bytes(dtype));
    [weights, caches, pair.fuser.weight_bytes(dtype)]
}

#[derive(Debug, Clone, PartialEq)]
pub struct Spec {
    pub base_model: String,
    pub teacher_model: String,
    /// The folder of the fuser; none for a synthetic one.
    pub checkpoint: Option<PathBuf>,
    pub prompt: Source,
    pub new_tokens: usize,
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
